# SPDX-License-Identifier: Apache-2.0
"""Sums and functions of elements of 16 bits that stay on TVM: in float32."""

import numpy as np
import pytest
import tvm
import tvm_dnnl
from tvm import relax
from tvm.contrib.onednn.ir.numpy_types import numpy_type

from dnnl_relax.modules import virtual_machine

#: The elements of a sum; in float16 there is no such number.
MANY = 66_000


def _softmax(x):
    return np.exp(x) / np.exp(x).sum(1, keepdims=True)


#: Ops of a (2, MANY) tensor, and what they compute in numpy.
OPS = {
    "sum": (lambda x: relax.op.sum(x, [1]), lambda x: x.sum(1)),
    "mean": (lambda x: relax.op.mean(x, [1]), lambda x: x.mean(1)),
    "variance": (lambda x: relax.op.variance(x, [1]), lambda x: x.var(1)),
    "std": (lambda x: relax.op.std(x, [1]), lambda x: x.std(1)),
    "softmax": (lambda x: relax.op.nn.softmax(x, 1), _softmax),
    "log_softmax": (lambda x: relax.op.nn.log_softmax(x, 1), lambda x: np.log(_softmax(x))),
    "matmul": (lambda x: relax.op.matmul(x, relax.op.permute_dims(x)), lambda x: x @ x.T),
    "matmul of a named type": (
        lambda x: relax.op.matmul(x, relax.op.permute_dims(x), out_dtype=str(x.ty.dtype)),
        lambda x: x @ x.T,
    ),
}


def module(op, dtype, is_open, rank=2):
    builder = relax.BlockBuilder()
    sizes = [tvm.tirx.Var("n", "int64") if is_open else 2, MANY, 1, 1][:rank]
    x = relax.Var("x", relax.TensorType(sizes, dtype))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op(x)))
    return builder.get()


def run(mod, x):
    return virtual_machine(mod)["main"](tvm.runtime.tensor(x)).numpy().astype("float64")


@pytest.mark.parametrize("is_open", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", OPS)
def test_wide_sums(name, dtype, is_open):
    op, definition = OPS[name]
    x = np.random.default_rng(0).uniform(0, 0.9, (2, MANY)).astype(numpy_type(dtype))
    got = run(module(op, dtype, is_open), x)
    # The result is rounded once; float32 adds 16 bits of MANY elements exactly enough.
    rtol = 2.0**-8 if dtype == "bfloat16" else 2.0**-10
    np.testing.assert_allclose(got, definition(x.astype("float64")), rtol=rtol, atol=2.0**-24)


@pytest.mark.parametrize("pool", ["avg_pool2d", "adaptive_avg_pool2d"])
def test_average_pool(pool):
    x = np.random.default_rng(0).uniform(0, 1, (2, 1, 300, 220)).astype("float16")
    size = {"pool_size": (300, 220)} if pool == "avg_pool2d" else {"output_size": 1}
    builder, var = relax.BlockBuilder(), relax.Var("x", relax.TensorType(x.shape, "float16"))
    with builder.function("main", [var]):
        builder.emit_func_output(builder.emit(getattr(relax.op.nn, pool)(var, **size)))
    want = x.astype("float64").mean((2, 3), keepdims=True)
    np.testing.assert_allclose(run(builder.get(), x), want, rtol=2.0**-10)


@pytest.mark.parametrize("out_dtype", [None, "float16"])
def test_convolution(out_dtype):
    def op(x):
        weight = relax.const(np.ones((1, MANY, 1, 1), "float16"))
        return relax.op.nn.conv2d(x, weight, out_dtype=out_dtype)

    x = np.random.default_rng(0).uniform(0, 0.9, (2, MANY, 1, 1)).astype("float16")
    want = x.astype("float64").sum(1, keepdims=True)
    np.testing.assert_allclose(run(module(op, "float16", True, rank=4), x), want, rtol=2.0**-10)


def test_a_partitioned_module_and_other_types():
    """What the partitioner leaves to TVM, and sums of float64, which are not narrowed."""
    for dtype in ("float16", "float64"):
        mod = tvm_dnnl.partition_for_dnnl(
            module(OPS["mean"][0], dtype, False), exclude=["mean"], prune=False
        )
        assert tvm_dnnl.offload_report(mod).offloaded == 0
        x = np.random.default_rng(0).uniform(0, 1, (2, MANY)).astype(dtype)
        rtol = 2.0**-10 if dtype == "float16" else 1e-13
        np.testing.assert_allclose(run(mod, x), x.astype("float64").mean(1), rtol=rtol)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_functions(dtype):
    """TVM has no code for these, which ended in an error."""
    inverse = [np.arccos, np.arcsin, np.arcsinh, np.arctan, np.arctanh]
    others = [np.arccosh, np.cosh, np.sinh, np.tan]
    binary = {"atan2": np.arctan2, "log_add_exp": np.logaddexp, "mod": np.fmod, "power": np.power}

    def every(x):
        y = relax.op.multiply(x, relax.const(2, dtype))
        calls = [
            getattr(relax.op, each.__name__.replace("arc", "a"))(operand)
            for operand, functions in ((x, inverse), (y, others))
            for each in functions
        ]
        calls += [getattr(relax.op, name)(x, y) for name in binary]
        for name in ("isfinite", "isinf", "isnan"):
            flags = getattr(relax.op, name)(relax.op.divide(x, relax.op.subtract(x, x)))
            calls.append(relax.op.astype(flags, dtype))
        return relax.op.stack(calls)

    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType([5], dtype))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(every(x)))
    values = np.array([0.5, 0.55, 0.6, 0.7, 0.75]).astype(numpy_type(dtype))
    got, wide = run(builder.get(), values), values.astype("float64")
    want = [each(wide) for each in inverse] + [each(2 * wide) for each in others]
    want += [each(wide, 2 * wide) for each in binary.values()] + [[0] * 5, [1] * 5, [0] * 5]
    rtol = 2.0**-8 if dtype == "bfloat16" else 2.0**-10
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
