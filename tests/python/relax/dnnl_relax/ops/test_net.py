# SPDX-License-Identifier: Apache-2.0
"""Each op of Relax x data type x fixed or open sizes: accepted, written, inferred and run alike.

The calls are those of `draws`, which draws each row. What the rules accept must be in a
partition without any failure (`strict`), the runtime must infer the types that Relax does, and what
this CPU computes must be what the numpy definitions of the ops say. A combination of which nothing
is accepted must have a reason for each draw. On a CPU without bfloat16 or float16, their partitions
are written and inferred as for one that has them.
"""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import tvm
import tvm_dnnl
from dnnl_tests import special_values
from dnnl_tests.net import COUNTS, TRIES, check_op
from dnnl_tests.pretended_cpu import every_dtype
from tvm import relax, tirx
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.ir.dim import substituted, symbols_in
from tvm.contrib.onednn.ir.op import infer
from tvm.contrib.onednn.ops.evaluate import evaluate
from tvm.contrib.onednn.ops.recurrent import GATES
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.options import Options
from tvm.contrib.onednn.rewrites.decompose import DECOMPOSITIONS
from tvm.relax import op
from tvm_dnnl._dnnl import registration
from tvm_dnnl._dnnl.codegen import compile_partitions
from tvm_dnnl._dnnl.ops import ROWS
from tvm_dnnl._dnnl.reader import RelaxGraph
from tvm_dnnl._dnnl.reading import constant_of, is_constant, short_name

from dnnl_relax.modules import compiled, virtual_machine
from dnnl_relax.ops.draws import DRAWS, NOT_DRAWN, SIZES, Draw

# TVM ends the process when it infers the type of one with open channels.
STATIC = {"nn.pixel_shuffle"}
# What TVM 0.27 computes otherwise than declared, or not at all. They have cases by hand.
WRONG_IN_TVM = {
    "nn.conv2d": "reads a kernel layout with W before H as if it were the other way round",
    "nn.conv3d": "as nn.conv2d",
    "nn.group_norm": "takes a negative axis for another one",
    "nn.pixel_shuffle": "is not compiled",
}
# A number may be off by so much, relative to the largest one; an integer by one.
RTOL = {"float32": 2e-5, "bfloat16": 2.0**-7, "float16": 2.0**-10}
registration.register()  # asks the CPU
HAS = {dtype: cpu.computes(dtype) for dtype in RTOL} | {"int8": True, "uint8": True, "bool": True}


class Quantized(Draw):
    """Draws operands that are dequantized."""

    def _dequantized(self, tensor):
        scale, zero = relax.const(np.float32(0.05)), relax.const(np.int8(3))
        return relax.BlockBuilder().normalize(op.dequantize(tensor, scale, zero, 0))

    def data(self, shape):
        return self._dequantized(self.var(shape, "int8"))

    def weight(self, shape, dtype=None):
        values = np.asarray(self.numbers.integers(-9, 9, shape), "int8")
        return self._dequantized(constant_of(values, "int8"))


def draw(name, dtype, seed, is_open):
    """Return the module of a call; None where Relax refuses it."""
    symbols = None
    if is_open:
        if name in STATIC:
            return None
        symbols = {n: tirx.Var(f"n{n}", "int64") for n in range(1, 2 * max(SIZES))}
    # Every second of 8 bits is between dequantize and quantize.
    is_quantized = dtype == "int8" and seed % 2 == 0
    d = Quantized(seed, "float32", symbols) if is_quantized else Draw(seed, dtype, symbols)
    builder = relax.BlockBuilder()
    try:
        drawn = DRAWS[name](d)
        with builder.function("main", d.variables):
            with builder.dataflow():
                result = builder.emit(drawn if isinstance(drawn, relax.Expr) else drawn(builder))
                if is_quantized and str(result.ty.dtype) == "float32":
                    scale, zero = relax.const(np.float32(0.1)), relax.const(np.int8(-2))
                    result = builder.emit(op.quantize(result, scale, zero, 0, "int8"))
                output = builder.emit_output(result)
            builder.emit_func_output(output)
        return builder.get() if d.variables else None
    # What Relax raises has many types.
    except Exception:  # pylint: disable=broad-except
        return None


