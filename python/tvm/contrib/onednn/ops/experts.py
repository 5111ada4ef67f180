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
"""Dense layers of mixtures of experts: rows are multiplied by the weights that a mask selects."""

from __future__ import annotations

import numpy as np

from ..ir.numpy_types import wide
from ..ir.op_view import OpView, Tensor, tensor_of
from .draw import SIZES, Call, Draw
from .schema import OpSchema
from .tensors import known_product, open_reason, tensor_reason, text_of_shape


def expert_reason(call: OpView) -> str | None:
    """Accept float32 data whose rows may be open, constant weights, and a mask of bool."""
    reason = None
    for name, arg, dtype in zip(
        ("data", "weight", "mask"), call.args, ("float32",) * 2 + ("bool",)
    ):
        reason = reason or tensor_reason(name, arg, 1, (dtype,))
    if reason:
        return reason
    data, weight, mask = map(tensor_of, call.args)
    shapes = [each.shape for each in (data, weight, mask)]
    if list(map(len, shapes)) != [2, 3, 3] or mask.shape[2] != 1:
        given = ", ".join(map(text_of_shape, shapes))
        expected = "(rows, columns), (experts, units, columns), (rows, experts, 1)"
        return f"shapes {given}; expected: {expected}"
    for name, dim, size, shape in (
        ("data", "columns", data.shape[-1], data.shape),
        ("mask", "experts", mask.shape[1], mask.shape),
    ):
        reason = reason or open_reason(name, dim, size, shape)
    if reason:
        return reason
    if not weight.is_constant:
        return "the weight is not constant"
    experts, _, columns = weight.shape
    if (experts, columns) != (mask.shape[1], data.shape[1]):
        return (
            f"weight has shape {text_of_shape(weight.shape)}, but data of shape "
            f"{text_of_shape(data.shape)} and a mask of shape {text_of_shape(mask.shape)} "
            f"require ({mask.shape[1]}, units, {data.shape[1]})"
        )
    if None not in (data.shape[0], mask.shape[0]) and data.shape[0] != mask.shape[0]:
        return f"data has {data.shape[0]} rows, but the mask has {mask.shape[0]}"
    return None


def expert_flops(call: OpView) -> int:
    """Count two operations for each product of a row and one expert."""
    return 2 * known_product((*tensor_of(call.result).shape, tensor_of(call.args[0]).shape[-1]))


def _expert_type(args, attrs):
    return Tensor((args[0].dims[0], args[1].dims[1]), args[0].dtype)


def _expert_dense(attrs, result_type, data, weight, mask):
    products = wide(data) @ wide(weight).swapaxes(1, 2)
    return np.where(mask.swapaxes(0, 1), products, 0.0).sum(0)


def _draw_expert_dense(d: Draw) -> Call:
    (rows, columns), experts = d.shape(2), d.choice(SIZES)
    mask = d.numbers.uniform(size=(rows, experts, 1)) < d.choice((0.2, 0.5, 1.0))
    weight = d.values([experts, d.choice(SIZES), columns])
    return Call([d.values([rows, columns]), weight, mask], {})


ROWS = [
    OpSchema(
        "dnnl.expert_dense",
        expert_reason,
        infer=_expert_type,
        numpy=_expert_dense,
        draw=_draw_expert_dense,
        heavy=True,
        only_float32=True,
        flops=expert_flops,
        relax="",
    ),
]
