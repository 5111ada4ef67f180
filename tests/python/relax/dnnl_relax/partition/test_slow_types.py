# SPDX-License-Identifier: Apache-2.0
"""Models in float16 on a CPU that has the type, and computes faster in float32."""

import numpy as np
import pytest
import tvm_dnnl
from dnnl_tests.pretended_cpu import faster_in_float32
from tvm import relax
from tvm.contrib.onednn import cpu
from tvm.relax import op

from dnnl_relax.modules import compiled, composites, module, partitions, rand, run, var
from dnnl_relax.onnx.layers import model_of, onnxruntime_results

pytestmark = pytest.mark.skipif(not cpu.computes("float16"), reason="the CPU has no float16")


def half(*shape, seed):
    return relax.const(rand(*shape, seed=seed).astype("float16"))


def normalized(builder, x):
    """Normalize rows in the spelling of ONNX's exporters, with a power."""
    mean = builder.emit(op.mean(x, axis=[-1], keepdims=True))
    centred = builder.emit(op.subtract(x, mean))
    square = builder.emit(op.power(centred, relax.const(2.0, "float16")))
    variance = builder.emit(op.mean(square, axis=[-1], keepdims=True))
    root = op.sqrt(builder.emit(op.add(variance, relax.const(1e-3, "float16"))))
    scaled = op.multiply(builder.emit(op.divide(centred, builder.emit(root))), half(64, seed=1))
    return builder.emit(op.add(builder.emit(scaled), half(64, seed=2)))


def test_a_norm_with_a_power():
    mod = module(normalized, var("x", 16, 64, dtype="float16"))
    with faster_in_float32():
        partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert partitions(partitioned) == 1 and composites(partitioned)["dnnl.layer_norm"] == 1
    x = rand(16, 64).astype("float16")
    (got,) = run(compiled(partitioned), x)
    real = x.astype("float64")
    real -= real.mean(1, keepdims=True)
    real /= np.sqrt((real**2).mean(1, keepdims=True) + np.float16(1e-3))
    factors, summands = (rand(64, seed=seed).astype("float16") for seed in (1, 2))
    want = real * factors + summands
    # The one rounding to float16.
    np.testing.assert_allclose(got, want, rtol=0, atol=2.0**-11 * np.abs(want).max())


def test_weights_of_an_open_number_of_rows():
    def build(builder, x):
        return builder.emit(op.matmul(x, half(64, 64, seed=1)))

    mod = module(build, var("x", "n", 64, dtype="float16"))
    with faster_in_float32():
        partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    (library,) = compiled(partitioned).attrs["external_mods"]
    assert '"float16"' in library.inspect_source()


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_recurrent_layer(precision):
    """There is none in float16, whatever `precision` is."""
    values = {
        "X": rand(5, 1, 16, seed=1).astype("float16"),
        "W": rand(1, 64, 16, seed=2).astype("float16") / 4,
        "R": rand(1, 64, 16, seed=3).astype("float16") / 4,
        "B": rand(1, 128, seed=4).astype("float16"),
    }
    model = model_of("LSTM", values, hidden_size=16)
    with faster_in_float32():
        partitioned = tvm_dnnl.partition_for_dnnl(
            tvm_dnnl.from_onnx(model), prune=False, precision=precision
        )
    assert composites(partitioned)["dnnl.lstm"] == 1, partitioned
    got = run(compiled(partitioned), values["X"])
    for one, other in zip(got, onnxruntime_results(model, values)):
        # Values below 1, rounded once; onnxruntime computes in float32, too.
        np.testing.assert_allclose(one, other, rtol=0, atol=2.0**-11)
