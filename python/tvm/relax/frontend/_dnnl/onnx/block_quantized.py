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
"""Weights of a few bits that have a scale for each block of a row, packed and unpacked."""

from __future__ import annotations

import numpy as np
from tvm import relax, te
from tvm.contrib.onednn.frontend.experts import unpack

from ..backend import named_op_attrs

BLOCK_DENSE = "dnnl.block_quantized_dense"


def is_kept_packed(
    dtype: str, scales: np.ndarray, zero_points: np.ndarray | None, bits: int, block_size: int
) -> bool:
    """Whether oneDNN's runtime multiplies by a weight as it is packed.

    Parameters
    ----------
    dtype : str
        The type of the data.
    scales, zero_points, bits, block_size
        As in `unpack_weight`.
    """
    has_types = dtype == "float32" and scales.dtype == np.float32
    has_zeros = zero_points is None or zero_points.dtype == np.uint8
    return has_types and has_zeros and bits in (4, 8) and block_size % 32 == 0


def block_quantized_dense(
    bb: relax.BlockBuilder,
    data: relax.Expr,
    packed: np.ndarray,
    scales: np.ndarray,
    zero_points: np.ndarray | None,
    bits: int,
    block_size: int,
    rows: int,
    columns: int,
    accuracy_level: int,
) -> relax.Expr:
    """Multiply rows by the transpose of a packed weight, see `unpack_weight`.

    The call is of a function of TIR, which computes it where it stays on TVM, and names the op in
    an attribute for the reader. TVM computes in float32 at any `accuracy_level`; with 4, oneDNN's
    runtime quantizes data to int8 in blocks where the CPU has dot products of 8 bits.
    """
    blocks = -(-columns // block_size)
    operands = [packed.reshape(rows, -1), scales.reshape(rows, blocks)]
    if zero_points is not None:
        operands.append(unpack(zero_points.reshape(rows, -1), bits)[:, :blocks])

    def compute(x, weight, scale, zero=None):
        k = te.reduce_axis((0, columns), name="k")

        def element(*indices):
            n, block = indices[-1], k // block_size
            value = weight[n, k * bits // 8].astype("int32")
            if bits == 4:
                value = (value >> (k % 2 * 4).astype("int32")) & 15
            middle = 2 ** (bits - 1) if zero is None else zero[n, block].astype("int32")
            real = (value - middle).astype("float32") * scale[n, block]
            return te.sum(x[(*indices[:-1], k)] * real, axis=k)

        return te.compute((*x.shape[:-1], rows), element, name="block_quantized_dense")

    attrs = dict(bits=bits, block_size=block_size, accuracy_level=accuracy_level)
    constants = [relax.const(np.ascontiguousarray(operand)) for operand in operands]
    return bb.emit_te(
        compute,
        data,
        *constants,
        primfunc_name_hint="block_quantized_dense",
        primfunc_attrs=named_op_attrs(
            BLOCK_DENSE, {name: int(value) for name, value in attrs.items()}
        ),
    )


def unpack_weight(
    packed: np.ndarray,
    scales: np.ndarray,
    zero_points: np.ndarray | None,
    bits: int,
    block_size: int,
    rows: int,
    columns: int,
) -> np.ndarray:
    """Dequantize the weight of a MatMulNBits.

    Parameters
    ----------
    packed : numpy.ndarray
        The values of uint8, (rows, blocks, block_size * bits / 8), the first one of each byte in
        its lowest bits.
    scales : numpy.ndarray
        One per block, (rows, blocks), or the same in one dimension.
    zero_points : numpy.ndarray | None
        One per block, in uint8 packed as the values, each row padded to bytes, or unpacked in
        floating point. Default: the middle of the range, `2 ** (bits - 1)`.
    bits, block_size : int
        The size of a value, and the number of values along a row that share a scale.
    rows, columns : int
        The shape of the result, N and K of the op.

    Returns
    -------
    weight : numpy.ndarray
        In float32, (rows, columns).
    """
    blocks = -(-columns // block_size)
    values = unpack(packed.reshape(rows, blocks, -1), bits).astype("float32")
    scales = scales.astype("float32").reshape(rows, blocks, 1)
    if zero_points is None:
        zero = np.float32(2 ** (bits - 1))
    elif zero_points.dtype == np.uint8:
        zero = unpack(zero_points.reshape(rows, -1), bits)[:, :blocks, None].astype("float32")
    else:
        zero = zero_points.astype("float32").reshape(rows, blocks, 1)
    return ((values - zero) * scales).reshape(rows, -1)[:, :columns]
