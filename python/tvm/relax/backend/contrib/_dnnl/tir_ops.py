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
"""Ops that importers write as functions of TIR."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from types import SimpleNamespace

import tvm
import tvm_ffi
from tvm import ir, relax, tirx, topi
from tvm.contrib.onednn.ir.op_view import OpView, Tensor
from tvm.contrib.onednn.ops.table import TABLE

from .read_op import ReadOp, factor
from .reading import Analyzer, TensorLoad, UnsupportedOp, buffer_of, buffers_of, dims, number
from .reading import sizes as sizes_of

# The attribute of a function of TIR that computes an op of the table which Relax does not have:
# JSON of its name and attributes.
OP_ATTR = "dnnl.op"

# TIR's names of operations on an element and a number.
_ELEMENTWISE = {tirx.Max: "maximum", tirx.Min: "minimum"}

# The methods and modes of a resize that oneDNN may have, and how coordinates are rounded.
_MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_half_pixel_for_nn")
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "round")
_RESIZES = [
    *(("nearest_neighbor", mode, rounding) for mode in _MODES for rounding in _ROUNDINGS),
    *(("linear", mode, "round_prefer_floor") for mode in _MODES),
]

# Relay's names of modes.
_MODE_NAMES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}

# How ONNX's importer writes a pad, by Relax's mode.
_PADS: dict[str, Callable] = {
    "constant": topi.nn.pad,
    "reflect": lambda data, before, after, _: topi.nn.mirror_pad(data, before, after, "REFLECT"),
    "replicate": lambda data, before, after, _: topi.nn.replicate_pad(data, before, after),
}


def read_tir(mod: tvm.IRModule, call: relax.Call, excluded: Collection[str]) -> ReadOp:
    """Read a call of a function of TIR that is a pad, a resize or a bound, or that names its op.

    ONNX's Pad and Clip come as such, and its Resize of rows. Ours name their op: recurrent layers
    and MatMulNBits.

    Parameters
    ----------
    mod : tvm.IRModule
        The module with the function.
    call : relax.Call
        The call.
    excluded : Collection[str]
        Ops of Relax, without "relax.", that are not read.
    """
    func = mod[call.args[0]] if isinstance(call.args[0], ir.GlobalVar) else None
    if isinstance(func, tirx.PrimFunc) and isinstance(call.args[1], relax.Tuple):
        if func.attrs and OP_ATTR in func.attrs:
            return _named_op(func, call)
        for read, name in ((pad_of, "nn.pad"), (resize_of, "image.resize2d"), (bound_of, None)):
            op = None if name in excluded else read(func, call)
            if op is not None:
                return op
    raise UnsupportedOp("no rule for this op")


def named_op_attrs(name: str, attrs: dict) -> dict[str, str]:
    """Return the attributes of a function of TIR that computes an op of the table."""
    return {OP_ATTR: json.dumps({"name": name, "attrs": attrs})}


def _named_op(func: tirx.PrimFunc, call: relax.Call) -> ReadOp:
    """Return a call of a function of TIR that names the op of the table that it computes."""
    op = json.loads(str(func.attrs[OP_ATTR]))
    tensors = [each for each in call.args[1].fields if isinstance(each.ty, relax.TensorType)]
    return ReadOp(op["name"], tensors, op["attrs"])


def bound_of(func: tirx.PrimFunc, call: relax.Call) -> ReadOp | None:
    """Return a call of a function of TIR as a maximum or minimum of elements and one number."""
    node = _store(func)
    if node is None or type(node.value) not in _ELEMENTWISE or len(buffers_of(func)) != 3:
        return None
    value, to = node.value, list(node.indices)
    if not all(isinstance(side, TensorLoad) for side in (value.a, value.b)):
        return None
    buffers = [buffer_of(value.a), buffer_of(value.b), node.buffer]
    if len(value.b.indices) or not all(a.same_as(b) for a, b in zip(buffers, buffers_of(func))):
        return None
    same = len(to) == len(value.a.indices) and all(
        isinstance(i, tirx.Var) and i.same_as(j) for i, j in zip(to, value.a.indices)
    )
    # The function is given open sizes, too.
    tensors = [each for each in call.args[1].fields if isinstance(each.ty, relax.TensorType)]
    return ReadOp(_ELEMENTWISE[type(value)], tensors, {}) if same else None


def pad_of(func: tirx.PrimFunc, call: relax.Call) -> ReadOp | None:
    """Return a call of a function of TIR as a pad, if it is what TVM writes for one.

    Parameters
    ----------
    func : tirx.PrimFunc
        The function.
    call : relax.Call
        Calls it with a tuple of tensors.
    """
    node = _store(func)
    if node is None or len(call.args[1].fields) != 1:
        return None
    (data,), load, value, modes = call.args[1].fields, node.value, 0.0, ("reflect", "replicate")
    if len(getattr(load, "args", ())) == 3:  # the condition of what is inside, and both values
        (_, load, other), modes = load.args, ("constant",)
        value = number(other)
    if not isinstance(load, TensorLoad) or value is None:
        return None
    try:
        sizes = list(zip(dims(data), dims(call)))
    except UnsupportedOp:
        return None
    analyzer = Analyzer()
    more = [number(analyzer.simplify(after - before)) for before, after in sizes]
    if None in more or not len(more) == len(load.indices) == len(node.indices):
        return None
    for mode in modes:
        # Where the first element of the data is; of its copies at the edge the last.
        pick = max if mode == "replicate" else min
        places = [_zeros(*each) for each in zip(load.indices, node.indices, more)]
        if not all(places):
            continue
        before = [pick(each) for each in places]
        after = [total - width for total, width in zip(more, before)]
        # This reading is a guess, until TVM writes the same for it.
        if tvm_ffi.structural_equal(func, _written(_PADS[mode], data, before, after, value)):
            attrs = {"pad_width": list(zip(before, after)), "pad_mode": _MODE_NAMES[mode]}
            return ReadOp("nn.pad", [data, relax.const(float(value), data.ty.dtype)], attrs)
    return None


def resize_of(func: tirx.PrimFunc, call: relax.Call) -> ReadOp | None:
    """Return a call of a function of TIR as a resize of rows, if oneDNN does the same.

    Parameters
    ----------
    func : tirx.PrimFunc
        The function.
    call : relax.Call
        Calls it with a tuple of tensors.
    """
    node = _store(func)
    # The name of a buffer is no more than a hint.
    if node is None or not node.buffer.name.startswith("resize") or len(call.args[1].fields) != 1:
        return None
    (data,) = call.args[1].fields
    shapes = [sizes_of(each.ty) for each in (data, call)]
    if any(shape is None or len(shape) != 3 for shape in shapes):
        return None
    values = [Tensor(shape, str(data.ty.dtype)) for shape in shapes]
    out = number(dims(call)[2])
    try:
        sizes = {"size": [out]} if out else {"scale_w": factor(dims(data)[2], dims(call)[2])}
    except UnsupportedOp:
        return None
    for method, mode, rounding in _RESIZES:
        attrs = dict(method=method, coordinate_transformation_mode=mode, rounding_method=rounding)
        attrs.update(layout="NCW", **sizes)
        view = OpView("image.resize1d", values[:1], values[1:], SimpleNamespace(**attrs))
        if TABLE[view.name].reason(view) is None:
            args = [0.0, 0.0], dims(call)[2:], "NCW", method, mode, rounding
            if tvm_ffi.structural_equal(func, _written(topi.image.resize1d, data, *args)):
                return ReadOp(view.name, [data], attrs)
    return None


def _zeros(index, var, largest: int) -> list[int]:
    """Return the values of a variable, from 0 on, for which an index is 0."""

    def at(value):
        analyzer = Analyzer()
        analyzer.bind(var, tirx.IntImm("int64", value))
        return number(analyzer.simplify(index))

    return [value for value in range(largest + 1) if at(value) == 0]


def _written(write: Callable, data: relax.Expr, *args) -> tirx.PrimFunc:
    """Return the function of TIR for an op of data."""
    builder, param = relax.BlockBuilder(), relax.Var("data", data.ty)
    with builder.function("main", [param]):
        builder.emit_func_output(builder.emit_te(write, param, *args))
    return next(f for f in builder.get().functions.values() if isinstance(f, tirx.PrimFunc))


def _store(func: tirx.PrimFunc) -> tirx.BufferStore | None:
    """Return the only store of a function, around which are nothing but loops and blocks."""
    node = func.body
    while not isinstance(node, tirx.BufferStore):
        inner = getattr(node, "block", None) or getattr(node, "body", None)
        if inner is None or isinstance(node, tirx.AttrStmt):
            return None
        node = inner
    return node
