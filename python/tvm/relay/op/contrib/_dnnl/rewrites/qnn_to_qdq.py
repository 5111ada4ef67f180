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
"""Writes TVM's QNN dialect, and integers spelled out, as float ops between dequantize and quantize.

A QNN op computes what the float op would of the real numbers that its integers stand for; an
integer q stands for scale * (q - zero_point). So there is one form for what quantizers and
importers write in many, and what is fused is decided as for floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import tvm
from tvm import relay
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.rules.quantize import DEQUANTIZE, parameters, real_bounds
from tvm.contrib.onednn.policy.table import TABLE
from tvm.contrib.onednn.policy.tensors import EIGHT_BITS, ints
from tvm.relay.qnn.op import dequantize, quantize

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from ..ir.relay_view import op_name, shape_of
from .driver import Match, rewrite
from .qnn_sums import ACCUMULATING, Real, read_sum, values_of


def qnn_to_qdq(function: TypedFunction, rules: Rules) -> Rewritten:
    """Replace QNN ops by float ops, where oneDNN runs these."""
    return rewrite(function, rules, partial(_find, _READERS))


def arithmetic_to_qdq(function: TypedFunction, rules: Rules) -> Rewritten:
    """Replace what importers write for a dequantize, before constants are folded into floats."""
    return rewrite(function, rules, partial(_find, {"subtract": _Reader.difference}))


def _find(
    readers: dict[str, Callable[[_Reader, int], Real | None]],
    graph: DataflowGraph,
    rules: Rules,
    calls_of: Callable,
) -> Iterator[Match]:
    for i in calls_of(*readers):
        real = readers[graph.ops[i]](_Reader(graph), i)
        if real is None:
            continue
        # Constants stay inside; the graph has no other way to them than through their users.
        varying = [k for k in real.operands if not isinstance(graph.nodes[k], relay.Constant)]

        def build(*args, real=real, varying=varying):
            known = dict(zip(varying, args))
            return real.build(*(known.get(k, graph.nodes[k]) for k in real.operands))

        yield Match(graph.closed_group(i, varying), varying, build)


class _Reader:
    """Reads integer arithmetic of a graph as arithmetic of real numbers.

    Parameters
    ----------
    graph : DataflowGraph
        The typed function.
    """

    def __init__(self, graph: DataflowGraph):
        self.graph = graph

    def _values(self, i: int) -> np.ndarray | None:
        """Return the values of a constant in double precision."""
        return values_of(self.graph, i)

    def _dtype(self, i: int) -> str:
        return self.graph.nodes[i].checked_type.dtype

    def _bytes(self, cast: int) -> int | None:
        """Return the 8-bit tensor that an op casts."""
        if self.graph.ops[cast] != "cast":
            return None
        data = self.graph.operands[cast][0]
        return data if self._dtype(data) in EIGHT_BITS else None

    def _bytes_read(self, dequantize_: int) -> int | None:
        """Return the 8-bit tensor that a dequantize reads."""
        data = self.graph.operands[dequantize_][0]
        return data if self._dtype(data) in EIGHT_BITS else None

    def requantized(self, i: int) -> Real | None:
        """Read qnn.requantize, of a sum in int32 or of any other integers."""
        dtype = self._dtype(i)
        return self._requantized(i, dtype) if dtype in EIGHT_BITS else None

    def _requantized(self, i: int, dtype: str, bounds: tuple[float, float] | None = None) -> Real:
        data, scale, zero, out_scale, out_zero = self.graph.operands[i]
        axis = int(self.graph.nodes[i].attrs.axis)
        real = self._dequantized(data, scale, zero, axis)

        def build(*args):
            *operands, new_scale, new_zero = args
            result = real.build(*operands)
            if bounds:
                result = relay.clip(result, *bounds)
            return quantize(result, new_scale, new_zero, axis, out_dtype=dtype)

        return Real([*real.operands, out_scale, out_zero], build)

    def _clipped(self, clip: int, dtype: str) -> Real | None:
        """Read a clip of qnn.requantize in int32, as PyTorch's importer writes one to 8 bits."""
        if self.graph.ops[clip] != "clip":
            return None
        attrs, (i,) = self.graph.nodes[clip].attrs, self.graph.operands[clip]
        if self.graph.ops[i] != "qnn.requantize":
            return None
        low, high, limits = float(attrs.a_min), float(attrs.a_max), np.iinfo(dtype)
        # A cast wraps around what does not fit into the type. Fractions of the bounds are cut off.
        if not limits.min - 1 < low <= high < limits.max + 1:
            return None
        if (math.trunc(low), math.trunc(high)) == (limits.min, limits.max):
            return self._requantized(i, dtype)
        known = parameters(*self.graph.views[i].args[3:])
        return known and self._requantized(i, dtype, real_bounds(low, high, known, dtype))

    def _dequantized(self, data: int, scale: int, zero: int, axis: int) -> Real:
        """Read scale * (data - zero)."""
        real = self._dequantized_sum(data, scale, zero, axis)
        real = real or self._dequantized_mean(data, scale, zero)
        return real or Real([data, scale, zero], lambda x, s, z: dequantize(x, s, z, axis))

    def _dequantized_sum(self, data: int, scale: int, zero: int, axis: int) -> Real | None:
        scale_values, zero_values = self._values(scale), self._values(zero)
        if scale_values is None or zero_values is None or zero_values.any():
            return None
        return read_sum(self.graph, data, scale_values, axis)

    def _dequantized_mean(self, i: int, scale: int, zero: int) -> Real | None:
        """Read a mean or an average of a tensor that was cast from 8 bits to int32."""
        scale_values = self._values(scale)
        if scale_values is None or scale_values.size != 1 or self._values(zero) is None:
            return None
        if self.graph.ops[i] != "mean" and self.graph.ops[i] not in _POOLS:
            return None
        if not self._pads_with_zero(i, zero):
            return None
        data, call = self._bytes(self.graph.operands[i][0]), self.graph.nodes[i]
        if data is None:
            return None

        def build(x, s, z):
            return relay.Call(call.op, [dequantize(x, s, z)], call.attrs)

        return Real([data, scale, zero], build)

    def _pads_with_zero(self, pool: int, zero: int) -> bool:
        """Whether the padding that an average of integers counts stands for zero.

        It is the integer 0, whatever the zero point.
        """
        attrs = self.graph.nodes[pool].attrs
        if not getattr(attrs, "count_include_pad", False) or not any(ints(attrs.padding) or (1,)):
            return True
        values = self._values(zero)
        return values is not None and not values.any()

    def dequantized(self, i: int) -> Real | None:
        """Read qnn.dequantize of a sum in int32."""
        axis = int(self.graph.nodes[i].attrs.axis)
        return self._dequantized_sum(*self.graph.operands[i], axis)

    def cast(self, i: int) -> Real | None:
        """Read a cast of a sum in int32 to float32, or of what is rounded in int32 to 8 bits."""
        data, dtype = self.graph.operands[i][0], self._dtype(i)
        if dtype == "float32":
            return read_sum(self.graph, data, np.ones(()))
        if dtype not in EIGHT_BITS:
            return None
        return self._clipped(data, dtype) or self._average(data, dtype)

    def _average(self, i: int, dtype: str) -> Real | None:
        """Read an average in int32 of what was 8 bits, and becomes so again."""
        if self.graph.ops[i] not in _POOLS:
            return None
        source, pool = self._bytes(self.graph.operands[i][0]), self.graph.nodes[i]
        if source is None or self._dtype(source) != dtype:
            return None
        one, zero = relay.const(1.0), relay.const(0)

        def build(x):
            real = relay.Call(pool.op, [dequantize(x, one, zero)], pool.attrs)
            return quantize(real, one, zero, out_dtype=dtype)

        return Real([source], build)

    def difference(self, i: int) -> Real | None:
        """Read the cast of an 8-bit tensor to float32, less the cast of its zero points.

        These are one number, or one for each item of the last axis.
        """
        cast, zero = self.graph.operands[i]
        data = self._bytes(cast)
        if data is None or self._dtype(i) != "float32":
            return None
        shape, one = shape_of(self.graph.nodes[zero]), relay.const(1.0)
        is_one = math.prod(shape) == 1
        if not is_one and shape != shape_of(self.graph.nodes[data])[-1:]:
            return None
        values = self._values(zero)
        if values is not None:
            if (values != np.round(values)).any() or (np.abs(values) > 255).any():
                return None
            values = values.reshape(() if is_one else -1).astype("int32")
            return Real([data], lambda x: dequantize(x, one, relay.const(values), -1))
        zero = self._bytes(zero)
        if zero is None or shape:
            return None
        return Real([data, zero], lambda x, z: dequantize(x, one, relay.cast(z, "int32")))

    def integer_weight(self, i: int) -> Real | None:
        """Read a constant of integers by which an 8-bit tensor is multiplied.

        Importers that fold constants leave that of ONNX's ConvInteger and MatMulInteger.
        """
        call, (data, weight) = self.graph.nodes[i], self.graph.operands[i]
        values = self._values(weight)
        if values is None or not values.size or self.graph.ops[data] != DEQUANTIZE:
            return None
        if self._dtype(weight) != "float32" or self._bytes_read(data) is None:
            return None
        low, high = values.min(), values.max()
        if not high - low <= 255 or (values != np.round(values)).any():
            return None
        # For weights that are not around zero oneDNN needs a zero point, which matmul has.
        shift = 0 if low >= -128 and high <= 127 else int(low)
        integers = relay.const((values - shift).astype("uint8" if shift else "int8"))

        def build(x):
            w = dequantize(integers, relay.const(1.0), relay.const(-shift))
            return relay.Call(call.op, [x, w], call.attrs)

        return Real([data], build)

    def binary(self, i: int) -> Real | None:
        """Read qnn.add, qnn.subtract or qnn.mul."""
        call, dtype = self.graph.nodes[i], self._dtype(i)
        if dtype not in EIGHT_BITS:
            return None
        axes = [int(getattr(call.attrs, name, -1)) for name in ("lhs_axis", "rhs_axis")]

        def build(lhs, rhs, ls, lz, rs, rz, out_scale, out_zero):
            float_op = getattr(relay, _BINARY[op_name(call)])
            real = float_op(dequantize(lhs, ls, lz, axes[0]), dequantize(rhs, rs, rz, axes[1]))
            return quantize(real, out_scale, out_zero, out_dtype=dtype)

        return Real(self.graph.operands[i], build)

    def unary(self, i: int) -> Real | None:
        """Read a QNN op of one operand."""
        call, dtype = self.graph.nodes[i], self._dtype(i)
        if dtype not in EIGHT_BITS or len(call.args) != 5:
            return None
        # TVM brings integers to the scale and zero point of the result, and averages these.
        if not self._pads_with_zero(i, self.graph.operands[i][4]):
            return None

        def build(x, scale, zero, out_scale, out_zero):
            real = _UNARY[op_name(call)](dequantize(x, scale, zero), call.attrs)
            return quantize(real, out_scale, out_zero, out_dtype=dtype)

        return Real(self.graph.operands[i], build)

    def concatenated(self, i: int) -> Real | None:
        """Read qnn.concatenate of tensors that are given one by one."""
        call, dtype = self.graph.nodes[i], self._dtype(i)
        parts, scales, zeros = call.args[:3]
        if dtype not in EIGHT_BITS or not all(
            isinstance(each, relay.Tuple) for each in (parts, scales, zeros)
        ):
            return None
        *tuples, out_scale, out_zero = self.graph.operands[i]
        operands = [k for each in tuples for k in self.graph.operands[each]]
        count = len(parts.fields)

        def build(*args):
            *params, scale, zero = args
            real = [dequantize(*params[k : k + 2 * count + 1 : count]) for k in range(count)]
            return quantize(
                relay.concatenate(real, int(call.attrs.axis)), scale, zero, out_dtype=dtype
            )

        return Real([*operands, out_scale, out_zero], build)


