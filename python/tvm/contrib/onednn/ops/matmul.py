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
"""Matrix multiplication."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ir.dim import broadcast
from ..ir.numpy_types import wide
from ..ir.op_view import OpView, Tensor, tensor_of
from .attrs import Bool, DType, attribute
from .draw import Call, Draw
from .schema import RESIDUAL_INT8, out_dtype, root
from .tensors import known_product, last_axis, open_reason, tensors_reason, text_of_shape

_DENSE_ATTRS = (DType("out_dtype"),)

_MATMUL_ATTRS = (Bool("transpose_a", False), Bool("transpose_b", False), *_DENSE_ATTRS)


def _rewritten_reason(attrs) -> str | None:
    """Refuse weights that one of TVM's tuners has put into a layout of its own."""
    if attribute(attrs, "auto_scheduler_rewritten_layout", ""):
        return "TVM's auto scheduler has rewritten the weight's layout"
    if len(attribute(attrs, "meta_schedule_original_shape", None) or ()):
        return "TVM's meta schedule has rewritten the weight's layout"
    return None


def _product_reason(call: OpView, transpose_a: bool, transpose_b: bool) -> str | None:
    """Accept data of rank 2 or more, with rows open, and a matrix that fits to it."""
    reason = _rewritten_reason(call.attrs) or tensors_reason(call, min_rank=2)
    if reason:
        return reason
    data, weight = tensor_of(call.args[0]).shape, tensor_of(call.args[1]).shape
    inner = data[-2] if transpose_a else data[-1]
    reason = open_reason("data", "columns", inner, data)
    for size in weight:
        reason = reason or open_reason("weight", "dimensions", size, weight)
    if reason:
        return reason
    if len(weight) != 2 or weight[1 if transpose_b else 0] != inner:
        wanted = f"(units, {inner})" if transpose_b else f"({inner}, units)"
        return (
            f"weight has shape {text_of_shape(weight)}, "
            f"but data of shape {text_of_shape(data)} requires {wanted}"
        )
    return None


def dense_reason(call: OpView) -> str | None:
    """Accept data of rank 2 or more and a 2-D weight."""
    return _product_reason(call, False, True)


def matmul_reason(call: OpView) -> str | None:
    """Accept data of rank 2 or more and a 2-D weight, either transposed or not."""
    return _product_reason(call, call.attrs.transpose_a, call.attrs.transpose_b)


def batch_matmul_reason(call: OpView) -> str | None:
    """Accept matrices and batches of them, which broadcast as numpy's do; all may be open."""
    return _rewritten_reason(call.attrs) or tensors_reason(call, min_rank=2)


def matmul_flops(call: OpView) -> int:
    """Count two operations for each element of the row that an element of the result needs."""
    is_transposed = call.name != "nn.dense" and call.attrs.transpose_a
    inner = tensor_of(call.args[0]).shape[-2 if is_transposed else -1]
    return 2 * known_product((*tensor_of(call.result).shape, inner))


def scaled_matmul_weight(call: OpView, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Multiply the output channels of a matrix by factors."""
    is_transposed = call.name == "nn.dense" or call.attrs.transpose_b
    return weight * (scale[:, None] if is_transposed else scale)


def matmul_weight_axis(call: OpView) -> int:
    """Return the axis of a matrix that has an item for each column of the result."""
    is_transposed = call.name == "nn.dense" or call.attrs.transpose_b
    return len(tensor_of(call.args[1]).shape) - (2 if is_transposed else 1)


def _dense_type(args, attrs):
    return Tensor((*args[0].dims[:-1], args[1].dims[0]), out_dtype(attrs, args[0]))


def _matmul_type(args, attrs):
    left, right = args
    rows = left.dims[-1 if attrs.transpose_a else -2]
    columns = right.dims[-2 if attrs.transpose_b else -1]
    batch = broadcast(left.dims[:-2], right.dims[:-2])
    return Tensor((*batch, rows, columns), out_dtype(attrs, left))


def _dense(attrs, result_type, data, weight):
    return wide(data) @ wide(weight).T


def _matmul(attrs, result_type, data, weight):
    data, weight = wide(data), wide(weight)
    data = np.swapaxes(data, -1, -2) if attrs.transpose_a else data
    return data @ (np.swapaxes(weight, -1, -2) if attrs.transpose_b else weight)


# The fields of the rows; a reshape must keep the columns, or the matrices.
def _draw_dense(d: Draw) -> Call:
    shape = d.shape(2, 3, *d.rare(1, 5))
    return Call(
        [d.values(shape), d.values([d.features(), shape[-1]])],
        {"out_dtype": d.choice(("", "float32"))},
    )


def _draw_matmul(is_batch: bool) -> Callable[[Draw], Call]:
    def draw(d):
        left = d.shape(2, 3, 3, 4)
        right = [d.choice((n, 1)) for n in left[:-2]] if is_batch else []
        flags = {name: bool(d.integer(0, 1)) for name in ("transpose_a", "transpose_b")}
        inner, columns = left[-2 if flags["transpose_a"] else -1], d.features()
        right += [columns, inner] if flags["transpose_b"] else [inner, columns]
        return Call([d.values(left), d.values(right)], {**flags, "out_dtype": ""})

    return draw


_FIELDS = dict(
    channel_axis=last_axis,
    weight_axis=matmul_weight_axis,
    reads_int8="weight",
    flops=matmul_flops,
)

_OF_A_MATRIX = dict(_FIELDS, kept_dims=1, scaled_weight=scaled_matmul_weight)
_MATMUL = dict(attrs=_MATMUL_ATTRS, infer=_matmul_type, numpy=_matmul, relax="matmul")

ROWS = [
    root(
        "nn.dense",
        **_OF_A_MATRIX,
        reason=dense_reason,
        attrs=_DENSE_ATTRS,
        infer=_dense_type,
        numpy=_dense,
        draw=_draw_dense,
        relax="matmul",
        patterns="bias_relu bias relu",
        patterns_int8=RESIDUAL_INT8,
    ),
    root("nn.matmul", **_OF_A_MATRIX, **_MATMUL, reason=matmul_reason, draw=_draw_matmul(False)),
    root(
        "nn.batch_matmul",
        **_FIELDS,
        **_MATMUL,
        reason=batch_matmul_reason,
        draw=_draw_matmul(True),
        kept_dims=2,
    ),
]
