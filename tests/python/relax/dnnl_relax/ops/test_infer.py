# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""The rules, the runtime and the graph's inference judge alike.

What a rule accepts `Infer` of the runtime accepts, with the shapes and types that Relax infers; a
sample is initialised, too. So does `infer` of the graph, which knows open dimensions as symbols. No
model is compiled.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import tvm_dnnl
from tvm import relax, tirx
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.ir.dim import Dim, substituted
from tvm.contrib.onednn.ir.op import infer
from tvm.contrib.onednn.ir.op_view import OpView, Tensor
from tvm.contrib.onednn.ops.recurrent import GATES
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.relax import op
from tvm_dnnl._dnnl import registration
from tvm_dnnl._dnnl.codegen import compile_partitions
from tvm_dnnl._dnnl.ops import ROWS
from tvm_dnnl._dnnl.reading import UnsupportedOp, is_constant, value_of

from dnnl_relax.ops.draws import DRAWS, NOT_DRAWN, Draw

# Of the draws of an op; the others are nightly.
SEEDS = [range(20), pytest.param(range(20, 48), marks=pytest.mark.nightly)]
# Each such case gets a plan.
SAMPLE = 6
registration.register()  # asks the CPU
DTYPES = [dtype for dtype in ("float32", "bfloat16", "float16") if cpu.computes(dtype)]
# What is refused in each case: such an op is written as others only.
REFUSED = {"nn.batch_norm"}
# TVM ends the process when it infers the type of one with open channels.
STATIC = {"nn.pixel_shuffle"}


def test_each_row_is_drawn():
    # Functions of TIR, which are no ops of Relax.
    layers = (f"relax.{name}" for name in GATES)
    assert {f"relax.{name}" for name in (*DRAWS, *NOT_DRAWN)} == {*ROWS, *layers}


def types_of(type_):
    """Return the types of tensors as the runtime writes them."""
    fields = type_.fields if isinstance(type_, relax.TupleType) else [type_]
    shapes = [[int(dim) for dim in each.shape.values] for each in fields]
    return [f"{each.dtype} {shape}" for each, shape in zip(fields, shapes)]


def runtime_module(func):
    """Return the runtime module of a partition, not initialised, and its constants."""
    constants = []

    def visit(expr):
        if is_constant(expr) and expr not in constants:
            constants.append(expr)

    relax.analysis.post_order_visit(func, visit)
    names = {constant: f"c{k}" for k, constant in enumerate(constants)}
    (module,) = compile_partitions([func], {}, names)
    return module


def initialise(module):
    """Have the plan made, with ones for the constants."""
    nodes = {node["name"]: node for node in json.loads(module.inspect_source("json"))["nodes"]}
    values = []
    for name in module["get_const_vars"]():
        (shape,), (dtype,) = (nodes[name]["attrs"][key] for key in ("shape", "dtype"))
        # numpy has no bfloat16 of its own.
        values.append(relax.const(np.ones(shape), dtype))
    values = [getattr(each, "value", None) or each.data for each in values]
    assert module["__init_" + module["get_symbol"]()](values) == 0


def partitions(mod):
    return [
        func
        for func in mod.functions.values()
        if isinstance(func, relax.Function) and "Codegen" in (func.attrs or {})
    ]


def draw_module(name, seed, dtype, symbols=None):
    """Return a module of a function that ends in a call of an op, and the shapes of its parameters.

    A relu or an addition after the call keeps a partition from being a view alone. What Relax
    refuses raises what Relax raises.
    """
    d = Draw(seed, dtype, symbols)
    drawn, builder = DRAWS[name](d), relax.BlockBuilder()
    with builder.function("main", d.variables):
        with builder.dataflow():
            result = builder.emit(drawn if isinstance(drawn, relax.Expr) else drawn(builder))
            if str(result.ty.dtype) == dtype:
                result = builder.emit(d.choice((op.nn.relu, op.negative))(result))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get(), d.shapes


def drawn(name, seed, symbols=None):
    """Return a drawn module and the shapes of its parameters; None where Relax refuses it."""
    try:
        return draw_module(name, seed, DTYPES[seed % 4 % len(DTYPES)], symbols)
    # What Relax raises has many types.
    except Exception:  # pylint: disable=broad-except
        return None


def partitioned(mod):
    return tvm_dnnl.partition_for_dnnl(mod, prune=False)


def check(func, shapes, expected):
    """Return the runtime module of a partition whose results the runtime says the same of."""
    module = runtime_module(func)
    got = [str(each) for each in module["infer_types"]([list(shape) for shape in shapes])]
    if got != expected:
        raise RuntimeError(f"the runtime infers {got}, not {expected}")
    return module


@pytest.mark.parametrize("seeds", SEEDS, ids=["first", "others"])
@pytest.mark.parametrize("name", DRAWS)
def test_what_is_accepted(name, seeds):
    problems, accepted = [], 0
    for seed in seeds:
        static = drawn(name, seed)
        if static is None:
            continue
        mod, shapes = static
        for func in partitions(partitioned(mod)):
            accepted += 1
            try:
                params = [each for each in func.params if isinstance(each.ty, relax.TensorType)]
                own = [each.ty.shape.values for each in params]
                module = check(func, [list(map(int, each)) for each in own], types_of(func.ret_ty))
                if accepted % SAMPLE == 0:
                    initialise(module)
            except RuntimeError as error:
                problems.append(f"{mod.script()}\n{str(error).strip().splitlines()[-1]}")
        problems += _open_problems(name, seed, mod, shapes)
    print(f"{name}: {accepted} accepted")
    assert not problems, f"{len(problems)} of {accepted}:\n" + "\n".join(problems[:3])
    assert accepted or name in REFUSED