_POOLS = [name for name, row in TABLE.items() if row.padding == "average"]

# The float ops of others, by their names in `relay`, which is not complete yet here.
_BINARY = {"qnn.add": "add", "qnn.subtract": "subtract", "qnn.mul": "multiply"}


def _hard_swish(x: relay.Expr, _: tvm.ir.Attrs | None) -> relay.Expr:
    """Write what a rewrite makes one op of."""
    return x * relay.clip(x + relay.const(3.0), 0.0, 6.0) / relay.const(6.0)


def _called(name: str, x: relay.Expr, attrs: tvm.ir.Attrs | None) -> relay.Call:
    return relay.Call(relay.op.get(name), [x], attrs)


# How to write one of real numbers, from its operand and the attributes, which are the same.
_UNARY: dict[str, Callable[[relay.Expr, tvm.ir.Attrs | None], relay.Expr]] = {
    f"qnn.{name.removeprefix('nn.')}": partial(_called, name)
    for name, row in TABLE.items()
    if row.post == "eltwise" or name in ("nn.avg_pool2d", "nn.softmax")
}
_UNARY["qnn.hardswish"] = _hard_swish

# How to read an op as real numbers.
_READERS: dict[str, Callable[[_Reader, int], Real | None]] = {
    "qnn.requantize": _Reader.requantized,
    "qnn.dequantize": _Reader.dequantized,
    "qnn.concatenate": _Reader.concatenated,
    "cast": _Reader.cast,
    **dict.fromkeys((row.name for row in ACCUMULATING.values()), _Reader.integer_weight),
    **dict.fromkeys(_BINARY, _Reader.binary),
    **dict.fromkeys(_UNARY, _Reader.unary),
}
