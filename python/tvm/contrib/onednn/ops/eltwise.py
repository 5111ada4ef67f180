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
"""Unary elementwise ops, and PReLU."""

from __future__ import annotations

import math

import numpy as np

from ..ir.numpy_types import Array, along, sigmoid
from ..ir.op_view import OpView, tensor_of
from .attrs import Float, Int
from .draw import Call, Draw, along_axis, unary
from .schema import FUNCTION, OpSchema, always, eltwise, of_values
from .tensors import tensor_reason, tensors_reason, text_of_shape


def eltwise_reason(call: OpView) -> str | None:
    """Accept tensors of rank 1 or more."""
    return tensors_reason(call, min_rank=1)


def clip_reason(call: OpView) -> str | None:
    """Accept tensors and bounds in their order."""
    low, high = call.attrs.a_min, call.attrs.a_max
    if math.isnan(low) or math.isnan(high) or low > high:
        return f"a_min={low:g} is not below a_max={high:g}"
    return eltwise_reason(call)


def leaky_relu_reason(call: OpView) -> str | None:
    """Accept tensors and a finite slope, but zero, with which oneDNN drops NaN and infinities."""
    if not math.isfinite(call.attrs.alpha) or not call.attrs.alpha:
        return f"alpha={call.attrs.alpha:g} is zero or not finite"
    return eltwise_reason(call)


def prelu_reason(call: OpView) -> str | None:
    """Accept tensors with one slope for each element of any axis, or one for all."""
    reason = eltwise_reason(call)
    if reason:
        return reason
    data, slopes, axis = (
        tensor_of(call.args[0]).shape,
        tensor_of(call.args[1]).shape,
        call.attrs.axis,
    )
    if not 0 <= axis < len(data):
        return f"axis={axis} is out of range for data of shape {text_of_shape(data)}"
    # An open size is compared at each call.
    if len(slopes) != 1 or None not in (data[axis], *slopes) and slopes[0] not in (1, data[axis]):
        text = text_of_shape(slopes)
        return f"slopes have shape {text}; one, or {data[axis]} along axis {axis}, are required"
    return None


def virtual_reason(call: OpView) -> str | None:
    """Accept an operand of rank 1 or more, for a virtual op of one operand."""
    return tensor_reason("data", call.args[0], min_rank=1)


def float32_reason(call: OpView) -> str | None:
    """Accept an operand in float32 of rank 1 or more."""
    return tensor_reason("data", call.args[0], min_rank=1, dtypes=("float32",))


def clip_is_not_negative(call: OpView) -> bool:
    """Whether the lower bound of a clip is zero or more."""
    return call.attrs.a_min >= 0.0


def erf(x: Array) -> Array:
    """Return the error function of each element."""
    return np.frompyfunc(math.erf, 1, 1)(x).astype("float64")


def _softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def _leaky_relu(attrs, result_type, x):
    return np.where(x > 0, x, x * attrs.alpha)


def _prelu(attrs, result_type, x, slopes):
    return np.where(x > 0, x, x * along(slopes, attrs.axis, x.ndim))


def _clip(attrs, result_type, x):
    return np.clip(x, attrs.a_min, attrs.a_max)


def _elu(attrs, result_type, x):
    return np.where(x > 0, x, attrs.alpha * np.expm1(x))


def _gelu_erf(x: Array) -> Array:
    return 0.5 * x * (1.0 + erf(x * math.sqrt(0.5)))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _hard_sigmoid(attrs, result_type, x):
    return np.clip(attrs.alpha * x + attrs.beta, 0.0, 1.0)


def _hard_swish(attrs, result_type, x):
    return x * _hard_sigmoid(attrs, result_type, x)


def _linear(attrs, result_type, x):
    return attrs.alpha * x + attrs.beta


def _pow(attrs, result_type, x):
    return attrs.alpha * x**attrs.beta


def _swish(attrs, result_type, x):
    return x * sigmoid(attrs.alpha * x)


def _draw_prelu(d: Draw) -> Call:
    (data, slopes), attrs = along_axis(d)
    size = len(slopes)
    shape = d.choice(((size,), *d.rare((1,), (1, 1), (), (size + 1,))))
    return Call([data, d.values(shape)], attrs)


def _draw_clip(d: Draw) -> Call:
    bounds = [(0.0, 6.0), (0.6, 0.8), (-1.0, 1.0)]
    low, high = d.choice([*bounds, *d.rare((1.0, 1.0), (2.0, -2.0), (float("nan"), 1.0))])
    return Call([d.values(d.any_shape())], {"a_min": low, "a_max": high})


def _draw_leaky_relu(d: Draw) -> Call:
    slopes = (0.1, 0.5, 2.0, *d.rare(1.0, 0.0, -1.0, float("inf"), float("nan")))
    return unary(alpha=slopes)(d)


