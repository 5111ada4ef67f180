# SPDX-License-Identifier: Apache-2.0
"""Ops that oneDNN or numpy would compute otherwise than TVM: what stays, and the numbers."""

import numpy as np
import pytest
import tvm_dnnl
from tvm import relax
from tvm.relax import op

from dnnl_relax.modules import X2, X3, check, compiled, module, rand, run, var


def _quantized(builder, x, op, zero_point):
    scale, zero = relax.const(0.1, "float32"), relax.const(zero_point)
    attrs = {"out_dtype": "int8"} if op is relax.op.quantize else {}
    return builder.emit(op(x, scale, zero, axis=1, **attrs))


def _by_weight(dtype):
    """A matmul by a weight with a zero point of one half."""
    weight = np.random.default_rng(0).integers(0, 99, (8, 3)).astype(dtype)

    def build(builder, x):
        weight_ = relax.const(weight)
        return op.matmul(x, _quantized(builder, weight_, op.dequantize, np.float16(0.5)))

    return build


def _rounded(builder, x):
    """What is one less than the integers before."""
    y = _quantized(builder, x, op.quantize, np.int8(0))
    y = _quantized(builder, y, op.dequantize, np.float16(0.75))
    y = _quantized(builder, y, op.quantize, np.int8(0))
    return _quantized(builder, y, op.dequantize, np.int8(0))


# By name: the function, its parameters, the op that stays, and why.
CASES = {
    **{
        f"{name}-of-no-axis": (
            lambda b, x, name=name: op.nn.relu(b.emit(getattr(op, name)(x, []))),
            [X3],
            name,
            "axis=[] reduces no axis",
        )
        for name in ("max", "mean", "min", "prod", "sum")
    },
    "zero-point-of-a-half": (
        lambda b, x: _quantized(b, x, op.dequantize, np.float16(0.5)),
        [var("x", 4, 8, dtype="int8")],
        "dequantize",
        "the zero point is not an integer",
    ),
    "rounded-to-other-integers": (
        _rounded,
        [var("x", 4, 8)],
        "dequantize",
        "the zero point is not an integer",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_as_tvm_computes_it(case):
    build, params, name, reason = CASES[case]
    inputs = [(rand(*shape, seed=k) * 9).astype(d) for k, (_, shape, d) in enumerate(params)]
    partitioned = check(module(build, *params), None, *inputs)
    (text,) = tvm_dnnl.offload_report(partitioned).reasons[name]
    assert reason in text


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_weights_with_a_zero_point_of_a_half(dtype):
    """They are folded, with their half."""
    check(module(_by_weight(dtype), X2), {"dnnl.dense": 1}, rand(4, 8), tolerance=1e-4)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "dtype, divisor", [("int64", (2, 0)), ("int64", (2, -4)), ("float32", (2, 0))]
)
def test_constants_are_divided_without_a_warning(dtype, divisor):
    """By zero, integers are not."""
    one, other = (relax.const(np.array(each), dtype) for each in ([7, -7], divisor))

    def build(b, x):
        quotient = b.emit(op.divide(one, other))
        return op.nn.relu(b.emit(op.add(x, quotient)))

    mod = module(build, var("x", 4, 2, dtype=dtype))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    is_left = "divide" in tvm_dnnl.offload_report(partitioned).ops
    assert is_left == (dtype == "int64" and 0 in divisor)
    if not is_left:
        x = (rand(4, 2) * 9).astype(dtype)
        np.testing.assert_array_equal(*(run(each, x)[0] for each in (compiled(partitioned), mod)))


@pytest.mark.filterwarnings("error")
def test_constants_that_are_too_large():
    """They are infinite."""
    mod = module(
        lambda b, x: op.add(x, b.emit(op.multiply(*[relax.const(np.full(2, 300, "float16"))] * 2))),
        var("x", 4, 2, dtype="float16"),
    )
    x = rand(4, 2, dtype="float16")
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert "multiply" not in tvm_dnnl.offload_report(partitioned).ops
    assert np.isposinf(run(compiled(partitioned), x)[0]).all()
