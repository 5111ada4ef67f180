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
"""How ops of Relax are read: as ops of the table, with Relay's attributes and order of operands.

One row per op. What a row cannot read stays on TVM, with the row's reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import NamedTuple

from tvm import relax

from . import decompose
from .reading import (
    Constant,
    Unread,
    axes_of,
    dims,
    is_constant,
    is_same,
    number,
    short_name,
    value_of,
)


class ReadOp(NamedTuple):
    """A call of Relax as a call of an op of the table.

    Parameters
    ----------
    name : str
        The op in the table.
    operands : list[relax.Expr]
        Tensors, or tuples of tensors, in Relay's order.
    attrs : dict
        Relay's attributes.
    """

    name: str
    operands: list[relax.Expr]
    attrs: dict

    @property
    def namespace(self) -> SimpleNamespace:
        """The attributes as rules read them."""
        return SimpleNamespace(**self.attrs)


Row = Callable[[relax.Call], ReadOp]


def _numbers(values) -> list:
    """Return numbers that are known."""
    numbers = [number(value) for value in values]
    if None in numbers:
        raise Unread(f"{list(values)} is not known")
    return numbers


def _shape_argument(arg: relax.Expr) -> list:
    """Return the dimensions that are given as an argument."""
    if isinstance(arg, relax.ShapeExpr):
        return list(arg.values)
    raise Unread("the shape is computed at run time")


def _tuple_argument(arg: relax.Expr) -> list:
    """Return the numbers that are given as an argument."""
    if isinstance(arg, relax.Tuple):
        return _numbers(arg.fields)
    return _numbers(_shape_argument(arg))


def _attrs(call: relax.Call, names: Sequence[str]) -> dict:
    def plain(value):
        return value if isinstance(value, (str, type(None))) else _plain(value)

    return {name: plain(getattr(call.attrs, name)) for name in names}


def _plain(value):
    """Return an attribute as Python's own numbers."""
    if isinstance(value, (bool, int, float)):
        return value
    if number(value) is not None:
        return number(value)
    try:
        return _numbers(value)
    except TypeError:
        return str(value)


def _same(name: str, *attrs: str, **fixed) -> Row:
    """Read an op that is Relay's op `name`, with the same attributes, and others that are fixed."""
    return lambda call: ReadOp(name, list(call.args), {**_attrs(call, attrs), **fixed})


def _window(*attrs: str) -> Row:
    """Read an op with layouts, which Relax names twice where Relay need not."""

    def read(call):
        name = short_name(call)
        own = _attrs(call, attrs)
        layout = own.get("data_layout", own.get("layout"))
        if own["out_layout"] == layout:
            own["out_layout"] = ""
        return ReadOp(name, list(call.args), {**own, **_out_dtype(call)})

    return read


def _out_dtype(call: relax.Call) -> dict:
    """Return the type of the sums, where it is not that of the data."""
    dtype = str(call.ty.dtype)
    return {} if dtype == str(call.args[0].ty.dtype) else {"out_dtype": dtype}


_CONV = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")
_POOL = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "layout", "out_layout")


def _matmul(call: relax.Call) -> ReadOp:
    ranks = [len(dims(arg)) for arg in call.args]
    plain = {"transpose_a": False, "transpose_b": False, **_out_dtype(call)}
    if min(ranks) < 2:
        _written_anew(decompose.check_vectors)(call)
    name = "nn.matmul" if ranks[1] == 2 else "nn.batch_matmul"
    return ReadOp(name, list(call.args), plain)


def _only_axis(call: relax.Call) -> int:
    if len(call.attrs.axes) != 1:
        _written_anew(decompose.check_last_axes)(call)
    return int(call.attrs.axes[0])


def _layer_norm(call: relax.Call) -> ReadOp:
    attrs = {"axis": _only_axis(call), "epsilon": float(call.attrs.epsilon)}
    return ReadOp("nn.layer_norm", list(call.args), {**attrs, **_affine(call)})


def _affine(call: relax.Call) -> dict:
    """Read two switches, which TVM's own kernels ignore: what is off must change nothing."""
    switches = {}
    for name, arg, neutral in (("scale", call.args[1], 1), ("center", call.args[2], 0)):
        switches[name] = bool(getattr(call.attrs, name))
        if not switches[name] and not (is_constant(arg) and (value_of(arg) == neutral).all()):
            raise Unread(
                f"{name}=False of values other than {neutral}, which TVM applies all the same"
            )
    return switches


def _rms_norm(call: relax.Call) -> ReadOp:
    axis, rank = _only_axis(call), len(dims(call.args[0]))
    if axis % rank != rank - 1:
        raise Unread(f"axis={axis} is not the last")
    return ReadOp("dnnl.rms_norm", list(call.args), {"epsilon": float(call.attrs.epsilon)})


