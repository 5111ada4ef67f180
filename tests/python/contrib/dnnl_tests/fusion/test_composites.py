# SPDX-License-Identifier: Apache-2.0
"""Composites of the DNNL backend: what is fused, and that the fused primitive is right."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import json_only
from dnnl_tests.reference import RTOL, batch_norm, conv2d, dense, rand
from dnnl_tests.single_op import run_alone, run_planned, var

LAYOUTS = {"nchw": ("NCHW", "OIHW", (16, 1, 1)), "nhwc": ("NHWC", "HWIO", (16,))}


def run_with_plans(mod, inputs, params, reference, rtol=RTOL):
    """Partition, run, compare; return the composites and the post-ops of each primitive."""
    partitioned = dnnl.partition_for_dnnl(mod, params)
    runner = direct.Runner(partitioned)
    testing.assert_close(runner(inputs), reference, rtol)
    primitives = [step for plan in testing.plans(runner) for step in plan["primitives"]]
    return (
        dict(testing.offload(partitioned).composites),
        [step["post_ops"] for step in primitives if step["kind"] != "reorder"],
    )


def conv_case(layout, groups=1):
    """Return attributes, data and weights of a conv2d with 16 channels in and out."""
    data_layout, kernel_layout, _ = LAYOUTS[layout]
    attrs = dict(kernel_size=(3, 3), channels=16, padding=(1, 1), groups=groups)
    attrs.update(data_layout=data_layout, kernel_layout=kernel_layout)
    x = rand(*[dict(N=1, C=16, H=8, W=10)[c] for c in data_layout])
    w = rand(*[dict(O=16, I=16 // groups, H=3, W=3)[c] for c in kernel_layout], seed=1)
    return attrs, x, w


BIASES = {
    "add-per-channel": lambda out, b, axis: out + b,
    "add-bias-first": lambda out, b, axis: b + out,
    "bias_add": lambda out, b, axis: relay.nn.bias_add(out, b, axis=axis),
}


@pytest.mark.parametrize("relu", [True, False], ids=["relu", "linear"])
@pytest.mark.parametrize("constant", [True, False], ids=["const-bias", "var-bias"])
@pytest.mark.parametrize("groups", [1, 4, 16])
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_conv2d_bias(layout, bias, groups, constant, relu):
    attrs, x, w = conv_case(layout, groups)
    axis = attrs["data_layout"].index("C")
    b = rand(16, seed=2) if bias == "bias_add" else rand(*LAYOUTS[layout][2], seed=2)
    expr = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    expr = BIASES[bias](expr, var("b", b.shape), axis)
    expected = conv2d(x, w, attrs) + b.reshape(LAYOUTS[layout][2])
    if relu:
        expr, expected = relay.nn.relu(expr), np.maximum(expected, 0)
    inputs, params = ({"x": x}, {"w": w, "b": b}) if constant else ({"x": x, "b": b}, {"w": w})
    composites, post_ops = run_with_plans(tvm.IRModule.from_expr(expr), inputs, params, [expected])
    assert composites == {"dnnl.conv2d_bias_relu" if relu else "dnnl.conv2d_bias": 1}
    assert post_ops == [["bias", "eltwise_relu"] if relu else ["bias"]]


@pytest.mark.parametrize("constant", [True, False], ids=["const-slopes", "var-slopes"])
@pytest.mark.parametrize("groups", [1, 16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_conv2d_bias_prelu_sum(layout, groups, constant):
    attrs, x, w = conv_case(layout, groups)
    axis, shape = attrs["data_layout"].index("C"), LAYOUTS[layout][2]
    a, b = rand(16, seed=2), rand(*shape, seed=3)
    a[[2, 9]] = np.inf, np.nan
    out = conv2d(x, w, attrs) + b
    z = rand(*out.shape, seed=4)
    expr = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs) + var("b", b.shape)
    expr = relay.nn.prelu(expr, var("a", a.shape), axis) + var("z", z.shape)
    expected = np.where(out < 0, out * a.reshape(shape), out) + z
    inputs, params = {"x": x, "z": z}, {"w": w, "b": b}
    (params if constant else inputs)["a"] = a
    composites, post_ops = run_with_plans(tvm.IRModule.from_expr(expr), inputs, params, [expected])
    assert composites == {"dnnl.conv2d_bias_prelu_sum": 1}
    assert [each[:2] for each in post_ops] == [["bias", "prelu"]]


@pytest.mark.parametrize("constant", [True, False], ids=["const-slopes", "var-slopes"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_prelu_of_reduced_precision(dtype, constant):
    """The slopes are float32 for oneDNN, beside data of any type."""
    if not cpu.computes(dtype):
        pytest.skip(f"{dtype} needs instructions that this CPU lacks")
    attrs, x, w = conv_case("nchw")
    a, last = rand(16, seed=2), rand(8, 16, 1, 1, seed=3)
    expr = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    expr = relay.nn.prelu(expr, var("a", a.shape))
    mod = tvm.IRModule.from_expr(relay.nn.conv2d(expr, var("last", last.shape)))
    inputs, params = {"x": x}, {"w": w, "last": last}
    (params if constant else inputs)["a"] = a
    partitioned = dnnl.partition_for_dnnl(mod, params, precision=dtype, prune=False)
    runner = direct.Runner(partitioned)
    out = conv2d(x, w, attrs)
    out = np.where(out < 0, out * a.reshape(16, 1, 1), out)
    expected = np.einsum("nchw,oc->nohw", out, last[:, :, 0, 0])
    # Data, weights and what is between the convolutions are rounded to 8 or 11 bits.
    bound = {"bfloat16": 2**-7, "float16": 2**-10}[dtype]
    error = runner(inputs)[0] - expected
    assert np.sqrt(np.mean(error**2) / np.mean(expected**2)) < bound
    primitives = [step for plan in testing.plans(runner) for step in plan["primitives"]]
    fused = [step["post_ops"] for step in primitives if step["kind"] == "convolution"]
    assert fused == [["prelu"], []]


def test_slopes_along_another_axis_are_not_fused():
    attrs, x, w = conv_case("nchw")
    a, out = rand(8, seed=2), conv2d(x, w, attrs)
    conv = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    expr = relay.nn.prelu(conv, var("a", a.shape), axis=2)
    expected = np.where(out < 0, out * a.reshape(8, 1), out)
    mod = tvm.IRModule.from_expr(expr)
    composites, post_ops = run_with_plans(mod, {"x": x}, {"w": w, "a": a}, [expected])
    assert (composites, post_ops) == ({}, [[], []])


@pytest.mark.parametrize("relu", [True, False], ids=["relu", "linear"])
@pytest.mark.parametrize("shape", [(1, 64), (6, 33), (2, 3, 20)], ids=str)
@pytest.mark.parametrize("bias", BIASES)
def test_dense_bias(bias, shape, relu):
    x, w, b = rand(*shape), rand(24, shape[-1], seed=1), rand(24, seed=2)
    expr = relay.nn.dense(var("x", shape), var("w", w.shape))
    expr, expected = BIASES[bias](expr, var("b", b.shape), -1), dense(x, w) + b
    if relu:
        expr, expected = relay.nn.relu(expr), np.maximum(expected, 0)
    mod = tvm.IRModule.from_expr(expr)
    composites, post_ops = run_with_plans(mod, {"x": x}, {"w": w, "b": b}, [expected])
    assert composites == {"dnnl.dense_bias_relu" if relu else "dnnl.dense_bias": 1}
    assert post_ops == [["bias", "eltwise_relu"] if relu else ["bias"]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_chain_of_post_ops_keeps_its_order(layout):
    """Per-tensor, per-channel and whole operands, in any order; the second add is no bias."""
    attrs, x, w = conv_case(layout)
    conv, out = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs), conv2d(x, w, attrs)
    scale, shift = rand(*LAYOUTS[layout][2], seed=3), rand(*LAYOUTS[layout][2], seed=4)
    residual, factor = rand(*out.shape, seed=5), np.float32(0.3)
    expr = relay.nn.relu(conv * var("a", scale.shape)) + var("z", residual.shape)
    expr = relay.nn.relu(expr * relay.const(factor) + var("b", shift.shape))
    expected = np.maximum((np.maximum(out * scale, 0) + residual) * factor + shift, 0)
    # A constant factor would go into the weight.
    inputs = {"x": x, "z": residual, "a": scale}
    composites, post_ops = run_with_plans(
        tvm.IRModule.from_expr(expr), inputs, {"w": w, "b": shift}, [expected]
    )
    assert composites == {"dnnl.conv2d_multiply_relu_sum_multiply_add_relu": 1}
    mul, add, relu = "binary_mul", "binary_add", "eltwise_relu"
    # What is reordered first, the convolution adds in the memory of the copy.
    first_add = "sum" if layout == "nchw" else add
    assert post_ops == [[mul, relu, first_add, mul, add, relu]]


def test_a_value_that_is_used_twice_ends_the_chain():
    attrs, x, w = conv_case("nchw")
    conv = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    expr = relay.nn.relu(conv) * conv
    out = conv2d(x, w, attrs)
    mod = tvm.IRModule.from_expr(expr)
    composites, _ = run_with_plans(mod, {"x": x}, {"w": w}, [np.maximum(out, 0) * out])
    assert composites == {"dnnl.relu_multiply": 1}


def test_a_chain_that_oneDNN_has_no_code_for_is_run_in_steps():
    """The composite stays one node of the graph; the plan has a step for each of its ops."""
    x, y, z = rand(2, 3, 4, 5), rand(2, 3, 4, 5, seed=1), rand(2, 3, 4, 5, seed=2)
    expr = relay.nn.relu(var("x", x.shape)) * var("y", y.shape) + var("z", z.shape)
    mod = tvm.IRModule.from_expr(expr)
    partitioned = dnnl.partition_for_dnnl(mod, prune=False)
    runner = direct.Runner(partitioned)
    testing.assert_close(runner({"x": x, "y": y, "z": z}), [np.maximum(x, 0) * y + z], RTOL)
    steps = [step for plan in testing.plans(runner) for step in plan["primitives"]]
    assert not any(step["reference"] for step in steps)


@json_only
def test_layouts_are_passed_on_from_conv_to_conv():
    """Between two convolutions with an add there is no way through row-major layout."""
    attrs, x, w = conv_case("nchw")
    data, weight = var("x", x.shape), var("w", w.shape)
    first = relay.nn.relu(relay.nn.conv2d(data, weight, **attrs))
    second = relay.nn.relu(relay.nn.conv2d(first, weight, **attrs))
    mod = tvm.IRModule.from_expr(second + first)
    a = np.maximum(conv2d(x, w, attrs), 0)
    expected = np.maximum(conv2d(a, w, attrs), 0) + a
    steps = run_planned(dnnl.partition_for_dnnl(mod, {"w": w}), {"x": x}, [expected], 2 * RTOL)
    reorders = [step for step in steps if step["kind"] == "reorder"]
    # At most one into the plan and one out of it; the weights are packed before the first run.
    assert len(reorders) <= 2
    inner = [step["src"] for step in steps if step["kind"] != "reorder"][1:]
    assert all(layout != "abcd" for layout in inner)


NAMES = ("gamma", "beta", "mean", "variance")


def normal(x, axis):
    """Return a batch_norm of a variable with variables for its statistics."""
    return relay.nn.batch_norm(x, *(var(name, (8,)) for name in NAMES), axis=axis)


def values():
    return {n: np.abs(rand(8, seed=i)) + np.float32(0.5) for i, n in enumerate(NAMES)}


@pytest.mark.parametrize(
    "shape, axis",
    [((2, 8, 5, 6), 1), ((2, 5, 6, 8), 3), ((3, 8), 1), ((2, 3, 8, 2, 2, 2), 2)],
    ids=["NCHW", "NHWC", "rows", "rank-6"],
)
def test_fused(shape, axis):
    x = rand(*shape)
    expr = relay.nn.relu(normal(var("x", shape), axis)[0])
    want = np.maximum(batch_norm(x, *values().values(), {"axis": axis}), 0)
    (step,) = run_alone(
        expr,
        {"x": x, **values()},
        {},
        want,
        kinds=["batch_normalization"],
        rtol=RTOL,
        composites={"dnnl.batch_norm_relu": 1},
    )
    assert step["post_ops"] == ["eltwise_relu"]


@pytest.mark.parametrize("shape", [(2, 8, 5, 6), (3, 8), (2, 8, 1, 1), (2, 8, 3)], ids=str)
def test_fused_with_constants(shape):
    """Then it is a factor and a summand of each channel."""
    x = rand(*shape)
    (step,) = run_alone(
        relay.nn.relu(normal(var("x", shape), 1)[0]),
        {"x": x},
        values(),
        np.maximum(batch_norm(x, *values().values(), {"axis": 1}), 0),
        kinds=["binary"],
        rtol=RTOL,
        composites={"dnnl.multiply_add_relu": 1},
    )
    assert step["post_ops"] == ["binary_add", "eltwise_relu"]


def composites(expr, **options):
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), prune=False, **options)
    report = dnnl.offload_report(mod)
    return mod, report.composites


def test_other_results_in_use():
    """A batch norm passes its statistics on: it is fused all the same."""
    x = var("x", (2, 8, 5, 6))
    bn = normal(x, 1)
    mod, counts = composites(relay.Tuple([relay.nn.relu(bn[0]), bn[1]]))
    assert counts == {"dnnl.batch_norm_relu": 1}
    data = {"x": rand(2, 8, 5, 6), **values()}
    relu, mean = direct.run(mod, data)
    want = np.maximum(batch_norm(data["x"], *values().values(), {}), 0)
    testing.assert_close([relu, mean], [want, data["mean"]], RTOL)


def test_other_functions_are_not_fused():
    assert not composites(relay.tanh(normal(var("x", (2, 8, 5, 6)), 1)[0]))[1]
