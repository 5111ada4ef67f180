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
from typing import NamedTuple

import numpy as np
import tvm
from tvm import relay
from tvm.relay.qnn.op import dequantize, quantize

from ..ir.constants import to_double
from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction, with_attrs
from ..ir.relay_view import op_name, shape_of
from ..policy.op_spec import Rules
from ..policy.op_view import OpView
from ..policy.rules.quantize import DEQUANTIZE, EIGHT_BITS, along
from ..policy.table import TABLE
from .driver import Match, rewrite


def qnn_to_qdq(function: TypedFunction, rules: Rules) -> Rewritten:
    """Replace QNN ops by float ops, where oneDNN runs these."""
    return rewrite(function, rules, partial(_find, _READERS))


def arithmetic_to_qdq(function: TypedFunction, rules: Rules) -> Rewritten:
    """Replace what importers write for a dequantize, before constants are folded into floats."""
    return rewrite(function, rules, partial(_find, {"subtract": _Reader.difference}))


class _Real(NamedTuple):
    """What stands for real numbers in the place of a QNN op, or of several.

    Parameters
    ----------
    operands : list[int]
        The tensors that it reads, by their numbers in the graph.
    build : Callable[..., relay.Expr]
        Builds it from what these have become.
    """

    operands: list[int]
    build: Callable[..., relay.Expr]