def _channel_norm(name: str, *names: str) -> Row:
    """Read a normalization over all axes behind that of the channels."""

    def read(call):
        rank, axis = len(dims(call.args[0])), int(call.attrs.channel_axis)
        if sorted(int(a) % rank for a in call.attrs.axes) != [
            a for a in range(1, rank) if a != axis % rank
        ]:
            axes = list(call.attrs.axes)
            raise Unread(f"axes={axes} are not all but those of batch and channels")
        attrs = {"axis": axis, "epsilon": float(call.attrs.epsilon), **_affine(call)}
        return ReadOp(name, list(call.args), {**attrs, **_attrs(call, names)})

    return read


def _batch_norm(call: relax.Call) -> ReadOp:
    """Tell why partitioning has neither folded a batch_norm nor written it as other ops."""
    if call.attrs.training:
        raise Unread("training=True: it normalizes by the mean and variance of its data")
    raise Unread("its statistics are not constant")


def _reshape(call: relax.Call, target: list | None = None) -> ReadOp:
    """Read dimensions that are open as those of the data in the same place, or as what is left."""
    data = call.args[0]
    given = dims(data)
    newshape: list[int] = []
    target = dims(call) if target is None else target
    for i, dim in enumerate(target):
        size = number(dim)
        if size is not None:
            newshape.append(size)
        elif i < len(given) and is_same(dim, given[i]):
            newshape.append(0)
        elif -1 not in newshape:
            newshape.append(-1)
        else:
            raise Unread(f"more than one open dimension of {list(target)} is computed")
    return ReadOp("reshape", [data], {"newshape": newshape, "allowzero": False})


def _transpose(call: relax.Call) -> ReadOp:
    return ReadOp("transpose", [call.args[0]], {"axes": axes_of(call)})


def _concat(call: relax.Call) -> ReadOp:
    if call.attrs.axis is None:
        raise Unread("axis is not given")
    return ReadOp(_CONCATS[call.op.name], [call.args[0]], {"axis": int(call.attrs.axis)})


_CONCATS = {"relax.concat": "concatenate", "relax.stack": "stack"}


def _split(call: relax.Call) -> ReadOp:
    return ReadOp("split", [call.args[0]], _attrs(call, ("indices_or_sections", "axis")))


def _strided_slice(call: relax.Call) -> ReadOp:
    data, axes, begin, end, *strides = call.args
    axes = _tuple_argument(axes)
    strides = _tuple_argument(strides[0]) if strides else [1] * len(axes)
    attrs = {"begin": _tuple_argument(begin), "end": _tuple_argument(end), "strides": strides}
    return ReadOp("strided_slice", [data], {**attrs, "axes": axes, "slice_mode": "end"})


def _pad(call: relax.Call) -> ReadOp:
    """Read the value, which is an attribute here, as the constant that Relay has."""
    data, widths = call.args[0], _plain(call.attrs.pad_width)
    value = relax.const(float(call.attrs.pad_value), data.ty.dtype)
    mode = {"replicate": "edge"}.get(call.attrs.pad_mode, call.attrs.pad_mode)
    attrs = {"pad_width": list(zip(widths[::2], widths[1::2])), "pad_mode": mode}
    return ReadOp("nn.pad", [data, value], attrs)


def _reduction(name: str) -> Row:
    def read(call):
        axis = call.attrs.axis
        attrs = {"axis": None if axis is None else _numbers(axis), "exclude": False}
        return ReadOp(name, [call.args[0]], {**attrs, "keepdims": bool(call.attrs.keepdims)})

    return read


def _mean(call: relax.Call) -> ReadOp:
    """Read a mean of each image as a global pool, as which ONNX writes it: that has 8-bit code."""
    data, axes = call.args[0], call.attrs.axis
    if axes is not None and len(dims(data)) == 4 and bool(call.attrs.keepdims):
        if sorted(axis % 4 for axis in _numbers(axes)) == [2, 3]:
            return ReadOp("nn.global_avg_pool2d", [data], {"layout": "NCHW", "out_layout": ""})
    return _reduction("mean")(call)


def _clip(call: relax.Call) -> ReadOp:
    low, high = (number(arg) for arg in call.args[1:])
    if low is None or high is None:
        raise Unread("the bounds are not known")
    return ReadOp("clip", [call.args[0]], {"a_min": float(low), "a_max": float(high)})


def _softplus(call: relax.Call) -> ReadOp:
    if float(call.attrs.beta) != 1.0 or float(call.attrs.threshold) < 15.0:
        raise Unread(f"beta={call.attrs.beta}, threshold={call.attrs.threshold}")
    return ReadOp("dnnl.softplus", [call.args[0]], {})