def whole(mod):
    """Return the call of the partition that a partitioned function consists of, if it does."""
    bindings = [each for block in mod["main"].body.blocks for each in block.bindings]
    calls = [each.value for each in bindings if isinstance(each.value, relax.Call)]
    params = [str(param) for param in mod["main"].params]
    if len(partitions(mod)) != 1 or len(calls) != 1:
        return None
    return calls[0] if all(str(arg) in params for arg in calls[0].args) else None


def _open_problems(name, seed, mod, shapes):
    """Draw the same with open dimensions; the runtime must infer of a call what Relax does.

    The sizes of a call are known at run time only: they are some that the rule accepts, too.
    """
    symbols = {size: tirx.Var(f"n{size}", "int64") for size in {n for each in shapes for n in each}}
    other = None if name in STATIC else drawn(name, seed, symbols)
    if other is None or whole(partitioned(mod)) is None:
        return []
    opened = partitioned(other[0])
    call = whole(opened)
    if call is None:
        return []
    params = [str(param) for param in opened["main"].params]
    try:
        given = [shapes[params.index(str(arg))] for arg in call.args]
        check(*partitions(opened), given, types_of(mod["main"].ret_ty))
    except RuntimeError as error:
        return [f"{other[0].script()}\n{shapes} {str(error).strip().splitlines()[-1]}"]
    return []


def value_type(type_, value=None):
    """Return a type as the graph has it, with a symbol for each variable."""
    if isinstance(type_, relax.TupleType):
        return tuple(map(value_type, type_.fields))
    if type_.shape is None:
        raise UnsupportedOp("the shape is not known")
    dims = (
        int(dim) if isinstance(dim, tirx.IntImm) else Dim.symbol(str(dim))
        for dim in type_.shape.values
    )
    return Tensor(tuple(dims), str(type_.dtype), value)


def view_of(call):
    """Return a call as the rules see it; None where it has no counterpart in the table."""
    row = ROWS.get(getattr(call.op, "name", ""))
    if row is None:
        return None
    try:
        read = row(call)
        args = [
            value_type(each.ty, value_of(each) if is_constant(each) else None)
            for each in read.operands
        ]
        result = value_type(call.ty)
    except UnsupportedOp:
        return None
    results = result if isinstance(result, tuple) else (result,)
    attrs = SimpleNamespace(**read.attrs)
    return OpView(read.name, args, results, attrs, None, isinstance(result, tuple))


def views(mod):
    """Return the calls of a function in order, None for what the table does not have."""
    values = [each.value for block in mod["main"].body.blocks for each in block.bindings]
    return [view_of(each) for each in values if isinstance(each, relax.Call)]


def difference(view, static):
    """Return where the graph infers other types than Relax does of the same without open sizes."""
    types = infer(view.name, view.args, view.attrs)
    got = list(types) if isinstance(types, tuple) else [types]
    numbers = {f"n{size}": size for size in range(2000)}
    got = [(each.dtype, [substituted(dim, numbers) for dim in each.dims]) for each in got]
    wanted = [(each.dtype, list(each.shape)) for each in static.results]
    if view is not static:
        # A size may be unknown, but not another one.
        for (_, dims), (_, sizes) in zip(got, wanted):
            dims[:] = [n if dim is None else dim for n, dim in zip(sizes, dims)]
    # Relax has no tuple of one part.
    return None if got == wanted else f"{view.name} {vars(view.attrs)}: {got}, not {wanted}"


def is_plain(view):
    """Whether the open dimensions of the operands are parameters' own."""
    tensors = [each for arg in view.args for each in (arg if isinstance(arg, tuple) else (arg,))]
    dims = [str(dim) for each in tensors for dim in each.dims if isinstance(dim, Dim)]
    return all(dim[1:].isdigit() for dim in dims)


@pytest.mark.parametrize("seeds", SEEDS, ids=["first", "others"])
@pytest.mark.parametrize("name", DRAWS)
def test_what_the_graph_infers(name, seeds):
    problems, accepted, rules = [], 0, Rules(TABLE)
    for seed in seeds:
        static = drawn(name, seed)
        if static is None:
            continue
        mod, shapes = static
        known = views(mod)
        cases = [known]
        sizes = {n for each in shapes for n in each}
        symbols = {size: tirx.Var(f"n{size}", "int64") for size in sizes}
        other = None if name in STATIC else drawn(name, seed, symbols)
        if other is not None:
            cases.append(views(other[0]))
        for case in cases:
            for view, wanted in zip(case, known, strict=True):
                if None in (view, wanted) or not is_plain(view):
                    continue
                if any(rules.reason(each) is not None for each in (view, wanted)):
                    continue
                accepted += 1
                wrong = difference(view, wanted)
                problems += [f"seed {seed}: {wrong}"] if wrong else []
    print(f"{name}: {accepted} accepted")
    assert not problems, f"{len(problems)} of {accepted}:\n" + "\n".join(problems[:5])
