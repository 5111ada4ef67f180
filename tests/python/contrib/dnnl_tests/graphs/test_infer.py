# SPDX-License-Identifier: Apache-2.0
"""The rules, the runtime and the graph's inference judge alike.

What a rule accepts `Infer` of the runtime accepts, with the shapes and types that Relay infers. So
does `infer` of the graph, which knows open dimensions as symbols. Calls of one op are run, too, and
compared with its numpy definition. No model is compiled: a case takes milliseconds.
"""

import itertools
import json
import math
import random

import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.ir.dim import Dim, substituted
from tvm.contrib.onednn.ir.op import infer
from tvm.contrib.onednn.ir.op_view import Tensor
from tvm.contrib.onednn.ops.recurrent import GATES
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import COMPARISONS, TABLE
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib._dnnl.ir.dataflow_graph import is_partition
from tvm.relay.op.contrib._dnnl.ir.relay_view import plain_attrs, view_of

from dnnl_tests import direct, special_values
from dnnl_tests import graphs as random_graphs
from dnnl_tests.graphs import draw, quantized
from dnnl_tests.graphs.calls import alone, call_of, drawn, function
from dnnl_tests.graphs.graph import inputs_of, numpy_type, values
from dnnl_tests.marks import nightly_after

ROWS = random_graphs.ROWS
# Graphs of a row; of several ops; of quantized ops. The others of a row are nightly.
SINGLES, SEVERAL, QUANTIZED = 100, 120, 40
SEEDS = nightly_after(1, [range(24), range(24, SINGLES)])
# By type: how far a number may be off, relative to the largest one. Sums are those of float32, and
# are rounded once.
RTOL = {"float32": 2e-5, "bfloat16": 2.0**-7, "float16": 2.0**-10}
# QNN ops are drawn in graphs of their own, virtual ops are found in formulas.
DIRECT = [name for name in TABLE if not name.startswith(("qnn.", "dnnl."))]
FOUND = [name for name in ROWS if name.startswith("dnnl.")]
# Ops whose results are elements of their operands.
EXACT = {
    *(name for name, row in TABLE.items() if row.moves),
    *("nn.relu", "maximum", "minimum", "max", "min"),
    *(f"nn.{scope}max_pool{n}d" for scope in ("", "global_", "adaptive_") for n in (1, 2, 3)),
}  # fmt: skip
# Ops of which oneDNN has plain loops only, for some calls or on some CPUs.
FEW_NUMBERS = 16
SLOW = ("nn.lrn", *COMPARISONS)
DTYPES = [dtype for dtype in ("float32", "bfloat16", "float16") if cpu.computes(dtype)]


def results_of(func):
    """Return the types of a function's results."""
    result = func.ret_type if func.checked_type is None else func.checked_type.ret_type
    return list(result.fields) if isinstance(result, relay.TupleType) else [result]


def types_of(func):
    """Return the types of a function's results as the runtime writes them."""
    return [f"{each.dtype} [{', '.join(map(str, each.shape))}]" for each in results_of(func)]


def as_partition(func, symbol="f"):
    """Return a function that oneDNN runs."""
    if func.attrs is not None and "Compiler" in func.attrs:
        return func
    return func.with_attr("global_symbol", symbol).with_attr("Compiler", "dnnl")


def runtime_module(func):
    """Return the runtime module of a function, not initialised."""
    return tvm.get_global_func("relay.ext.dnnl")(as_partition(func))


def inferred(module, func):
    """Return the types that the runtime infers, for the parameters of a static function."""
    params = func.params
    shapes = [tvm.runtime.ShapeTuple([*map(int, each.checked_type.shape)]) for each in params]
    return [str(each) for each in module.get_function("infer_types")(shapes)]


