# SPDX-License-Identifier: Apache-2.0
"""Ops in bfloat16 and float16 by kernels of ours, where oneDNN's take longer than in float32."""

import ml_dtypes
import numpy as np
import pytest
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import json_only
from dnnl_tests.reference import rand
from dnnl_tests.relay import module, partition, var

pytestmark = json_only
# Half of the distance of two numbers in [1, 2).
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
IMAGE, ROWS = (2, 6, 9, 7), (5, 1100)


@pytest.fixture(params=ROUNDING)
def dtype(request):
    if not cpu.computes(request.param):
        pytest.skip(f"the CPU has no {request.param}")
    return request.param


def resize(x, dtype):
    return relay.image.resize2d(x, (18, 14), method="linear")


CASES = {
    "resize": (IMAGE, resize, "resampling"),
    "log_softmax": (ROWS, lambda x, _: relay.nn.log_softmax(x), "softmax"),
}


def real(array):
    """Return an array in float64; numpy has bfloat16 of TVM as integers."""
    array = array.view(ml_dtypes.bfloat16) if array.dtype == "uint16" else array
    return array.astype("float64")


def steps_of(shape, make, dtype):
    """Run an op, compare it with float32, and return the kinds of the steps."""
    data = rand(*shape).astype(dtype)
    partitioned = partition(module(make(var("x", *shape, dtype=dtype), dtype)), prune=False)
    runner = direct.Runner(partitioned)
    (got,) = runner({"x": data})
    (want,) = direct.run(module(make(var("x", *shape), "float32")), {"x": data.astype("float32")})
    # Factors are rounded, too.
    error = np.abs(real(got) - real(want)).max()
    assert error < 3 * ROUNDING[dtype] * np.abs(want).max()
    (plan,) = testing.plans(runner)
    return [step["kind"] for step in plan["primitives"]]


@pytest.mark.parametrize("name", CASES)
def test_between_copies_in_float32(name, dtype):
    shape, make, kind = CASES[name]
    assert steps_of(shape, make, dtype) == ["reorder", kind, "reorder"]


@pytest.mark.parametrize("name", ["exp", "erf", "floor"])
def test_functions_of_bfloat16_in_one_step(name):
    """The last block has a rest."""
    if not cpu.computes("bfloat16"):
        pytest.skip("the CPU has no bfloat16")
    assert steps_of(ROWS, lambda x, _: getattr(relay, name)(x), "bfloat16") == ["eltwise"]


@pytest.mark.parametrize("has_relu", [False, True])
def test_batch_norm(has_relu, dtype):
    def make(x, dtype):
        factors = (relay.const(rand(6, seed=seed) ** 2 + 1, dtype) for seed in (1, 2, 3, 4))
        norm = relay.nn.batch_norm(x, *factors)[0]
        return relay.nn.relu(norm) if has_relu else norm

    kinds = ["batch_normalization"]
    if dtype == "float16":
        kinds = ["reorder", *kinds, "reorder"]
    assert steps_of(IMAGE, make, dtype) == kinds


NORMS = {
    "group_norm": (IMAGE, lambda x, *f: relay.nn.group_norm(x, *f, num_groups=3, axis=1), 6),
    "layer_norm": ((4, 32), relay.nn.layer_norm, 32),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_between_casts(name, dtype):
    """Exporters cast to float32 for them, as the kernel does."""
    shape, norm, channels = NORMS[name]
    factors = [np.float32(rand(channels, seed=seed).astype(dtype)) for seed in (1, 2)]

    def make(x, _):
        wide = relay.cast(x, "float32")
        return relay.cast(norm(wide, *map(relay.const, factors)), x.type_annotation.dtype)

    kinds = ["layer_normalization"]
    if dtype == "float16":
        kinds = ["reorder", *kinds, "reorder"]
    assert steps_of(shape, make, dtype) == kinds


def test_norms_of_other_factors_stay_in_float32(dtype):
    factor = np.full(32, 1 + 2.0**-15, "float32")

    def make(x, _):
        norm = relay.nn.layer_norm(relay.cast(x, "float32"), *map(relay.const, (factor, factor)))
        return relay.cast(norm, x.type_annotation.dtype)

    partitioned = partition(module(make(var("x", 4, 32, dtype=dtype), dtype)), prune=False)
    assert testing.offload(partitioned).ops["cast"] == 2
