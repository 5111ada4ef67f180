# SPDX-License-Identifier: Apache-2.0
"""Models in bfloat16 or float16 on a CPU that has the type, and computes faster in float32."""

import math

import ml_dtypes
import numpy as np
import pytest
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import json_only
from dnnl_tests.pretended_cpu import faster_in_float32
from dnnl_tests.reference import rand
from dnnl_tests.relay import compiler_of, const, module, partition, var

nn = relay.nn
# Half of the distance of two numbers in [1, 2).
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


@pytest.fixture(autouse=True)
def any_cpu():
    with faster_in_float32():
        yield


@pytest.fixture(params=ROUNDING)
def dtype(request):
    if not cpu.computes(request.param):
        pytest.skip(f"the CPU has no {request.param}")
    return request.param


def constants(mod):
    """Return the types and shapes of the constants of the partitions that have an axis."""
    types = set()

    def visit(expr):
        if isinstance(expr, relay.Constant) and expr.data.shape:
            types.add((expr.data.dtype, tuple(expr.data.shape)))

    for func in mod.functions.values():
        if compiler_of(func) == "dnnl":
            relay.analysis.post_order_visit(func, visit)
    return types


def real(array):
    """Return an array in float64; numpy has bfloat16 of TVM as integers."""
    array = array.view(ml_dtypes.bfloat16) if array.dtype == "uint16" else array
    return array.astype("float64")


def conv_net(dtype):
    x = var("x", 1, 8, 12, 12, dtype=dtype)
    weight = const(8, 8, 3, 3, dtype=dtype)
    y = nn.relu(nn.conv2d(x, weight, padding=(1, 1)))
    y = nn.conv2d(y, const(8, 8, 1, 1, seed=1, dtype=dtype)) + x
    return module(nn.max_pool2d(y, (2, 2), (2, 2)))


@json_only
def test_a_convolutional_network(dtype):
    mod, x = conv_net(dtype), rand(1, 8, 12, 12).astype(dtype)
    partitioned = partition(mod, prune=False)
    report = dnnl.offload_report(partitioned)
    assert report.partitions == 1 and report.offloaded == report.total, f"{report}"
    assert report.in_float32 == {f"ops in {dtype}, which is slower than float32 on this CPU": 5}
    assert {kind for kind, _ in constants(partitioned)} == {"float32"}
    (got,) = direct.run(partitioned, {"x": x})
    assert mod["main"].ret_type.dtype == dtype
    wide = module(conv_net("float32")["main"].body)
    (want,) = direct.run(wide, {"x": x.astype("float32")})
    error = np.abs(real(got) - real(want)).max()
    # The weights of `wide` are not rounded: the errors of 72 and 8 products and of the sum.
    assert error < 4 * ROUNDING[dtype] * np.abs(want).max()


@json_only
@pytest.mark.parametrize("rows, stays", [(1, True), (8, True), (9, False), (None, True)])
def test_weights_of_few_rows(rows, stays, dtype):
    """Few rows take as long as to read the weights; the sums, and what reads them, are float32."""
    x = var("x", rows, 64, dtype=dtype)
    weight, second = (const(64, 64, seed=seed, dtype=dtype) for seed in (1, 2))
    mod = module(nn.dense(nn.relu(nn.dense(x, weight)), second) + x)
    partitioned = partition(mod, prune=False)
    assert constants(partitioned) == {(dtype if stays else "float32", (64, 64))}
    assert dnnl.offload_report(partitioned).partitions == 1
    data, executor = rand(rows or 3, 64).astype(dtype), "graph" if rows else "vm"
    (got,) = testing.run(partitioned, {"x": data}, executor=executor)
    first, last, wide = (real(each) for each in (weight.data.numpy(), second.data.numpy(), data))
    want = np.maximum(wide @ first.T, 0) @ last.T + wide
    # The rows of the second product are rounded, and so is the result.
    error = np.abs(real(got) - want).max()
    assert error < 2 * ROUNDING[dtype] * np.abs(want).max()


@json_only
def test_a_type_that_is_named_stays(dtype):
    partitioned = partition(conv_net(dtype), prune=False, precision=dtype)
    assert {kind for kind, _ in constants(partitioned)} == {dtype}
    assert not dnnl.offload_report(partitioned).in_float32


@json_only
def test_precision_is_that_of_what_is_converted():
    if not all(map(cpu.computes, cpu.REAL)):
        pytest.skip("the CPU lacks a type")
    partitioned = partition(conv_net("float16"), prune=False, precision="bfloat16")
    assert {kind for kind, _ in constants(partitioned)} == {"bfloat16"}


@json_only
def test_formulas_of_rounded_constants(dtype):
    """The model has the root of 2 in its own type."""
    x = var("x", 16, 64, dtype=dtype)
    erf = relay.erf(relay.divide(x, relay.const(math.sqrt(2), dtype)))
    gelu = x * (erf + relay.const(1.0, dtype)) * relay.const(0.5, dtype)
    partitioned = partition(module(gelu), prune=False)
    assert "dnnl.gelu_erf" in str(partitioned), partitioned