def initialise(module):
    """Have the plan made, with values for the constants that are like those of the graph."""
    nodes = {node["name"]: node for node in json.loads(module.get_source("json"))["nodes"]}
    constants = []
    for name in module.get_function("get_const_vars")():
        (shape,), (dtype,) = (nodes[name]["attrs"][key] for key in ("shape", "dtype"))
        value = values("pos", shape, "float32") if "float" in dtype else values("", shape, "int32")
        constants.append(tvm.nd.array(value.astype(numpy_type(dtype))))
    symbol = module.get_function("get_symbol")()
    assert module.get_function("__init_" + symbol)(constants) == 0


def opened(func, seed):
    """Return a function with some dimensions open, in all parameters of the same size alike."""
    rng = random.Random(seed)
    params = []
    for param in func.params:
        shape = [relay.Any() if rng.random() < 0.4 else dim for dim in param.checked_type.shape]
        type_ = relay.TensorType(shape, param.checked_type.dtype)
        params.append(relay.var(param.name_hint, type_annotation=type_))
    return function(relay.bind(call_of(func), dict(zip(func.params, params))), params)


def cases(name, seeds, with_constants=True):
    """Yield typed functions of one call of an op, of each type that this CPU computes in."""
    for seed in seeds:
        try:
            expr = drawn(name, seed, DTYPES[seed % 4 % len(DTYPES)])
            func = function(*alone(expr, with_constants))
        # What TVM refuses, and types that do not fit the other operands.
        except (tvm.TVMError, TypeError, ValueError):
            continue
        if all(int(dim) > 0 for each in results_of(func) for dim in each.shape):
            yield seed, func


def accepted(name, seeds):
    """Yield functions of one call of an op that the rule accepts."""
    rules = Rules(TABLE)
    for _, func in cases(name, seeds):
        if rules.reason(view_of(call_of(func))) is None:
            yield func


def typed_partition(func, symbol="f"):
    """Return a function that oneDNN runs, with types."""
    func = as_partition(func, symbol)
    return relay.transform.InferType()(tvm.IRModule.from_expr(func))[symbol]


def open_partition(func, static):
    """Return a function with open dimensions as a runtime module for the sizes of another one."""
    return direct.Partition(typed_partition(func), "JSON", static=static)


def wrong_numbers(func, partition, seed=0):
    """Return where a partition computes other numbers than the numpy definition.

    Ordinary ones first, then special ones, which are drawn from the seed.
    """
    types, problems = [param.checked_type for param in func.params], []
    ordinary = [values("x", [*map(int, each.shape)], each.dtype) for each in types]
    name = call_of(func).op.name
    reads_next = special_values.reads_next_channel(view_of(call_of(func)))
    rtol = 0 if name in EXACT else RTOL.get(results_of(func)[0].dtype, 0)
    for kind, args in [("ordinary", ordinary), *special_values.drawn({name}, ordinary, seed)]:
        try:
            wanted = direct.Evaluation(None, {}, dict(zip(func.params, args))).value(func.body)
        except direct.NotDefined:
            continue
        wanted = wanted if isinstance(wanted, list) else [wanted]
        for got, want in zip(partition(*args), wanted):
            if special_values.is_wrong(kind, {name}, got, want, rtol, 0.0, reads_next):
                problems.append(f"{func}\n{kind} values: {args}\n{got}\nis not\n{want}")
    return problems


def checked(name, seeds):
    """Check fixed calls of an op; return how many its rule accepts, and what is wrong with them."""
    problems, funcs = [], list(accepted(name, seeds))
    for number, func in enumerate(funcs):
        problems += problems_of(func, func) + differences_of(call_of(func))
        func = typed_partition(func)
        partition = direct.Partition(func)
        problems += wrong_numbers(func, partition, number) + slow_steps(name, func, partition)
    return len(funcs), problems


