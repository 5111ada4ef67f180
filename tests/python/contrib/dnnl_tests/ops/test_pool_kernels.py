# SPDX-License-Identifier: Apache-2.0
"""Pools of row-major images by kernels of ours: max pools line by line, and means of integers."""

import numpy as np
import pytest
from tvm import relay

from dnnl_tests.reference import pool
from dnnl_tests.single_op import run_alone, run_single

# Sizes of the data and attributes. A line holds 2,048 values, and a window at most 1,024 of them.
CASES = {
    "3x3": ((9, 37), dict(pool_size=(3, 3), padding=(1, 1))),
    "3x3-stride": ((9, 37), dict(pool_size=(3, 3), strides=(2, 2), padding=(1, 1))),
    "2x2": ((8, 70), dict(pool_size=(2, 2), strides=(2, 2))),
    "5x4": ((9, 21), dict(pool_size=(5, 4), strides=(1, 3), padding=(2, 1, 1, 3))),
    "1x7": ((3, 20), dict(pool_size=(1, 7), padding=(0, 3))),
    "ceil": ((9, 12), dict(pool_size=(2, 3), strides=(2, 2), ceil_mode=True)),
    "gaps": ((9, 40), dict(pool_size=(1, 2), strides=(3, 5))),
    "all": ((6, 7), dict(pool_size=(6, 7))),
    "larger-than-the-data": ((2, 3), dict(pool_size=(4, 5), padding=(1, 2))),
    "lines": ((2, 5000), dict(pool_size=(2, 3), padding=(0, 1))),
    "lines-stride": ((2, 9000), dict(pool_size=(2, 5), strides=(1, 2), padding=(0, 2))),
    "widest": ((1, 3500), dict(pool_size=(1, 1024), strides=(1, 700))),
    "row": ((31,), dict(pool_size=(3,), strides=(2,), padding=(1,))),
    "volume": ((4, 5, 17), dict(pool_size=(3, 2, 3), strides=(2, 1, 1), padding=(1, 0, 1))),
}


def values(dtype, *shape):
    """Return values of the whole range of a type, with the lowest and the largest ones."""
    numbers = np.random.default_rng(0)
    if dtype == "float32":
        data = (numbers.standard_normal(shape) * 10.0 ** numbers.integers(-30, 30, shape)).astype(
            dtype
        )
        data.reshape(-1)[::7], data.reshape(-1)[::11] = -np.inf, np.inf
        return np.maximum(data, np.finfo(dtype).min)
    limits = np.iinfo(dtype)
    return numbers.integers(limits.min, limits.max + 1, shape).astype(dtype)


def relay_pool(x, attrs):
    data = relay.var("x", shape=x.shape, dtype=str(x.dtype))
    return getattr(relay.nn, f"max_pool{x.ndim - 2}d")(data, **attrs)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8"])
@pytest.mark.parametrize("case", CASES)
def test_exact(case, dtype):
    sizes, attrs = CASES[case]
    x = values(dtype, 2, 3, *sizes)
    op = f"nn.max_pool{x.ndim - 2}d"
    want = pool(x, "max", attrs)
    (step,) = run_single(relay_pool(x, attrs), {"x": x}, None, want, op, "pooling", rtol=0)
    assert step["impl"] == "tvm:any"


def test_windows_wider_than_a_line_run_on_onednn():
    x, attrs = values("float32", 1, 4, 1, 3000), dict(pool_size=(1, 1025), strides=(1, 900))
    want = pool(x, "max", attrs)
    steps = run_single(
        relay_pool(x, attrs), {"x": x}, None, want, "nn.max_pool2d", "pooling", rtol=0
    )
    assert not any(step["impl"] == "tvm:any" for step in steps)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("out", [(0.05, 3), (0.03, -7)], ids=["same", "other"])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_quantized(kind, out, dtype):
    """Of the same quantization it is the pool of the integers; else it is rounded after that.

    The average is of a whole image, whose number of values is odd: no result is halfway.
    """
    sizes, attrs = CASES["3x3-stride"] if kind == "max" else ((9, 1031), dict(pool_size=(9, 1031)))
    x = values(dtype, 2, 3, *sizes)
    data = relay.var("x", shape=x.shape, dtype=dtype)
    data = relay.qnn.op.dequantize(data, relay.const(0.05), relay.const(3))
    scale, zero_point = out
    out_dtype = "int8" if zero_point < 0 else dtype
    expr = getattr(relay.nn, f"{kind}_pool2d")(data, **attrs)
    expr = relay.qnn.op.quantize(
        expr, relay.const(scale), relay.const(zero_point), out_dtype=out_dtype
    )
    factor = float(np.float32(0.05)) / float(np.float32(scale))
    pooled = pool(x.astype("float64"), kind, attrs)
    limits = np.iinfo(out_dtype)
    want = np.clip(np.round((pooled - 3) * factor) + zero_point, limits.min, limits.max)
    kinds = ["pooling" if kind == "max" else "reduction"] + ["binary"] * (scale != 0.05)
    steps = run_alone(expr, {"x": x}, None, want.astype(out_dtype), kinds=kinds, rtol=0)
    assert steps[0]["impl"] == "tvm:any"