def _find(
    readers: dict[str, Callable[[_Reader, int], _Real | None]],
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
        expr = self.graph.nodes[i]
        return to_double(expr) if isinstance(expr, relay.Constant) else None

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

    def _sum(self, i: int, scale: np.ndarray, axis: int = -1) -> _Real | None:
        """Read scale * i, where i is in int32 the result of a QNN op, maybe with a bias.

        Several scales are those of the items of an axis.
        """
        biases = []
        while self.graph.ops[i] in ("add", "nn.bias_add"):
            values = self._values(self.graph.operands[i][1])
            if values is None:
                return None
            biases.append((self.graph.nodes[i], values))
            i = self.graph.operands[i][0]
        row = _ACCUMULATING.get(self.graph.ops[i])
        if row is None:
            return None
        call, view = self.graph.nodes[i], self.graph.views[i]
        float_view = OpView(row.name, view.args[:2], view.results, view.attrs)
        weight_axis, channel_axis = row.weight_axis(float_view), row.channel_axis(float_view)
        data, weight, data_zero, weight_zero, data_scale, _ = self.graph.operands[i]
        data_scale_value = self._values(data_scale)
        if data_scale_value is None or data_scale_value.size != 1 or not data_scale_value.all():
            return None
        # The scale of the sum is that of the data times that of the weight.
        weight_scale = (scale / data_scale_value.reshape(())).astype("float32").reshape(-1)
        if weight_scale.size == 1:
            weight_scale = weight_scale.reshape(())
        elif weight_axis is None or axis % len(view.result.shape) != channel_axis:
            return None

        def build(x, w, x_scale, x_zero, w_zero):
            real_w = dequantize(w, relay.const(weight_scale), w_zero, weight_axis or 0)
            args = [dequantize(x, x_scale, x_zero), real_w]
            real = with_attrs(call, args, out_dtype="float32")
            for bias, values in reversed(biases):
                real = _with_bias(real, bias, values, scale, channel_axis)
            return real

        return _Real([data, weight, data_scale, data_zero, weight_zero], build)

    def requantized(self, i: int) -> _Real | None:
        """Read qnn.requantize, of a sum in int32 or of any other integers."""
        data, scale, zero, out_scale, out_zero = self.graph.operands[i]
        attrs, dtype = self.graph.nodes[i].attrs, self._dtype(i)
        if dtype not in EIGHT_BITS:
            return None
        real = self._dequantized(data, scale, zero, int(attrs.axis))

        def build(*args):
            *operands, new_scale, new_zero = args
            return quantize(
                real.build(*operands), new_scale, new_zero, int(attrs.axis), out_dtype=dtype
            )

        return _Real([*real.operands, out_scale, out_zero], build)

    def _dequantized(self, data: int, scale: int, zero: int, axis: int) -> _Real:
        """Read scale * (data - zero)."""
        real = self._dequantized_sum(data, scale, zero, axis)
        real = real or self._dequantized_mean(data, scale, zero)
        return real or _Real([data, scale, zero], lambda x, s, z: dequantize(x, s, z, axis))

    def _dequantized_sum(self, data: int, scale: int, zero: int, axis: int) -> _Real | None:
        scale_values, zero_values = self._values(scale), self._values(zero)
        if scale_values is None or zero_values is None or zero_values.any():
            return None
        return self._sum(data, scale_values, axis)

    def _dequantized_mean(self, i: int, scale: int, zero: int) -> _Real | None:
        """Read a mean or an average of a tensor that was cast from 8 bits to int32."""
        scale_values = self._values(scale)
        if scale_values is None or scale_values.size != 1 or self._values(zero) is None:
            return None
        if self.graph.ops[i] != "mean" and self.graph.ops[i] not in _POOLS:
            return None
        data, call = self._bytes(self.graph.operands[i][0]), self.graph.nodes[i]
        if data is None:
            return None

        def build(x, s, z):
            return relay.Call(call.op, [dequantize(x, s, z)], call.attrs)

        return _Real([data, scale, zero], build)

    def dequantized(self, i: int) -> _Real | None:
        """Read qnn.dequantize of a sum in int32."""
        axis = int(self.graph.nodes[i].attrs.axis)
        return self._dequantized_sum(*self.graph.operands[i], axis)

    def cast(self, i: int) -> _Real | None:
        """Read a cast of a sum in int32 to float32, or of an average in int32 back to 8 bits."""
        data = self.graph.operands[i][0]
        if self._dtype(i) == "float32":
            return self._sum(data, np.ones(()))
        if self._dtype(i) not in EIGHT_BITS or self.graph.ops[data] not in _POOLS:
            return None
        source = self._bytes(self.graph.operands[data][0])
        pool, dtype = self.graph.nodes[data], self._dtype(i)
        if source is None or self._dtype(source) != dtype:
            return None
        one, zero = relay.const(1.0), relay.const(0)

        def build(x):
            real = relay.Call(pool.op, [dequantize(x, one, zero)], pool.attrs)
            return quantize(real, one, zero, out_dtype=dtype)

        return _Real([source], build)

    def difference(self, i: int) -> _Real | None:
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
            return _Real([data], lambda x: dequantize(x, one, relay.const(values), -1))
        zero = self._bytes(zero)
        if zero is None or shape:
            return None
        return _Real([data, zero], lambda x, z: dequantize(x, one, relay.cast(z, "int32")))

    def integer_weight(self, i: int) -> _Real | None:
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
        # Of those that are not around zero oneDNN needs a zero point, which matmul has.
        shift = 0 if low >= -128 and high <= 127 else int(low)
        integers = relay.const((values - shift).astype("uint8" if shift else "int8"))

        def build(x):
            w = dequantize(integers, relay.const(1.0), relay.const(-shift))
            return relay.Call(call.op, [x, w], call.attrs)

        return _Real([data], build)

    def binary(self, i: int) -> _Real | None:
        """Read qnn.add, qnn.subtract or qnn.mul."""
        call, dtype = self.graph.nodes[i], self._dtype(i)
        if dtype not in EIGHT_BITS:
            return None
        axes = [int(getattr(call.attrs, name, -1)) for name in ("lhs_axis", "rhs_axis")]

        def build(lhs, rhs, ls, lz, rs, rz, out_scale, out_zero):
            float_op = getattr(relay, _BINARY[op_name(call)])
            real = float_op(dequantize(lhs, ls, lz, axes[0]), dequantize(rhs, rs, rz, axes[1]))
            return quantize(real, out_scale, out_zero, out_dtype=dtype)

        return _Real(self.graph.operands[i], build)

    def unary(self, i: int) -> _Real | None:
        """Read a QNN op of one operand."""
        call, dtype = self.graph.nodes[i], self._dtype(i)
        if dtype not in EIGHT_BITS or len(call.args) != 5:
            return None

        def build(x, scale, zero, out_scale, out_zero):
            real = _UNARY[op_name(call)](dequantize(x, scale, zero), call.attrs)
            return quantize(real, out_scale, out_zero, out_dtype=dtype)

        return _Real(self.graph.operands[i], build)

    def concatenated(self, i: int) -> _Real | None:
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

        return _Real([*operands, out_scale, out_zero], build)


# The rows of the float ops of QNN ops that accumulate in int32.
_ACCUMULATING = {
    f"qnn.{name.removeprefix('nn.')}": row
    for name, row in TABLE.items()
    if row.weight_axis is not None
}

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
_READERS: dict[str, Callable[[_Reader, int], _Real | None]] = {
    "qnn.requantize": _Reader.requantized,
    "qnn.dequantize": _Reader.dequantized,
    "qnn.concatenate": _Reader.concatenated,
    "cast": _Reader.cast,
    **dict.fromkeys((row.name for row in _ACCUMULATING.values()), _Reader.integer_weight),
    **dict.fromkeys(_BINARY, _Reader.binary),
    **dict.fromkeys(_UNARY, _Reader.unary),
}


def _with_bias(
    real: relay.Expr, bias: relay.Call, values: np.ndarray, scale: np.ndarray, axis: int
) -> relay.Expr:
    """Add what a bias in int32 stands for."""
    if op_name(bias) == "nn.bias_add":
        return relay.nn.bias_add(
            real, relay.const((values * scale).astype("float32")), int(bias.attrs.axis)
        )
    if scale.size > 1:
        scale = along(scale, axis, len(shape_of(bias)))
    return relay.add(real, relay.const((values * scale).astype("float32")))