def checked_open(name, seeds):
    """The same of calls with open dimensions, whose sizes the rule would accept, too."""
    rules, problems, count = Rules(TABLE), [], 0
    for seed, func in cases(name, seeds, with_constants=False):
        try:
            case = opened(func, seed)
        except tvm.TVMError:
            continue
        if all(rules.reason(view_of(call_of(each))) is None for each in (func, case)):
            count += 1
            problems += problems_of(case, func)
            problems += differences_of(call_of(case), call_of(func))
            problems += wrong_numbers(func, open_partition(case, func), seed)
    return count, problems


def count_without_problems(check, name, seeds):
    """Return how many calls are accepted; nothing may be wrong with them."""
    count, problems = check(name, seeds)
    print(f"{name}: {count} accepted")
    assert not problems, f"{len(problems)} of {count}:\n" + "\n".join(problems[:3])
    return count


@pytest.mark.parametrize("seeds", SEEDS, ids=["first", "others"])
@pytest.mark.parametrize("name", DIRECT)
def test_a_call_that_the_rule_accepts(name, seeds):
    assert count_without_problems(checked, name, seeds)


@pytest.mark.parametrize("seeds", SEEDS, ids=["first", "others"])
@pytest.mark.parametrize("name", DIRECT)
def test_a_call_with_open_dimensions_that_the_rule_accepts(name, seeds):
    count_without_problems(checked_open, name, seeds)


def problems_of(func, static, is_sample=False):
    """Return where the runtime and Relay differ, for the sizes of a static function."""
    try:
        module = runtime_module(func)
        got = inferred(module, static)
        if is_sample:
            initialise(module)
    except tvm.TVMError as error:
        return [f"{func}\n{str(error).strip().splitlines()[-1]}"]
    wanted = types_of(static)
    return [] if got == wanted else [f"{func}\nthe runtime infers {got}, not {wanted}"]


def slow_steps(name, func, partition):
    """Return the primitives that are plain loops, which only a few numbers may take."""
    sizes = [math.prod(map(int, param.checked_type.shape)) for param in func.params]
    if max(sizes, default=0) < FEW_NUMBERS:
        return []
    steps = json.loads(partition.module.get_function("get_plan")())["primitives"]
    slow = [step for step in steps if step["reference"]]
    return [f"{func}\n{slow}"] if slow and name not in SLOW else []


def test_calls_in_c_source():
    """Operands and attributes of each op arrive; one library has all calls."""
    funcs = [func for name in DIRECT for func in itertools.islice(accepted(name, SEEDS[0]), 2)]
    funcs = [typed_partition(func, f"f{k}") for k, func in enumerate(funcs)]
    partitions = [direct.Partition(func, "C_SRC") for func in funcs]
    library, _ = direct.linked([each.module for each in partitions])
    problems = []
    for func, partition in zip(funcs, partitions):
        partition.module = library
        problems += wrong_numbers(func, partition)
    assert not problems, f"{len(problems)} of {len(funcs)}:\n" + "\n".join(problems[:3])


def with_symbols(static, case):
    """Return the type of an operand with a symbol for each open dimension, named by its size."""
    if isinstance(static, tuple):
        return tuple(map(with_symbols, static, case))
    dims = (Dim.symbol(n) if dim is None else dim for n, dim in zip(static.shape, case.shape))
    return Tensor(tuple(dims), case.dtype, case.value)


def differences_of(call, static=None):
    """Return where the graph and Relay infer other types for a call; `static` has no open sizes."""
    view, other = view_of(call), view_of(call if static is None else static)
    types = infer(view.name, list(map(with_symbols, other.args, view.args)), plain_attrs(call))
    got = []
    for type_ in types if isinstance(types, tuple) else (types,):
        sizes = {n: n for each in _tensors(other.args) for n in each.shape}
        got.append((type_.dtype, [substituted(dim, sizes) for dim in type_.dims]))
    wanted = [(each.dtype, list(each.shape)) for each in other.results]
    if static is not None:
        # A size may be unknown, but not another one.
        for (_, dims), (_, sizes) in zip(got, wanted):
            dims[:] = [n if dim is None else dim for n, dim in zip(sizes, dims)]
    is_tuple = isinstance(types, tuple)
    if (got, is_tuple) == (wanted, other.returns_tuple):
        return []
    return [f"{call}\nthe graph infers {got}, not {wanted}"]