def partitions(mod):
    return [
        func
        for func in mod.functions.values()
        if isinstance(func, relax.Function) and "Codegen" in (func.attrs or {})
    ]


def constants_of(func):
    """Return the constants of a partition, each once."""
    constants = []

    def visit(expr):
        if is_constant(expr) and expr not in constants:
            constants.append(expr)

    relax.analysis.post_order_visit(func, visit)
    return constants


def runtime_module(func):
    """Return the runtime module of a partition, not initialised."""
    names = {constant: f"c{k}" for k, constant in enumerate(constants_of(func))}
    (module,) = compile_partitions([func], {}, names)
    return module


def types_of(type_):
    """Return the types of tensors as the runtime writes them."""
    fields = type_.fields if isinstance(type_, relax.TupleType) else [type_]
    return [f"{each.dtype} {[int(dim) for dim in each.shape.values]}" for each in fields]


_EDGES = ("qnn.dequantize", "qnn.quantize")
# The functions in TVM's expressions of sizes.
_TIR = SimpleNamespace(
    max=max, min=min, int64=int, if_then_else=lambda condition, a, b: a if condition else b
)


def size_of(dim):
    """Return a dimension, where each symbol is named by its size."""
    if isinstance(dim, tirx.IntImm):
        return int(dim)
    names = {f"n{n}": n for n in range(2 * max(SIZES))}
    return eval(str(dim), {"T": _TIR}, names)  # pylint: disable=eval-used


def fixed(type_):
    """Return a type with numbers for its symbols."""
    if isinstance(type_, relax.TupleType):
        return relax.TupleType(list(map(fixed, type_.fields)))
    return relax.TensorType([size_of(dim) for dim in type_.shape.values], type_.dtype)


def tensors(func):
    return [param for param in func.params if isinstance(param.ty, relax.TensorType)]


def type_problems(func):
    """Return where the runtime infers other types of a partition than Relax."""
    module = runtime_module(func)
    shapes = [[size_of(dim) for dim in each.ty.shape.values] for each in tensors(func)]
    got, wanted = map(str, module["infer_types"](shapes)), types_of(fixed(func.ret_ty))
    got = list(got)
    return [] if got == wanted else [f"the runtime infers {got}, not {wanted}"]


def values_of(type_, seed):
    shape, dtype = [int(dim) for dim in type_.shape.values], str(type_.dtype)
    rng = np.random.default_rng(seed)
    if "float" not in dtype:
        return rng.integers(0, 2 if dtype == "bool" else 5, shape).astype(dtype)
    return rng.uniform(0.5, 1.5, shape).astype("float32")


def wrong_numbers(mod, func, seed=0, with_tvm=False):
    """Return where a partition that is the whole function computes other numbers than numpy.

    Ordinary ones first, then special ones, which are drawn from the seed. With `with_tvm`, or other
    ordinary numbers than TVM alone, unless that cannot compile it.
    """
    constants = constants_of(func)
    module, symbol = runtime_module(func), str(func.attrs["global_symbol"])
    read = [constants[int(str(name)[1:])] for name in module["get_const_vars"]()]
    module["__init_" + symbol]([getattr(c, "value", None) or c.data for c in read])
    types = [fixed(param.ty) for param in tensors(mod["main"])]
    ordinary = [values_of(each, k) for k, each in enumerate(types)]
    result = fixed(func.ret_ty)
    results = result.fields if isinstance(result, relax.TupleType) else [result]
    graph, problems = graph_of(mod), []
    calls = [node for node in graph.nodes if node.is_call]
    names = {node.name for node in calls}
    reads_next = any(map(special_values.reads_next_channel, calls))
    # A state of a layer is a sum of terms of up to 1, whatever is left of them.
    least = float(not set(GATES).isdisjoint(names))
    for kind, arrays in [("ordinary", ordinary), *special_values.drawn(names, ordinary, seed)]:
        inputs = [constant_of(a, str(t.dtype)) for a, t in zip(arrays, types)]
        inputs = [getattr(each, "value", None) or each.data for each in inputs]
        outputs = [tvm.runtime.empty([*map(int, t.shape.values)], str(t.dtype)) for t in results]
        module[symbol](*inputs, *outputs)
        outputs = [output.numpy() for output in outputs]
        if with_tvm and kind == "ordinary":
            problems += differences(kind, names, outputs, tvm_alone(mod, inputs), least)
        try:
            wanted = evaluate(graph, [each.numpy() for each in inputs])
        except ValueError:  # An op without a definition, such as one that is only decomposed.
            continue
        problems += differences(kind, names, outputs, wanted, least, reads_next)
    return problems


