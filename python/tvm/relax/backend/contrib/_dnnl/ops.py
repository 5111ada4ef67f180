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

import numpy as np
from tvm import relax
from tvm.contrib.onednn.ops.table import BINARY, COMPARISONS, PLAIN, TABLE

from . import norm_ops, view_ops
from .read_op import (
    Composed,
    ReadOp,
    Row,
    attrs_of,
    composed,
    factor,
    numbers,
    same,
    shape_argument,
    unary,
    unsupported,
)
from .reading import Constant, UnsupportedOp, dims, number, short_name, value_of


def _window(*attrs: str) -> Row:
    """Read an op with layouts, which Relax names twice where Relay need not."""

    def read(call):
        name = short_name(call)
        own = attrs_of(call, attrs)
        layout = own.get("data_layout", own.get("layout"))
        if own["out_layout"] == layout:
            own["out_layout"] = ""
        return ReadOp(name, list(call.args), {**own, **_out_dtype(call)})

    return read


def _out_dtype(call: relax.Call) -> dict:
    """Return the type of the sums, where it is not that of the data."""
    dtype = str(call.ty.dtype)
    return {} if dtype == str(call.args[0].ty.dtype) else {"out_dtype": dtype}


# Written as comparisons and selections.
LOGICAL = "isnan isinf isfinite logical_not logical_and logical_or logical_xor".split()

_CONV = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")
_POOL = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "layout", "out_layout")


def _matmul(call: relax.Call) -> ReadOp:
    """Read a matmul by one matrix; by several, or one of open size, as that of batches."""
    data, weight = map(dims, call.args)
    plain = {"transpose_a": False, "transpose_b": False, **_out_dtype(call)}
    if min(len(data), len(weight)) < 2:
        raise Composed(**plain)
    is_one = len(weight) == 2 and None not in map(number, (data[-1], *weight))
    return ReadOp("nn.matmul" if is_one else "nn.batch_matmul", list(call.args), plain)


def _reduction(name: str) -> Row:
    def read(call):
        axis = None if call.attrs.axis is None else numbers(call.attrs.axis)
        if axis == []:
            raise UnsupportedOp("axis=[] reduces no axis")
        attrs = {"axis": axis, "exclude": False, "keepdims": bool(call.attrs.keepdims)}
        return ReadOp(name, [call.args[0]], attrs)

    return read


def _clip(call: relax.Call) -> ReadOp:
    low, high = (number(arg) for arg in call.args[1:])
    if low is None or high is None:
        raise UnsupportedOp("the bounds are not constant")
    return ReadOp("clip", [call.args[0]], {"a_min": float(low), "a_max": float(high)})


def _softplus(call: relax.Call) -> ReadOp:
    if float(call.attrs.beta) != 1.0 or float(call.attrs.threshold) < 15.0:
        raise UnsupportedOp(f"beta={call.attrs.beta}, threshold={call.attrs.threshold}")
    return ReadOp("dnnl.softplus", [call.args[0]], {})


def _prelu(call: relax.Call) -> ReadOp:
    """Read the axis from the front, as Relay counts it."""
    return ReadOp("nn.prelu", list(call.args), {"axis": int(call.attrs.axis) % len(dims(call))})


def _resize(call: relax.Call) -> ReadOp:
    """Read the size, or where that is open by what factors it is that of the data."""
    names = ("layout", "method", "coordinate_transformation_mode", "rounding_method")
    attrs = attrs_of(call, (*names, "cubic_alpha", "cubic_exclude"))
    size = shape_argument(call.args[1])
    if None not in map(number, size):
        return ReadOp(short_name(call), [call.args[0]], {"size": numbers(size), **attrs})
    given = dims(call.args[0])
    for letter, after in zip("DHW"[-len(size) :], size):
        before = given[attrs["layout"].find(letter)]
        attrs[f"scale_{letter.lower()}"] = factor(before, after)
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
                raise UnsupportedOp("the zero point is not constant")
            zero_point = relax.const(_integers(value_of(zero_point)))
        attrs = {"axis": int(call.attrs.axis), "out_dtype": str(dtype)}
        return ReadOp(name, [data, scale, zero_point], attrs)

    return read


def _integers(zero_points: np.ndarray) -> np.ndarray:
    """Return zero points, which Relax may have in float16, in int32."""
    with np.errstate(invalid="ignore"):
        integers = zero_points.astype("int32")
    if (integers != zero_points).any():
        raise UnsupportedOp("the zero point is not an integer")
    return integers


ROWS: dict[str, Row] = {
    **{f"relax.{name}": unary(name) for name in PLAIN if name in TABLE[name].relax_ops},
    **{f"relax.{name}": same(name) for name in (*BINARY, *COMPARISONS)},
    "relax.nn.attention": composed("scale", "causal_mask", "window_size"),
    "relax.nn.attention_bias": composed("scale", "causal_mask", "window_size"),
    "relax.take": composed("axis", "mode"),
    "relax.repeat": composed("repeats", "axis"),
    "relax.tile": composed("repeats"),
    "relax.flip": composed("axis"),
    "relax.gather_elements": composed("axis"),
    **{f"relax.{name}": composed() for name in LOGICAL},
    "relax.round": unary("dnnl.round"),
    "relax.where": same("where"),
    "relax.nn.selu": composed(),
    "relax.variance": composed("axis", "keepdims"),
    "relax.std": composed("axis", "keepdims"),
    "relax.nn.pixel_shuffle": composed("upscale_factor"),
    **norm_ops.ROWS,
    **view_ops.ROWS,
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
    "relax.nn.relu6": unary("clip", a_min=0.0, a_max=6.0),
    "relax.nn.leakyrelu": same("nn.leaky_relu", "alpha"),
    "relax.nn.prelu": _prelu,
    "relax.nn.gelu": unary("dnnl.gelu_erf"),
    "relax.nn.gelu_tanh": unary("dnnl.gelu_tanh"),
    "relax.nn.silu": unary("dnnl.swish", alpha=1.0),
    "relax.nn.softplus": _softplus,
    "relax.clip": _clip,
    "relax.square": unary("dnnl.pow", alpha=1.0, beta=2.0),
    **{f"relax.{name}": _reduction(name) for name in ("max", "mean", "min", "prod", "sum")},
    "relax.astype": _cast,
    "relax.quantize": _quantization("qnn.quantize"),
    "relax.dequantize": _quantization("qnn.dequantize"),
    "relax.image.grid_sample": same(
        "image.grid_sample", "method", "layout", "padding_mode", "align_corners"
    ),
    "relax.image.resize2d": _resize,
    "relax.image.resize3d": _resize,
    "relax.nn.attention_var_len": unsupported(
        "the lengths of its sequences are known at run time only"
    ),
}