def _virtual(name: str, **fields) -> OpSchema:
    """Make the row of a function of one operand that Relay writes as several ops."""
    return eltwise(name, virtual_reason, **{"cost_weight": FUNCTION, "relax": "", **fields})


def _own(name: str, reason, **fields) -> OpSchema:
    """Make the row of a function that oneDNN lacks: of 8-bit data it is looked up in a table."""
    return OpSchema(name, reason, fuses=("quantize",), reads_int8="data", **fields)


_RSQRT = of_values(lambda x: 1.0 / np.sqrt(x))

_NUMBERS = (0.5, 1.0, 2.0)
_ALPHA = Float("alpha")
_OF_ALPHA = dict(attrs=(_ALPHA,), draw=unary(alpha=_NUMBERS))
_OF_ALPHA_BETA = dict(attrs=(_ALPHA, Float("beta")), draw=unary(alpha=_NUMBERS, beta=_NUMBERS))

ROWS = [
    eltwise(
        "nn.relu",
        eltwise_reason,
        numpy=of_values(lambda x: np.maximum(x, 0)),
        is_not_negative=always,
    ),
    eltwise(
        "nn.leaky_relu",
        leaky_relu_reason,
        attrs=(_ALPHA,),
        numpy=_leaky_relu,
        draw=_draw_leaky_relu,
        relax="nn.leakyrelu nn.prelu",
    ),
    OpSchema(
        "nn.prelu",
        prelu_reason,
        attrs=(Int("axis", 1),),
        numpy=_prelu,
        draw=_draw_prelu,
        post="prelu",
    ),
    eltwise("abs", eltwise_reason, is_not_negative=always),
    eltwise(
        "clip",
        clip_reason,
        attrs=(Float("a_min"), Float("a_max")),
        numpy=_clip,
        draw=_draw_clip,
        is_not_negative=clip_is_not_negative,
        relax="clip nn.relu6",
    ),
    eltwise("exp", eltwise_reason, cost_weight=FUNCTION, grows=True, is_not_negative=always),
    eltwise("log", eltwise_reason, cost_weight=FUNCTION),
    eltwise("negative", eltwise_reason),
    eltwise("rsqrt", eltwise_reason, numpy=_RSQRT, grows=True),
    eltwise(
        "sigmoid",
        eltwise_reason,
        numpy=of_values(sigmoid),
        cost_weight=FUNCTION,
        is_not_negative=always,
    ),
    eltwise("sqrt", eltwise_reason, is_not_negative=always),
    eltwise("tanh", eltwise_reason, cost_weight=FUNCTION),
    _own("ceil", eltwise_reason),
    _own("cos", eltwise_reason, cost_weight=FUNCTION),
    _own("erf", eltwise_reason, numpy=of_values(erf), cost_weight=FUNCTION),
    _own("floor", eltwise_reason),
    # Zero for NaN, as TVM computes it.
    _own(
        "sign",
        eltwise_reason,
        numpy=of_values(lambda x: np.where(x > 0, 1.0, np.where(x < 0, -1.0, 0.0))),
    ),
    _own("sin", eltwise_reason, cost_weight=FUNCTION),
    _own("trunc", eltwise_reason),
    _virtual("dnnl.elu", **_OF_ALPHA, numpy=_elu),
    _virtual("dnnl.gelu_erf", numpy=of_values(_gelu_erf), relax="nn.gelu"),
    _virtual("dnnl.gelu_tanh", numpy=of_values(_gelu_tanh), relax="nn.gelu_tanh"),
    _virtual("dnnl.hard_sigmoid", **_OF_ALPHA_BETA, numpy=_hard_sigmoid, cost_weight=1),
    _virtual("dnnl.hard_swish", **_OF_ALPHA_BETA, numpy=_hard_swish, cost_weight=1),
    _virtual("dnnl.linear", **_OF_ALPHA_BETA, numpy=_linear, cost_weight=1),
    _virtual("dnnl.mish", numpy=of_values(lambda x: x * np.tanh(_softplus(x)))),
    _virtual("dnnl.pow", **_OF_ALPHA_BETA, numpy=_pow, grows=True, relax="square"),
    # Halves to even, as Relax has it; Relay's rounds them away from zero.
    _own("dnnl.round", virtual_reason, numpy=of_values(np.rint), relax="round"),
    _virtual("dnnl.rsqrt", numpy=_RSQRT, cost_weight=1, grows=True),
    _virtual("dnnl.softplus", numpy=of_values(_softplus), relax="nn.softplus"),
    _virtual("dnnl.swish", **_OF_ALPHA, numpy=_swish, relax="nn.silu"),
]
