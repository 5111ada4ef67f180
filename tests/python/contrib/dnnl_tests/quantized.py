# SPDX-License-Identifier: Apache-2.0
"""Quantized tensors for tests: values, Relay, and the exact results that these stand for."""

from typing import NamedTuple

import numpy as np
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.relay.qnn import op as qnn
from tvm.testing import dnnl as testing

from dnnl_tests import direct


class Quantization(NamedTuple):
    """How integers represent floating-point values: scale * (q - zero_point)."""

    scale: object
    zero_point: int = 0
    dtype: str = "uint8"
    axis: int = -1

    def values(self, *shape, seed=0, low=None, high=None):
        """Return integers that are the same in every run, over the whole range of the type."""
        info = np.iinfo(self.dtype)
        rng = np.random.default_rng((seed, *shape))
        low, high = info.min if low is None else low, info.max if high is None else high
        return rng.integers(low, high, shape, self.dtype, endpoint=True)

    def _scale(self, rank):
        scale = np.float32(self.scale).astype("float64")
        if scale.ndim == 0:
            return scale
        shape = [1] * rank
        shape[self.axis] = -1
        return scale.reshape(shape)

    def real(self, values):
        """Return the floating-point values that integers stand for, in float64."""
        return self._scale(values.ndim) * (values.astype("float64") - self.zero_point)

    def nearest(self, real):
        """Return the integers that are nearest to floating-point values, halves to even."""
        info = np.iinfo(self.dtype)
        values = np.rint(real / self._scale(real.ndim)) + self.zero_point
        return np.clip(values, info.min, info.max).astype(self.dtype)

    def steps_off(self, values, real):
        """Return how far integers are from floats, in steps; 0.5 at most if all is right."""
        info = np.iinfo(self.dtype)
        wanted = np.clip(real / self._scale(real.ndim) + self.zero_point, info.min, info.max)
        return np.abs(values - wanted)

    @property
    def scale_expr(self):
        """The scale as Relay has it."""
        return relay.const(np.float32(self.scale))

    @property
    def zero_expr(self):
        """The zero point as Relay has it."""
        return relay.const(np.int32(self.zero_point))

    def dequantize(self, expr):
        """Return the dequantize of an expression or of values."""
        expr = relay.const(expr) if isinstance(expr, np.ndarray) else expr
        return qnn.dequantize(expr, self.scale_expr, self.zero_expr, self.axis)

    def quantize(self, expr):
        """Return the quantize of an expression."""
        return qnn.quantize(expr, self.scale_expr, self.zero_expr, self.axis, self.dtype)

    def requantize(self, expr, scale, axis=-1, zero_point=0):
        """Return the requantize of integers, which stand for scale * (q - zero_point)."""
        scale, zero = relay.const(np.array(scale, "float32")), relay.const(zero_point)
        return qnn.requantize(
            expr, scale, zero, self.scale_expr, self.zero_expr, axis, out_dtype=self.dtype
        )

    def var(self, name, *shape):
        """Return a variable of such integers."""
        return relay.var(name, shape=shape, dtype=self.dtype)


def parameters(data, weight):
    """Return what a QNN op that accumulates gets after its data and its weight."""
    return data.zero_expr, weight.zero_expr, data.scale_expr, weight.scale_expr


def assert_within_one_step(got, want):
    """Assert that integers differ by one at most, and few of them; return the share that does.

    A float32 next to a half may be rounded to either side.
    """
    difference = np.abs(got.astype("int32") - want.astype("int32"))
    share = float((difference > 0).mean())
    assert got.dtype == want.dtype and difference.max() <= 1 and share <= 0.02, (
        f"{share:.1%} of the elements differ, by up to {difference.max()} steps"
    )
    return share


def run_quantized(expr, inputs, reference, *, composites, partitions=1):
    """Partition, assert the composites, run, and compare with integers or floating-point values.

    Returns
    -------
    list of dict
        The primitives of the plans, reorders left out; none with C source.
    """
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(expr), expr))
    partitioned = dnnl.partition_for_dnnl(mod, prune=False)
    offload = testing.offload(partitioned)
    assert offload.composites == composites, f"{offload}\n{partitioned}"
    assert offload.partitions == partitions and not offload.host_ops, f"{offload}\n{partitioned}"
    runner = direct.Runner(partitioned)
    (got,) = runner(inputs)
    if reference.dtype in ("uint8", "int8"):
        assert_within_one_step(got, reference)
    else:
        testing.assert_close([got], [reference], 1e-5)
    if dnnl.dnnl_codegen() != "JSON":
        return []
    steps = [step for plan in testing.plans(runner) for step in plan["primitives"]]
    return [step for step in steps if step["kind"] != "reorder"]
