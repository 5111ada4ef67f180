# SPDX-License-Identifier: Apache-2.0
"""Random quantized graphs: each tensor in 8 bits is an output, and judged on its operands.

What rounds makes two right runs differ by a step, and the next op carries that on. So every op
between dequantize and quantize, or of the QNN dialect, is computed anew, in float64, of the
integers that oneDNN itself made before it; its own may be off by half a step, as a right rounding
is, and what float32 rounds.
"""

import collections
import functools
from typing import NamedTuple

import numpy as np
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from .judging import DIFFERENT, NOTHING, RAISED, SAME, Verdict
from .qnn_groups import QnnDrawing
from .quantized_groups import Rounded, Tensor

MAX_ELEMENTS = 1 << 13
# In steps: what sums of products are off by in float32, of results of hundreds of steps.
ROUNDING = 0.01


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
    on_tvm : Counter
        The ops that cannot be offloaded.
    """

    mod: tvm.IRModule
    tensors: list
    ops: list
    on_tvm: collections.Counter


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


class _Graph(QnnDrawing):
    """Draws a graph, tensor by tensor."""

    def between(self):
        """Draw a group of float ops between dequantize and quantize."""
        kinds = [self.product] * 4
        kinds += [self.batch_matmul, self.pool, self.binary, self.requantized]
        kinds += [self.concatenate, self.alone]
        group, slack = self.choice(kinds)(), None
        if self.chance(0.4):
            group = self.unary(group)
        if self.chance(0.3):
            before, rounded_to = group, None
            if self.chance(0.5):
                rounded_to, group = self.rounded(group)
            group = self.residual(group)
            slack = functools.partial(_slack, before, rounded_to)
        out = self.out_quantization(self.exact(group))
        return Rounded(group._replace(expr=out.quantize(group.expr)), out, slack)

    def append(self):
        """Append one tensor."""
        group, out, slack, on_tvm = self.qnn() if self.chance(0.4) else self.between()
        real = self.exact(group)
        if real.size > MAX_ELEMENTS or not np.isfinite(real).all():
            return
        quantizations = [self.tensors[i].quantization for i in group.operands]

        def operands(values):
            return [q.real(values[i]) for q, i in zip(quantizations, group.operands)]

        self.tensors.append(
            Tensor(
                group.expr,
                out,
                out.nearest(real),
                lambda values: group.real(*operands(values)),
                slack and (lambda values: slack(operands(values))),
            )
        )
        self.ops.append(group.name)
        self.on_tvm += on_tvm


def draw(seed, max_groups=5):
    """Draw a quantized graph; the same seed draws the same."""
    drawing = _Graph(seed)
    for _ in range(drawing.random.randint(1, max_groups)):
        drawing.append()
    while not drawing.ops:
        drawing.append()
    tensors = drawing.tensors
    results = relay.Tuple([tensor.expr for tensor in tensors if tensor.exact])
    func = relay.Function(relay.analysis.free_vars(results), results)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(func))
    return Drawn(mod, tensors, drawing.ops, drawing.on_tvm)


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
        stayed = {op: n["ops"] - n["offloaded"] for op, n in report["ops"].items()}
        unexpected = collections.Counter(stayed) - drawn.on_tvm
        if unexpected:
            return Verdict(DIFFERENT, f"{drawn.ops}\non TVM: {dict(unexpected)}", report)
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
