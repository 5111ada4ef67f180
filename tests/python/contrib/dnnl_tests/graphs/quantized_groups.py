# SPDX-License-Identifier: Apache-2.0
"""Draws what is between dequantize and quantize: Relay, and a function of floating-point values."""

import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from tvm import relay

from dnnl_tests import reference
from dnnl_tests.quantized import Quantization

LETTERS = {1: "W", 2: "HW", 3: "DHW"}

# Unary ops.
UNARY = {
    "relu": (relay.nn.relu, lambda v: np.maximum(v, 0)),
    "clip": (lambda x: relay.clip(x, -1.5, 6), lambda v: np.clip(v, -1.5, 6)),
    "abs": (relay.abs, np.abs),
    "leaky_relu": (lambda x: relay.nn.leaky_relu(x, 0.1), lambda v: np.where(v > 0, v, 0.1 * v)),
    "negative": (relay.negative, np.negative),
}
# Those whose result, small as it is, would show what float32 rounds of large sums before them.
BOUNDED = {
    "tanh": (relay.tanh, np.tanh),
    "sigmoid": (relay.sigmoid, lambda v: 0.5 * (1 + np.tanh(0.5 * v))),
}


class Tensor(NamedTuple):
    """A tensor in 8 bits.

    Attributes
    ----------
    expr : relay.Expr
        An input, or the quantize of a group.
    quantization : Quantization
        What its integers stand for.
    values : numpy.ndarray
        The integers that an exact run has.
    exact : callable
        Computes the floats from the integers of all tensors before; None for an input.
    slack : callable
        Computes from the integers before how far off a right run may be, in floats, since it
        rounds inside; None where nothing does.
    """

    expr: relay.Expr
    quantization: Quantization
    values: np.ndarray
    exact: Callable | None = None
    slack: Callable | None = None


class Group(NamedTuple):
    """What is between dequantize and quantize, as Relay and as a function of floats."""

    name: str
    operands: list
    expr: relay.Expr
    real: Callable


class Rounded(NamedTuple):
    """A group that is rounded to 8 bits.

    Attributes
    ----------
    group : Group
        Its Relay has the rounding.
    quantization : Quantization
        What its integers stand for.
    slack : callable
        Computes from the floats of the operands how far off a right run may be; None where
        nothing is rounded inside.
    on_tvm : Counter
        The ops that cannot be offloaded, if any.
    """

    group: Group
    quantization: Quantization
    slack: Callable | None = None
    on_tvm: Counter = Counter()


class Product(NamedTuple):
    """A tensor times a constant weight: a convolution or a dense.

    Attributes
    ----------
    name : str
        The op, without a dialect.
    operand : int
        The tensor.
    weight : Quantization
        What the integers of the weight stand for.
    values : numpy.ndarray
        These integers.
    attrs : dict
        The attributes of the op.
    axis : int
        The axis of the result's channels.
    real : callable
        Computes the result from the floating-point values of the operand.
    """

    name: str
    operand: int
    weight: Quantization
    values: np.ndarray
    attrs: dict
    axis: int
    real: Callable