def tvm_alone(mod, inputs):
    """Return what TVM computes without oneDNN; nothing if it cannot compile the module."""
    try:
        return results_of(mod, inputs)
    except RuntimeError:
        return []


def results_of(mod, inputs):
    """Return what a compiled module computes."""
    result = virtual_machine(compiled(mod))["main"](*map(tvm.runtime.tensor, inputs))
    results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [each.numpy() for each in results]


def differences(kind, names, outputs, wanted, least, reads_next=False):
    """Return where results differ; see `special_values.is_wrong`."""
    problems = []
    for output, want in zip(outputs, wanted):
        dtype = str(output.dtype)
        rtol = RTOL.get(dtype, 0)
        atol = rtol * least if dtype in RTOL else float(dtype in ("int8", "uint8"))
        if special_values.is_wrong(kind, names, output, want, rtol, atol, reads_next):
            problems.append(f"{kind} values: {output}\nis not\n{want}")
    return problems


def is_whole(mod, partitioned):
    """Whether a partitioned function only calls one partition with all of its parameters."""
    bindings = [each for block in partitioned["main"].body.blocks for each in block.bindings]
    calls = [each.value for each in bindings if isinstance(each.value, relax.Call)]
    if len(calls) != 1 or len(bindings) != 1 or not partitions(partitioned):
        return False
    return list(map(str, calls[0].args)) == [str(param) for param in mod["main"].params]


def dtypes_of(mod):
    return {str(node.type.dtype) for node in graph_of(mod).nodes if hasattr(node.type, "dtype")}


def graph_of(mod):
    return RelaxGraph(mod, mod["main"])


def sizes_of(type_):
    """Return a type's sizes, in which a symbol is the number in its name, and its data type."""
    symbols = (symbol for dim in type_.dims for symbol in symbols_in(dim))
    sizes = {symbol.key: int(symbol.key[-1][1:]) for symbol in symbols}
    return [type_.dtype, *(substituted(dim, sizes) for dim in type_.dims)]


def graph_problems(mod):
    """Return where the graph infers other types than Relax; either may not know a size."""
    problems, rules = [], Rules(TABLE)
    for node in graph_of(mod).nodes:
        if not node.is_call or node.unsupported or node.name not in TABLE or rules.refusal(node):
            continue
        types = infer(node.name, node.args, node.attrs)
        types = types if isinstance(types, tuple) else (types,)
        got, wanted = (list(map(sizes_of, each)) for each in (types, node.results))
        pairs = (pair for each in zip(got, wanted, strict=True) for pair in zip(*each, strict=True))
        if any(None not in pair and pair[0] != pair[1] for pair in pairs):
            problems.append(f"the graph infers {got} of {node.name}, not {wanted}")
    return problems


