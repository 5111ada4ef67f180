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
"""Random quantized graphs: each tensor in 8 bits is an output, and judged on what it was made of.

What rounds makes two right runs differ by a step, and the next op carries that on. So every op
between dequantize and quantize is computed anew, in float64, of the integers that oneDNN itself
made before it; its own may be off by half a step, as a right rounding is, and what float32 rounds.
"""

import collections
import functools
import random
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import reference
from dnnl_tests.quantized import Quantization

from .judging import DIFFERENT, NOTHING, RAISED, SAME, Verdict

MAX_ELEMENTS = 1 << 13
# In steps: what sums of products are off by in float32, of results of hundreds of steps.
ROUNDING = 0.01


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
        Computes the real numbers from the integers of all tensors before; None for an input.
    slack : callable
        Computes from the integers before how far off a right run may be, in real numbers, since it
        rounds inside; None where nothing does.
    """

    expr: relay.Expr
    quantization: Quantization
    values: np.ndarray
    exact: Callable | None = None
    slack: Callable | None = None


class Drawn(NamedTuple):
    """A random quantized graph.

    Attributes
    ----------
    mod : tvm.IRModule
        Its outputs are the tensors that are no inputs.
    tensors : list of Tensor
        All, inputs too.
    ops : list of str
        The op of each group, for people.
    """

    mod: tvm.IRModule
    tensors: list
    ops: list


class Group(NamedTuple):
    """What is between dequantize and quantize, as Relay and as a function of real numbers."""

    name: str
    operands: list
    expr: relay.Expr
    real: Callable


def _slack(group, rounded_to, operands):
    """Tell how far apart right runs are of a group that is rounded before an operand is added.

    Without `rounded_to` the rounding is that of float32, which shows where the addition cancels.
    """
    real = group.real(*operands[:-1])
    if rounded_to is None:
        return np.abs(real) * 2.0**-22
    near = ROUNDING * rounded_to.scale
    above, below = (rounded_to.nearest(real + sign * near) for sign in (1, -1))
    return rounded_to.real(above) - rounded_to.real(below)


class _Drawing:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.tensors, self.ops = [], []

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

    def input(self, shape):
        dtype = self.choice(["uint8", "int8"])
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
            sizes = {2: (1, 3, 5, 16, 40), 3: (1, 2, 4, 9), 4: (1, 2)}[rank]
            shape = [self.choice(sizes)]
            shape += [self.choice((1, 3, 4, 7, 8, 16, 32, 64))]
            shape += [self.choice((1, 5, 6, 9)) for _ in range(rank - 2)]
        return self.input(tuple(shape))

    def weight(self, shape, axis):
        """Draw a constant weight: its dequantize and its real values."""
        size = shape[axis]
        limit = self.choice([127, 127, 64, 20])
        scale = self.magnitude()
        if self.chance(0.6):
            scale = (scale * 10 ** self.rng.uniform(-1, 1, size)).astype("float32")
        if self.chance(0.15):
            quantization = Quantization(scale, 128, "uint8", axis)
            low, high = 128 - limit, 128 + limit - 1
        else:
            quantization = Quantization(scale, 0, "int8", axis)
            low, high = -limit, limit
        values = quantization.values(
            *shape, seed=self.random.randrange(1 << 30), low=low, high=high
        )
        return quantization.dequantize(values), quantization.real(values)

    def conv2d(self):
        x = self.operand(4)
        tensor = self.tensors[x]
        layout = self.choice(["NCHW", "NCHW", "NHWC"])
        shape = dict(zip(layout, tensor.values.shape))
        groups = self.choice([1, 1, shape["C"]]) if layout == "NCHW" else 1
        channels = groups * self.choice([1, 2] if groups > 1 else [1, 4, 8, 16, 17, 64])
        kernel = [min(self.choice([1, 3, 3, 5]), shape[c] + 1) for c in "HW"]
        attrs = dict(
            kernel_size=tuple(kernel),
            channels=channels,
            groups=groups,
            strides=(self.choice([1, 1, 2]),) * 2,
            padding=tuple(k // 2 for k in kernel),
            data_layout=layout,
            kernel_layout={"NCHW": "OIHW", "NHWC": "HWIO"}[layout],
        )
        dims = dict(O=channels, I=shape["C"] // groups, H=kernel[0], W=kernel[1])
        w_expr, w = self.weight(
            [dims[c] for c in attrs["kernel_layout"]], attrs["kernel_layout"].index("O")
        )
        expr = relay.nn.conv2d(tensor.quantization.dequantize(tensor.expr), w_expr, **attrs)
        group = Group("conv2d", [x], expr, lambda a: reference.conv(a, w, attrs))
        return self.biased(group, layout.index("C"))

    def dense(self):
        x = self.operand(2)
        tensor = self.tensors[x]
        w_expr, w = self.weight([self.choice([1, 8, 10, 24, 64]), tensor.values.shape[1]], 0)
        expr = relay.nn.dense(tensor.quantization.dequantize(tensor.expr), w_expr)
        return self.biased(Group("dense", [x], expr, lambda a: a @ w.T), 1)

    def batch_matmul(self):
        x = self.operand(3)
        tensor = self.tensors[x]
        y = self.input((tensor.values.shape[0], self.choice([1, 4, 9]), tensor.values.shape[2]))
        other = self.tensors[y]
        expr = relay.nn.batch_matmul(
            tensor.quantization.dequantize(tensor.expr), other.quantization.dequantize(other.expr)
        )
        return Group("batch_matmul", [x, y], expr, lambda a, b: a @ b.swapaxes(1, 2))

    def avg_pool2d(self):
        x = self.operand(4)
        tensor = self.tensors[x]
        size = tuple(min(3, dim) for dim in tensor.values.shape[2:])
        attrs = dict(
            pool_size=size,
            strides=(self.choice([1, 2]),) * 2,
            padding=tuple(k // 2 for k in size) if min(size) > 1 else (0, 0),
            count_include_pad=self.chance(0.5),
        )
        expr = relay.nn.avg_pool2d(tensor.quantization.dequantize(tensor.expr), **attrs)
        return Group("avg_pool2d", [x], expr, lambda a: reference.pool(a, "avg", attrs))

    def binary(self):
        x = self.operand(self.choice([2, 3, 4]))
        tensor = self.tensors[x]
        y = self.operand(tensor.values.ndim, tensor.values.shape)
        other = self.tensors[y]
        name = self.choice(["add", "subtract", "multiply", "maximum"])
        expr = getattr(relay, name)(
            tensor.quantization.dequantize(tensor.expr), other.quantization.dequantize(other.expr)
        )
        return Group(name, [x, y], expr, getattr(np, name))

    def requantized(self):
        x = self.operand(self.choice([2, 3, 4]))
        tensor = self.tensors[x]
        expr = tensor.quantization.dequantize(tensor.expr)
        if self.chance(0.5):
            return Group("requantize", [x], expr, lambda a: a)
        axes = self.random.sample(range(tensor.values.ndim), tensor.values.ndim)
        expr = relay.transpose(expr, axes)
        return Group("transpose", [x], expr, lambda a: a.transpose(axes))

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

    def out_quantization(self, real):
        """Draw a quantization that the values about fill, or that cuts many of them off."""
        dtype = self.choice(["uint8", "int8"])
        reach = float(np.abs(real).max()) or 1.0
        scale = reach / 127 * self.choice([0.2, 1.0, 1.0, 2.1, 30.0])
        return Quantization(float(np.float32(scale)), self.zero_point(dtype), dtype)

    def unary(self, group):
        """Append a unary op."""
        name, call, function = self.choice(
            [
                ("relu", relay.nn.relu, lambda v: np.maximum(v, 0)),
                ("clip", lambda x: relay.clip(x, -1.5, 6), lambda v: np.clip(v, -1.5, 6)),
                ("abs", relay.abs, np.abs),
            ]
        )
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
        tensor = self.tensors[number]
        return Group(
            f"{group.name}_sum",
            [*group.operands, number],
            group.expr + tensor.quantization.dequantize(tensor.expr),
            lambda *a: group.real(*a[:-1]) + a[-1],
        )

    def append(self):
        """Append one group with its quantize."""
        kinds = [self.conv2d, self.conv2d, self.dense, self.dense, self.batch_matmul]
        kinds += [self.avg_pool2d, self.binary, self.requantized]
        group, slack = self.choice(kinds)(), None
        if self.chance(0.4):
            group = self.unary(group)
        if self.chance(0.3):
            before, rounded_to = group, None
            if self.chance(0.5):
                rounded_to, group = self.rounded(group)
            group = self.residual(group)
            slack = functools.partial(_slack, before, rounded_to)
        real = self.exact(group)
        if real.size > MAX_ELEMENTS or not np.isfinite(real).all():
            return
        out = self.out_quantization(real)
        quantizations = [self.tensors[i].quantization for i in group.operands]

        def operands(values):
            return [q.real(values[i]) for q, i in zip(quantizations, group.operands)]

        self.tensors.append(
            Tensor(
                out.quantize(group.expr),
                out,
                out.nearest(real),
                lambda values: group.real(*operands(values)),
                slack and (lambda values: slack(operands(values))),
            )
        )
        self.ops.append(group.name)


def draw(seed, max_groups=5):
    """Draw a quantized graph; the same seed draws the same."""
    drawing = _Drawing(seed)
    for _ in range(drawing.random.randint(1, max_groups)):
        drawing.append()
    while not drawing.ops:
        drawing.append()
    tensors = drawing.tensors
    results = relay.Tuple([tensor.expr for tensor in tensors if tensor.exact])
    func = relay.Function(relay.analysis.free_vars(results), results)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(func))
    return Drawn(mod, tensors, drawing.ops)


def judge_quantized(seed, max_groups=5):
    """Draw a quantized graph, run it on oneDNN, and judge each of its tensors."""
    drawn = draw(seed, max_groups)
    names = {param.name_hint for param in drawn.mod["main"].params}
    inputs = {
        tensor.expr.name_hint: tensor.values
        for tensor in drawn.tensors
        if isinstance(tensor.expr, relay.Var) and tensor.expr.name_hint in names
    }
    try:
        partitioned = dnnl.partition_for_dnnl(drawn.mod, prune=False)
        report = dnnl.offload_report(partitioned).to_dict()
        if not report.get("partitions"):
            return Verdict(NOTHING, "", report)
        outputs = iter(testing.Runner(testing.build(partitioned, opt_level=1))(inputs))
    # Whatever is raised is what is looked for.
    except Exception as error:  # pylint: disable=broad-except
        return Verdict(RAISED, f"{drawn.ops}\n{error}\n{drawn.mod}")
    values, problems, nearest = [], [], collections.Counter()
    for number, tensor in enumerate(drawn.tensors):
        if tensor.exact is None:
            values.append(tensor.values)
            continue
        got = np.asarray(next(outputs))
        exact = tensor.exact(values)
        nearest.update((got == tensor.quantization.nearest(exact)).ravel().tolist())
        off = tensor.quantization.steps_off(got, exact)
        slack = tensor.slack(values) / tensor.quantization.scale if tensor.slack else 0
        if (off > 0.5 + slack + ROUNDING).any():
            problems.append(f"tensor {number}: off by up to {off.max():.2f} steps")
        values.append(got)
    report.update(elements=nearest.total(), other_steps=nearest[False])
    if not problems:
        return Verdict(SAME, "", report)
    return Verdict(DIFFERENT, "\n".join([str(drawn.ops), *problems]), report)