class Drawing:
    """Draws quantized tensors, and groups of ops that read them."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.tensors, self.ops, self.on_tvm = [], [], Counter()

    def chance(self, probability):
        return self.random.random() < probability

    def choice(self, items):
        return self.random.choice(list(items))

    def zero_point(self, dtype):
        """Draw a zero point, often at an end of the type."""
        info = np.iinfo(dtype)
        return self.choice([info.min, info.max, 0, self.random.randint(info.min, info.max)])

    def magnitude(self):
        """Draw a scale over many magnitudes."""
        return float(np.float32(10.0 ** self.random.uniform(-5, 2)))

    def input(self, shape, dtype=None):
        dtype = dtype or self.choice(["uint8", "int8"])
        quantization = Quantization(self.magnitude(), self.zero_point(dtype), dtype)
        name = f"x{len(self.tensors)}"
        values = quantization.values(*shape, seed=self.random.randrange(1 << 30))
        self.tensors.append(Tensor(quantization.var(name, *shape), quantization, values))
        return len(self.tensors) - 1

    def operand(self, rank, shape=None):
        """Choose a tensor, or make an input where none fits."""
        fit = [
            i
            for i, tensor in enumerate(self.tensors)
            if tensor.values.ndim == rank and shape in (None, tensor.values.shape)
        ]
        if fit and self.chance(0.8):
            return fit[-1] if self.chance(0.7) else self.choice(fit)
        if shape is None:
            sizes = {2: (1, 3, 5, 16, 40), 3: (1, 2, 4, 9)}.get(rank, (1, 2))
            shape = [self.choice(sizes)]
            shape += [self.choice((1, 3, 4, 7, 8, 16, 32, 64))]
            shape += [
                self.choice((1, 4, 5) if rank == 5 else (1, 5, 6, 9)) for _ in range(rank - 2)
            ]
        return self.input(tuple(shape))

    def real(self, number):
        """Return the dequantize of a tensor."""
        tensor = self.tensors[number]
        return tensor.quantization.dequantize(tensor.expr)

    def weight(self, shape, axis):
        """Draw a constant weight: what its integers stand for, and these."""
        size = shape[axis]
        limit = self.choice([127, 127, 64, 20])
        scale = self.magnitude()
        if self.chance(0.6):
            scale = (scale * 10 ** self.rng.uniform(-1, 1, size)).astype("float32")
        kind = self.choice(["symmetric"] * 7 + ["around 128", "anywhere"])
        if kind == "around 128":
            quantization = Quantization(scale, 128, "uint8", axis)
            low, high = 128 - limit, 128 + limit - 1
        elif kind == "anywhere":
            quantization = Quantization(scale, self.zero_point("uint8"), "uint8", axis)
            low, high = 0, 2 * limit
        else:
            quantization = Quantization(scale, 0, "int8", axis)
            low, high = -limit, limit
        seed = self.random.randrange(1 << 30)
        return quantization, quantization.values(*shape, seed=seed, low=low, high=high)

    def product(self):
        """Draw a convolution or a dense, maybe with a bias."""
        drawn = self.choice([self.conv, self.conv, self.conv_transpose, self.dense])()
        name, operand, weight, values, attrs, axis, real = drawn
        expr = getattr(relay.nn, name)(self.real(operand), weight.dequantize(values), **attrs)
        return self.biased(Group(name, [operand], expr, real), axis)

    def conv(self, spatials=(1, 2, 2, 2, 3)):
        spatial = self.choice(spatials)
        x = self.operand(spatial + 2)
        tensor, letters = self.tensors[x], LETTERS[spatial]
        layout = self.choice([f"NC{letters}", f"NC{letters}", f"N{letters}C"])
        is_first = layout[1] == "C"
        shape = dict(zip(layout, tensor.values.shape))
        groups = self.choice([1, 1, shape["C"]]) if is_first else 1
        channels = groups * self.choice([1, 2] if groups > 1 else [1, 4, 8, 16, 17, 64])
        kernel = [min(self.choice([1, 3, 3, 5]), shape[c] + 1) for c in letters]
        gap = self.choice([1, 1, 1, 2])
        attrs = dict(
            kernel_size=tuple(kernel),
            channels=channels,
            groups=groups,
            strides=(self.choice([1, 1, 2]),) * spatial,
            dilation=(gap,) * spatial,
            padding=tuple(k // 2 * gap for k in kernel),
            data_layout=layout,
            kernel_layout=f"OI{letters}" if is_first else f"{letters}IO",
        )
        dims = dict(zip(letters, kernel), O=channels, I=shape["C"] // groups)
        order = attrs["kernel_layout"]
        weight, values = self.weight([dims[c] for c in order], order.index("O"))
        w, axis, name = weight.real(values), layout.index("C"), f"conv{spatial}d"
        return Product(name, x, weight, values, attrs, axis, lambda a: reference.conv(a, w, attrs))

    def conv_transpose(self, spatials=(1, 2, 2, 3)):
        spatial = self.choice(spatials)
        x = self.operand(spatial + 2)
        size = self.tensors[x].values.shape[1]
        groups = self.choice([1, 1, size]) if spatial == 2 else 1
        channels = groups * self.choice([1, 2] if groups > 1 else [1, 4, 8, 17])
        kernel = [self.choice([1, 3, 3]) for _ in range(spatial)]
        attrs = dict(
            kernel_size=tuple(kernel),
            channels=channels,
            groups=groups,
            strides=(self.choice([1, 2]),) * spatial,
            padding=tuple(k // 2 for k in kernel),
            data_layout=f"NC{LETTERS[spatial]}",
            kernel_layout=f"IO{LETTERS[spatial]}",
        )
        weight, values = self.weight([size, channels // groups, *kernel], 1)
        w, name = weight.real(values), f"conv{spatial}d_transpose"
        return Product(
            name, x, weight, values, attrs, 1, lambda a: reference.conv_transpose(a, w, attrs)
        )

    def dense(self):
        x = self.operand(2)
        columns = self.tensors[x].values.shape[1]
        units = self.choice([1, 8, 10, 24, 64])
        weight, values = self.weight([units, columns], 0)
        w, attrs = weight.real(values), dict(units=units)
        return Product("dense", x, weight, values, attrs, 1, lambda a: a @ w.T)

    def batch_matmul(self):
        x = self.operand(3)
        tensor = self.tensors[x]
        y = self.input((tensor.values.shape[0], self.choice([1, 4, 9]), tensor.values.shape[2]))
        expr = relay.nn.batch_matmul(self.real(x), self.real(y))
        return Group("batch_matmul", [x, y], expr, lambda a, b: a @ b.swapaxes(1, 2))

    def pool(self):
        kind, spatial = self.choice(["avg", "max"]), self.choice([1, 2, 2, 3])
        x = self.operand(spatial + 2)
        if spatial == 3 and self.tensors[x].values.shape[1] == 1:
            # A pool of it stays on TVM.
            return Group("requantize", [x], self.real(x), lambda a: a)
        attrs, name = self.pool_attrs(x, kind), f"{kind}_pool{spatial}d"
        expr = getattr(relay.nn, name)(self.real(x), **attrs)
        return Group(name, [x], expr, lambda a: reference.pool(a, kind, attrs))

    def pool_attrs(self, x, kind):
        """Draw the attributes of a pool of a tensor."""
        size = tuple(min(3, dim) for dim in self.tensors[x].values.shape[2:])
        attrs = dict(
            pool_size=size,
            strides=(self.choice([1, 2]),) * len(size),
            padding=tuple(k // 2 for k in size) if min(size) > 1 else (0,) * len(size),
        )
        if kind == "avg":
            attrs["count_include_pad"] = self.chance(0.5)
        return attrs

    def binary(self):
        x = self.operand(self.choice([2, 3, 4]))
        shape = self.tensors[x].values.shape
        y = self.operand(len(shape), shape)
        name = self.choice(["add", "subtract", "multiply", "maximum"])
        expr = getattr(relay, name)(self.real(x), self.real(y))
        return Group(name, [x, y], expr, getattr(np, name))

    def requantized(self):
        x = self.operand(self.choice([2, 3, 4]))
        if self.chance(0.5):
            return Group("requantize", [x], self.real(x), lambda a: a)
        rank = self.tensors[x].values.ndim
        axes = self.random.sample(range(rank), rank)
        expr = relay.transpose(self.real(x), axes)
        return Group("transpose", [x], expr, lambda a: a.transpose(axes))

    def concatenate(self):
        x = self.operand(self.choice([2, 3, 4]))
        shape = self.tensors[x].values.shape
        parts = [x] + [self.operand(len(shape), shape) for _ in range(self.choice([1, 1, 2]))]
        axis = self.random.randrange(len(shape))
        expr = relay.concatenate([self.real(part) for part in parts], axis)
        return Group("concatenate", parts, expr, lambda *a: np.concatenate(a, axis))

    def alone(self):
        """Draw a unary op of what is dequantized."""
        x = self.operand(self.choice([2, 3, 4, 5]))
        name, (call, function) = self.choice({**UNARY, **BOUNDED}.items())
        return Group(f"lone_{name}", [x], call(self.real(x)), function)

    def biased(self, group, axis):
        if self.chance(0.4):
            return group
        real = self.exact(group)
        rank, size = real.ndim, real.shape[axis]
        spread = float(np.abs(real).max()) or 1.0
        bias = (self.rng.uniform(-1, 1, size) * spread).astype("float32")
        shape = [1] * rank
        shape[axis] = size
        expr = relay.nn.bias_add(group.expr, relay.const(bias), axis)
        return Group(
            f"{group.name}_bias",
            group.operands,
            expr,
            lambda *a: group.real(*a) + bias.astype("float64").reshape(shape),
        )

    def exact(self, group):
        """Compute a group of the values of an exact run."""
        tensors = [self.tensors[i] for i in group.operands]
        return group.real(*(tensor.quantization.real(tensor.values) for tensor in tensors))

    def out_quantization(self, real, dtype=None):
        """Draw a quantization that the values about fill, or that cuts many of them off."""
        dtype = dtype or self.choice(["uint8", "int8"])
        reach = float(np.abs(real).max()) or 1.0
        scale = reach / 127 * self.choice([0.2, 1.0, 1.0, 2.1, 30.0])
        return Quantization(float(np.float32(scale)), self.zero_point(dtype), dtype)

    def unary(self, group):
        """Append a unary op."""
        name, (call, function) = self.choice(UNARY.items())
        return Group(
            f"{group.name}_{name}",
            group.operands,
            call(group.expr),
            lambda *a: function(group.real(*a)),
        )

    def rounded(self, group):
        """Append a rounding; return the group and what it rounds to."""
        to = self.out_quantization(self.exact(group))
        return to, Group(
            f"{group.name}_rounded",
            group.operands,
            to.dequantize(to.quantize(group.expr)),
            lambda *a: to.real(to.nearest(group.real(*a))),
        )

    def residual(self, group):
        """Append the addition of a tensor of the same shape."""
        real = self.exact(group)
        number = self.operand(real.ndim, real.shape)
        return Group(
            f"{group.name}_sum",
            [*group.operands, number],
            group.expr + self.real(number),
            lambda *a: group.real(*a[:-1]) + a[-1],
        )
