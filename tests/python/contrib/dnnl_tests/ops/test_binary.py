# SPDX-License-Identifier: Apache-2.0
"""Binary elementwise ops and comparisons on oneDNN, with numpy's broadcasting, against numpy."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.reference import conv2d, rand
from dnnl_tests.single_op import reasons, run_alone, run_planned, var

OPS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


@pytest.mark.parametrize("op", OPS)
def test_operand_that_is_used_twice(op):
    x = rand(4, 8) + np.float32(2)
    data = var("x", x.shape)
    expr = getattr(relay, op)(data, data)
    run_alone(expr, {"x": x}, None, OPS[op](x, x), kinds=["binary"], rtol=0)


@pytest.mark.parametrize(
    "small", [(1, 20, 1, 1), (20, 1, 1), (1, 1, 7, 7), (7,), (7, 1), ()], ids=str
)
@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
@pytest.mark.parametrize("op", OPS)
def test_between_convolutions(op, first, small):
    """20 channels in blocks of 8 or 16 leave padding: what is there must not come back."""
    if op == "divide" and not first:
        pytest.skip("the divisor may be near zero")
    x, y = rand(1, 20, 9, 9), np.float32(2) + rand(*small, seed=1)
    w, v = rand(20, 20, 3, 3, seed=2), rand(20, 20, 3, 3, seed=3)
    attrs = dict(kernel_size=(3, 3), channels=20)
    conv = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    operands = [conv, var("y", small)]
    middle = getattr(relay, op)(*(operands if first else operands[::-1]))
    # Another user of the convolution, so that nothing is fused to it.
    expr = relay.Tuple([relay.nn.conv2d(middle, var("v", v.shape), **attrs), conv])
    out = conv2d(x, w, attrs)
    between = OPS[op](*((out, y) if first else (y, out)))
    mod = tvm.IRModule.from_expr(expr)
    partitioned = dnnl.partition_for_dnnl(mod, {"w": w, "v": v})
    assert testing.offload(partitioned).partitions == 1
    steps = run_planned(partitioned, {"x": x, "y": y}, [conv2d(between, v, attrs), out], 4e-5)
    assert not [step for step in steps if step["reference"]]


@pytest.mark.parametrize("op", OPS)
def test_fused_to_a_convolution_with_padding(op):
    x, y = rand(1, 20, 9, 9), np.float32(2) + rand(20, 1, 1, seed=1)
    w, v = rand(20, 20, 3, 3, seed=2), rand(20, 20, 3, 3, seed=3)
    attrs = dict(kernel_size=(3, 3), channels=20)
    middle = getattr(relay, op)(
        relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs), var("y", y.shape)
    )
    expr = relay.nn.conv2d(middle, var("v", v.shape), **attrs)
    between = OPS[op](conv2d(x, w, attrs), y)
    mod = tvm.IRModule.from_expr(expr)
    partitioned = dnnl.partition_for_dnnl(mod, {"w": w, "v": v, "y": y})
    results = direct.run(partitioned, {"x": x})
    testing.assert_close(results, [conv2d(between, v, attrs)], 4e-5)


@pytest.mark.parametrize("op", ["add", "divide"])
def test_broadcast_with_post_ops(op):
    x, y = 2 + rand(2, 16, 1, 1), 2 + rand(2, 1, 9, 9, seed=1)
    expr = relay.nn.relu(getattr(relay, op)(var("x", x.shape), var("y", y.shape)))
    (result,) = [run(expr, {"x": x, "y": y})]
    np.testing.assert_allclose(result, np.maximum(OPS[op](x, y), 0), rtol=1e-6)


COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def run(expr, inputs):
    """Run an expression, all of which must be one partition."""
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), prune=False)
    offload = testing.offload(mod)
    assert offload.partitions == 1 and not offload.host_ops, f"{offload}\n{mod}"
    return direct.run(mod, inputs)[0]


def few(*shape, seed=0):
    """Return values of which many are equal."""
    return np.round(2 * rand(*shape, seed=seed))


@pytest.mark.parametrize("is_broadcast", [False, True], ids=["same-shape", "broadcast"])
@pytest.mark.parametrize("op", COMPARISONS)
def test_special_values(op, is_broadcast):
    special = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40], "float32")
    x, y = special[:, None], special
    if not is_broadcast:
        x, y = map(np.ascontiguousarray, np.broadcast_arrays(x, y))
    results = run(getattr(relay, op)(var("x", x.shape), var("y", y.shape)), {"x": x, "y": y})
    np.testing.assert_array_equal(results, getattr(np, op)(x, y))


def test_behind_a_blocked_layout():
    x, w = rand(1, 16, 9, 9), rand(20, 16, 3, 3, seed=1)
    conv = relay.nn.conv2d(var("x", x.shape), relay.const(w), channels=20, kernel_size=(3, 3))
    expr = relay.greater(conv, relay.const(np.float32(0.5)))
    (want,) = direct.run(tvm.IRModule.from_expr(expr), {"x": x})
    results = run(expr, {"x": x})
    assert (results != want).mean() < 1e-3


def test_mask_of_numbers():
    """The truths go on as numbers."""
    x = few(4, 33)
    data = var("x", x.shape)
    truths = relay.cast(relay.less(data, relay.const(np.float32(0.5))), "float32")
    results = run(truths * data, {"x": x})
    np.testing.assert_array_equal(results, (x < 0.5) * x)


def refused(op, lhs, rhs, dtype="float32"):
    operands = (relay.var(name, shape=s, dtype=dtype) for name, s in (("x", lhs), ("y", rhs)))
    return getattr(relay, op)(*operands)


REFUSED = {
    "scalars": (refused("multiply", (), ()), "the result is a scalar"),
    "logical": (refused("logical_and", (4,), (4,), "int32"), "an operand is not bool"),
    "compared-scalars": (relay.less(var("a", ()), var("b", ())), "the result is a scalar"),
}


@pytest.mark.parametrize("expr, text", REFUSED.values(), ids=REFUSED.keys())
def test_refused(expr, text):
    (reason,) = reasons(expr)
    assert text in reason