def check(mod, is_accepted, seed):
    """Partition a module of which an op is accepted, or none; return what is wrong."""
    try:
        partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False, strict=True)
        parts = partitions(partitioned)
        problems = [each for func in parts for each in type_problems(func)]
        report = tvm_dnnl.offload_report(partitioned)
        # An op that changes nothing is gone.
        if is_accepted and not parts and report.total:
            problems.append(f"nothing is offloaded: {report}")
        is_run = all(HAS.get(dtype, True) for dtype in dtypes_of(mod))
        if is_run and is_whole(mod, partitioned) and not problems:
            problems = wrong_numbers(mod, parts[0], seed)
    # Whatever is raised is a problem.
    except Exception as error:  # pylint: disable=broad-except
        return [f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"]
    return problems


def test_rows_are_those_of_the_table():
    """The table names the ops of Relax; each has a row here that reads it as the table says."""
    named = {f"relax.{name}" for spec in TABLE.values() for name in spec.relax_ops}
    assert named <= set(ROWS)
    composed = {name for name in DECOMPOSITIONS if name.startswith("relax.")}
    assert set(ROWS) - named == {*composed, "relax.nn.attention_var_len"} - named
    for name in DRAWS:
        mods = (draw(name, "float32", seed, False) for seed in range(TRIES))
        nodes = (node for mod in mods if mod is not None for node in graph_of(mod).nodes)
        for node in nodes:
            if node.is_call and not node.name.startswith("relax.") and name not in GATES:
                assert short_name(node.origin.native.value) in TABLE[node.name].relax_ops


def test_each_row_is_drawn():
    # Functions of TIR, which are no ops of Relax.
    layers = (f"relax.{name}" for name in GATES)
    assert {f"relax.{name}" for name in (*DRAWS, *NOT_DRAWN)} == {*ROWS, *layers}
    named = {name for row in TABLE.values() for name in row.relax_ops if name not in TABLE}
    assert named <= {*DRAWS, *NOT_DRAWN, *TABLE}


# More than of Relay, for which `graphs/test_infer.py` draws further calls.
@pytest.mark.parametrize("count", [3, *COUNTS[1:]])
@pytest.mark.parametrize("name", DRAWS)
def test_net(name, count):
    check_op(name, list(DRAWS).index(name), count, combination)


@pytest.mark.parametrize("count", [TRIES, pytest.param(3 * TRIES, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", DRAWS)
def test_what_the_graph_infers(name, count):
    for seed, is_open in itertools.product(range(count), (False, True)):
        mod = draw(name, "float32", seed, is_open)
        assert mod is None or not graph_problems(mod), mod.script()


# TVM takes most of the time to compile a call.
@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", [name for name in DRAWS if name not in WRONG_IN_TVM])
def test_like_tvm(name, count):
    """A definition is of what was read, and a reader may misread an operand or an attribute."""
    compared = 0
    for seed in range(4 * TRIES):
        mod = draw(name, "float32", seed, False)
        if mod is None:
            continue
        partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False, strict=True)
        if is_whole(mod, partitioned):
            assert not wrong_numbers(mod, partitions(partitioned)[0], with_tvm=True), mod.script()
            compared += 1
        if compared == count:
            return
    assert compared


def judged(mod, reasons):
    """Whether the rules accept the op of a module; append why they refuse any."""
    if mod is None:
        return False
    rules = Rules(TABLE, Options(strict=True))
    calls = [node for node in graph_of(mod).nodes if node.kind == "call"]
    known = [node.unsupported or rules.refusal(node) for node in calls]
    reasons += filter(None, known)
    own = [k for k, node in enumerate(calls) if node.name not in _EDGES]
    return any(known[k] is None for k in own or range(len(calls)))


def combination(name, dtype, is_open, count, problems, seeds=range(TRIES)):
    """Check draws of one combination; return how many are accepted, and why others are not."""
    accepted, reasons = 0, []
    for seed in seeds:
        with every_dtype():
            mod = draw(name, dtype, seed, is_open)
            if mod is None:
                reasons.append("Relax refuses it")
                continue
            is_accepted = judged(mod, reasons)
            # The sizes are known at run time only: take some that the rules accept, too.
            if is_open and not judged(draw(name, dtype, seed, False), reasons):
                continue
            # The first is partitioned in any case.
            if is_accepted or seed == seeds[0]:
                wrong = check(mod, is_accepted, seed)
                problems += [f"{dtype}, seed {seed}, {mod.script()}\n{w}" for w in wrong]
                accepted += is_accepted
            if accepted == count:
                break
    return accepted, reasons