def _tensors(values):
    return [each for value in values for each in (value if isinstance(value, tuple) else (value,))]


def differences_in(func):
    """Return where the graph and Relay infer other types for calls in a function."""
    problems = []

    def visit(expr):
        view = view_of(expr)
        if view is not None and view.name in TABLE:
            problems.extend(differences_of(expr))

    relay.analysis.post_order_visit(func.body, visit)
    return problems


def check_partitions(mod, check_numbers=None, seed=0):
    """Partition a module; return how many partitions it has, and what is wrong with them."""
    partitioned = dnnl.partition_for_dnnl(mod, prune=False)
    count, problems = 0, [] if check_numbers is None else check_numbers(mod, partitioned, seed)
    for func in partitioned.functions.values():
        if not isinstance(func, relay.Function) or not is_partition(func):
            continue
        count += 1
        problems += problems_of(func, func, count == 1) + differences_in(func)
    return count, problems


def _check_all(mods, check_numbers=None):
    """Check modules; `check_numbers` returns what is wrong with a partitioned one, from a seed."""
    count, problems = 0, []
    for seed, mod in enumerate(mods):
        partitions, differences = check_partitions(mod, check_numbers, seed)
        count += partitions
        problems += differences
    print(f"{count} partitions")
    assert count
    assert not problems, "\n".join(problems[:3])


@pytest.mark.parametrize("name", FOUND)
def test_formulas_and_composites(name):
    def mods():
        for seed in range(SINGLES // 5):
            try:
                graph = random_graphs.single(seed, ROWS[name], ROWS, edges=True)
                yield graph.module(ROWS, DTYPES[seed % len(DTYPES)])
            except (draw.Unfit, tvm.TVMError, ValueError):
                continue

    # The layers have many steps, each of which numpy computes; the net of Relax has their numbers.
    _check_all(mods(), None if name in GATES else wrong_special_numbers)


def wrong_special_numbers(mod, partitioned, seed, left_out=("largest",)):
    """Return where a partitioned module in float32 computes other special numbers than numpy.

    What is infinite in the middle depends on what is fused: some kinds of numbers are left out.
    """
    main, names = mod["main"], set()
    relay.analysis.post_order_visit(
        main, lambda expr: names.add(expr.name) if isinstance(expr, tvm.ir.Op) else None
    )
    # The data first: parameters are weights.
    params = sorted(main.params, key=lambda param: param.name_hint.startswith("par"))
    if not all(param.checked_type.dtype == "float32" for param in params):
        return []
    ordinary, run, problems = inputs_of(mod), None, []
    ordinary = [ordinary[param.name_hint] for param in params]
    for kind, args in special_values.drawn(names, ordinary, seed):
        if kind in left_out:
            continue
        try:
            wanted = direct.Evaluation(mod, {}, dict(zip(params, args))).value(main.body)
        except direct.NotDefined:
            return problems
        run = run or direct.Runner(partitioned)
        wanted = wanted if isinstance(wanted, list) else [wanted]
        results = run({param.name_hint: value for param, value in zip(params, args)})
        for got, want in zip(results, wanted):
            if special_values.is_wrong(kind, names, got, want, RTOL["float32"], RTOL["float32"]):
                problems.append(f"{mod}\n{kind} values: {args}\n{got}\nis not\n{want}")
    return problems


def test_several_ops():
    graphs = (random_graphs.random_graph(seed, ROWS, 4, edges=True) for seed in range(SEVERAL))
    _check_all(graph.module(ROWS) for graph in graphs)


def test_quantized_ops():
    _check_all(quantized.draw(seed, max_groups=3).mod for seed in range(QUANTIZED))
