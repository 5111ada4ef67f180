# SPDX-License-Identifier: Apache-2.0
"""Draws tensors in 8 bits in Relay's QNN dialect, with what importers write around its ops."""

import math
from collections import Counter

import numpy as np
import tvm
from tvm import relay
from tvm.relay.qnn import op as qnn

from dnnl_tests import reference
from dnnl_tests.quantized import parameters

from .quantized_groups import Drawing, Group, Rounded


def _along(values, axis, rank):
    """Return values along an axis, or one number, in a shape that broadcasts to a tensor."""
    return np.reshape(values, [-1 if i == axis else 1 for i in range(rank)])


def _pads(attrs):
    """Whether an average counts its padding."""
    return attrs["count_include_pad"] and any(attrs["padding"])


def _parameters(*quantizations):
    """Return what a QNN op that does not accumulate gets after its data."""
    return [each for q in quantizations for each in (q.scale_expr, q.zero_expr)]


class QnnDrawing(Drawing):
    """Draws what QNN ops compute.

    A sum is a group whose Relay is in int32, what one of it stands for, which is one number or one
    for each item of an axis, and that axis.
    """

    def qnn(self):
        """Draw a tensor."""
        kinds = [self.requantized_sum] * 4
        kinds += [self.int32_average, self.qnn_average, self.qnn_binary, self.qnn_requantize]
        return self.choice(kinds)()

    def requantized_sum(self):
        """Draw a sum, maybe with biases and a relu, that becomes 8 bits."""
        kind = self.choice(["conv", "conv", "conv_transpose", "dense", "batch_matmul"])
        if kind == "batch_matmul":
            group, scale, axis = self.sum_of_tensors()
        else:
            product = self.dense() if kind == "dense" else getattr(self, kind)([2])
            scales, attrs = np.size(product.weight.scale), product.attrs
            if scales not in (1, attrs.get("channels", attrs.get("units"))):
                # A transposed convolution whose groups share the scales: QNN has one a channel.
                return self.requantized_sum()
            group, scale, axis = self.sum_of_product(product)
        if self.chance(0.7):
            group = self.int32_bias(group, scale, axis)
        if self.chance(0.3):
            group = self.appended(
                group, "relu", relay.nn.relu(group.expr), lambda v: np.maximum(v, 0)
            )
            if self.chance(0.3):
                group = self.int32_bias(group, scale, axis)
        return self.in_8_bits(group, scale, axis)

    def sum_of_product(self, product):
        """Write a convolution or a dense as a QNN op."""
        data, values, attrs = self.tensors[product.operand], product.values, product.attrs
        groups, name = attrs.get("groups", 1), f"qnn.{product.name}"
        if product.name == "conv2d" and 1 < groups < attrs["channels"] and self.chance(0.5):
            # A depthwise weight whose outputs of a channel are an axis of their own.
            values = values.reshape(groups, -1, *values.shape[2:])
            name = "qnn.conv2d_multiplier"
        scale = np.float32(product.weight.scale)
        weight = product.weight._replace(scale=scale if scale.size > 1 else scale.reshape(()))
        params = parameters(data.quantization, weight)
        call = getattr(qnn, product.name)(data.expr, relay.const(values), *params, **attrs)
        scale = np.float32(data.quantization.scale) * weight.scale
        return Group(name, [product.operand], call, product.real), scale, product.axis

    def sum_of_tensors(self):
        """Draw a batch_matmul."""
        group = self.batch_matmul()
        x, y = (self.tensors[i] for i in group.operands)
        expr = qnn.batch_matmul(x.expr, y.expr, *parameters(x.quantization, y.quantization))
        scale = np.float32(x.quantization.scale) * np.float32(y.quantization.scale)
        return group._replace(name="qnn.batch_matmul", expr=expr), scale, 2

    def int32_bias(self, group, scale, axis):
        """Append a bias, of the channels or along another axis."""
        real = self.exact(group)
        rank, at = real.ndim, axis
        scale = _along(scale.astype("float64"), axis, rank)
        if self.chance(0.3):
            # What has a scale for each channel must lie along neighbouring axes.
            at = self.choice(i for i in range(rank) if scale.size == 1 or abs(i - axis) <= 1)
        limit = max(1, round(np.abs(real / scale).max()))
        bias = self.rng.integers(-limit, limit, real.shape[at], "int32", endpoint=True)
        wide = _along(bias, at, rank)
        expr = self.choice(
            [
                lambda: relay.nn.bias_add(group.expr, relay.const(bias), at),
                lambda: group.expr + relay.const(wide),
                lambda: relay.const(wide) + group.expr,
            ]
        )()
        name = "bias" if at == axis else f"bias_along_{at}"
        return self.appended(group, name, expr, lambda v: v + wide * scale)

    @staticmethod
    def appended(group, name, expr, function):
        """Return a group with an op of its result."""
        return Group(
            f"{group.name}_{name}", group.operands, expr, lambda *a: function(group.real(*a))
        )

    def in_8_bits(self, group, scale, axis):
        """Round a sum to 8 bits, as QNN, TFLite's importer or PyTorch's writes it."""
        out = self.out_quantization(self.exact(group))
        form = self.choice(["requantize", "clip", "cast"])
        if form == "requantize":
            return Rounded(group._replace(expr=out.requantize(group.expr, scale, axis)), out)
        limits = np.iinfo(out.dtype)
        low, high = sorted(self.random.uniform(limits.min, limits.max) for _ in range(2))
        low = self.choice([low, limits.min, out.zero_point])
        high = max(low, self.choice([high, limits.max]))
        if form == "clip":
            expr = relay.clip(out.requantize(group.expr, scale, axis), low, high)
        else:
            wide = out._replace(dtype="int32").requantize(group.expr, scale, axis)
            expr = relay.cast(relay.clip(wide, low, high), out.dtype)
        # TVM cuts the fractions off.
        bounds = [out.scale * (math.trunc(bound) - out.zero_point) for bound in (low, high)]
        return Rounded(self.appended(group, form, expr, lambda v: np.clip(v, *bounds)), out)

    def int32_average(self):
        """Draw an average in int32, which pads with the integer 0."""
        x = self.operand(self.choice([3, 4, 4, 5]))
        data, attrs = self.tensors[x], self.pool_attrs(x, "avg")
        name = f"avg_pool{data.values.ndim - 2}d"
        expr = getattr(relay.nn, name)(relay.cast(data.expr, "int32"), **attrs)
        given = data.quantization

        def real(a):
            integers = a / given.scale + given.zero_point
            return given.real(reference.pool(integers, "avg", attrs))

        group, out = Group(f"int32_{name}", [x], expr, real), given
        stays, casts = name == "avg_pool3d" and data.values.shape[1] == 1, 1
        if self.chance(0.3):
            casts, expr = 2, relay.cast(expr, given.dtype)
        else:
            out = self.out_quantization(self.exact(group))
            expr = out.requantize(expr, given.scale, zero_point=given.zero_point)
            stays = stays or bool(_pads(attrs) and given.zero_point)
        group = group._replace(expr=expr)
        if stays:
            # TVM cuts the fractions of averages off.
            on_tvm = Counter({"cast": casts, f"nn.{name}": 1})
            return Rounded(group, out, lambda operands: given.scale, on_tvm)
        return Rounded(group, out)

    def qnn_average(self):
        """Draw qnn.avg_pool2d, which averages what it has rounded, and pads that with 0."""
        x = self.operand(4)
        data, attrs = self.tensors[x], self.pool_attrs(x, "avg")
        given = data.quantization
        out = self.out_quantization(given.real(data.values), given.dtype)
        stays = _pads(attrs) and out.zero_point != 0
        # What the padding stands for is this below zero.
        below = out.scale * out.zero_point if stays else 0.0
        float_attrs = relay.nn.avg_pool2d(relay.var("x", shape=data.values.shape), **attrs).attrs
        op = tvm.ir.Op.get("qnn.avg_pool2d")
        expr = relay.Call(op, [data.expr, *_parameters(given, out)], float_attrs)
        group = Group(
            "qnn.avg_pool2d",
            [x],
            expr,
            lambda a: reference.pool(a + below, "avg", attrs) - below,
        )
        if stays:
            return Rounded(group, out, lambda operands: out.scale, Counter({"qnn.avg_pool2d": 1}))
        return Rounded(group, out)

    def qnn_binary(self):
        """Draw a QNN op of two tensors of one type."""
        x = self.operand(self.choice([2, 3, 4]))
        data = self.tensors[x]
        y = self.operand(data.values.ndim, data.values.shape)
        if self.tensors[y].quantization.dtype != data.quantization.dtype:
            y = self.input(data.values.shape, data.quantization.dtype)
        name, function = self.choice(
            [("add", np.add), ("subtract", np.subtract), ("mul", np.multiply)]
        )
        group = Group(f"qnn.{name}", [x, y], None, function)
        out = self.out_quantization(self.exact(group), data.quantization.dtype)
        other = self.tensors[y]
        params = _parameters(data.quantization, other.quantization, out)
        expr = getattr(qnn, name)(data.expr, other.expr, *params)
        return Rounded(group._replace(expr=expr), out)

    def qnn_requantize(self):
        """Draw another scale and zero point for a tensor."""
        x = self.operand(self.choice([2, 3, 4]))
        given = self.tensors[x].quantization
        out = self.out_quantization(given.real(self.tensors[x].values))
        expr = out.requantize(self.tensors[x].expr, given.scale, zero_point=given.zero_point)
        return Rounded(Group("qnn.requantize", [x], expr, lambda a: a), out)