def _resize(call: relax.Call) -> ReadOp:
    names = ("layout", "method", "coordinate_transformation_mode", "rounding_method")
    attrs = {"size": _numbers(_shape_argument(call.args[1])), **_attrs(call, names)}
    return ReadOp(short_name(call), [call.args[0]], attrs)


def _cast(call: relax.Call) -> ReadOp:
    return ReadOp("cast", [call.args[0]], {"dtype": str(call.attrs.dtype)})


def _quantization(name: str) -> Row:
    """Read a quantize or a dequantize; Relay has zero points in int32."""

    def read(call):
        data, scale, zero_point = call.args
        dtype = call.ty.dtype
        if str(zero_point.ty.dtype) != "int32":
            if not isinstance(zero_point, Constant):
                raise Unread("the zero point is not known")
            zero_point = relax.const(value_of(zero_point).astype("int32"))
        attrs = {"axis": int(call.attrs.axis), "out_dtype": str(dtype)}
        return ReadOp(name, [data, scale, zero_point], attrs)

    return read


def _written_anew(check: Callable[[relax.Call], None]) -> Row:
    """Read an op that partitioning writes as others, where it passes the check."""

    def read(call):
        check(call)
        raise Unread("partition_for_dnnl writes it as other ops")

    return read


def _unread(reason: str) -> Row:
    def read(call):
        raise Unread(reason)

    return read


def _unary(name: str, **attrs) -> Row:
    return lambda call: ReadOp(name, [call.args[0]], attrs)


ROWS: dict[str, Row] = {
    # Those with a row below are written anew in some cases only.
    **{name: _written_anew(check) for name, (check, _) in decompose.WRITTEN_ANEW.items()},
    **{
        f"relax.nn.conv{n}d{kind}": _window(*_CONV, *more)
        for n in (1, 2, 3)
        for kind, more in (("", ()), ("_transpose", ("output_padding",)))
    },
    **{f"relax.nn.max_pool{n}d": _window(*_POOL) for n in (1, 2, 3)},
    **{f"relax.nn.avg_pool{n}d": _window(*_POOL, "count_include_pad") for n in (1, 2, 3)},
    **{
        f"relax.nn.adaptive_avg_pool{n}d": _window("output_size", "layout", "out_layout")
        for n in (1, 2, 3)
    },
    "relax.matmul": _matmul,
    "relax.nn.batch_norm": _batch_norm,
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.rms_norm": _rms_norm,
    "relax.nn.group_norm": _channel_norm("nn.group_norm", "num_groups"),
    "relax.nn.instance_norm": _channel_norm("nn.instance_norm"),
    "relax.nn.softmax": _same("nn.softmax", "axis"),
    "relax.nn.log_softmax": _same("nn.log_softmax", "axis"),
    "relax.nn.relu": _unary("nn.relu"),
    "relax.nn.relu6": _unary("clip", a_min=0.0, a_max=6.0),
    "relax.nn.leakyrelu": _same("nn.leaky_relu", "alpha"),
    "relax.nn.prelu": _same("nn.prelu", "axis"),
    "relax.nn.gelu": _unary("dnnl.gelu_erf"),
    "relax.nn.gelu_tanh": _unary("dnnl.gelu_tanh"),
    "relax.nn.silu": _unary("dnnl.swish", alpha=1.0),
    "relax.nn.softplus": _softplus,
    "relax.clip": _clip,
    "relax.square": _unary("dnnl.pow", alpha=1.0, beta=2.0),
    **{
        f"relax.{name}": _unary(name)
        for name in ("abs", "exp", "negative", "rsqrt", "sigmoid", "sqrt", "tanh")
    },
    **{
        f"relax.{name}": _same(name)
        for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
    },
    **{
        f"relax.{name}": _same(name)
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    },
    **{f"relax.{name}": _reduction(name) for name in ("max", "min", "prod", "sum")},
    "relax.mean": _mean,
    "relax.concat": _concat,
    "relax.stack": _concat,
    "relax.split": _split,
    "relax.strided_slice": _strided_slice,
    "relax.nn.pad": _pad,
    "relax.permute_dims": _transpose,
    "relax.reshape": _reshape,
    "relax.expand_dims": _reshape,
    "relax.squeeze": _reshape,
    "relax.flatten": _reshape,
    "relax.nn.batch_flatten": _reshape,
    "relax.astype": _cast,
    "relax.quantize": _quantization("qnn.quantize"),
    "relax.dequantize": _quantization("qnn.dequantize"),
    "relax.image.resize2d": _resize,
    "relax.image.resize3d": _resize,
    "relax.nn.attention_var_len": _unread(
        "the lengths of its sequences are known at run time only"
    ),
}
