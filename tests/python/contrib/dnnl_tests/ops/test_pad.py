# SPDX-License-Identifier: Apache-2.0
"""Frames around tensors: of one value, and of the data's own lines."""

import ml_dtypes
import numpy as np
import pytest
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import json_only
from dnnl_tests.reference import RTOL, conv2d, rand
from dnnl_tests.relay import module
from dnnl_tests.single_op import reasons, run_alone, var


def pad(x, widths, value=0.5):
    return relay.nn.pad(x, widths, value)


PADS = {
    "all-sides": ((1, 2), (0, 0), (3, 1), (2, 4)),
    "one-side": ((0, 0), (0, 0), (0, 0), (0, 3)),
    "channels": ((0, 0), (2, 1), (0, 0), (0, 0)),
    "none": ((0, 0),) * 4,
}


@pytest.mark.parametrize("widths", PADS.values(), ids=PADS.keys())
def test_pad_behind_a_function_and_a_convolution(widths):
    x, w = rand(2, 8, 6, 5), rand(16, 8, 3, 3, seed=1)
    attrs = dict(kernel_size=(3, 3), channels=16, padding=(1, 1))
    expected = np.abs(np.pad(np.tanh(x), widths, constant_values=0.5))
    expr = relay.abs(pad(relay.tanh(var("x", x.shape)), widths))
    run_alone(expr, {"x": x}, None, expected, kinds=["eltwise", "eltwise"], rtol=1e-6)
    expr = relay.tanh(pad(relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs), widths))
    expected = np.tanh(np.pad(conv2d(x, w, attrs), widths, constant_values=0.5))
    run_alone(expr, {"x": x}, {"w": w}, expected, kinds=["convolution", "eltwise"], rtol=RTOL)


@pytest.mark.parametrize("mode", ["edge", "reflect"])
@pytest.mark.parametrize("widths", PADS.values(), ids=PADS.keys())
def test_pad_with_the_data_themselves(mode, widths):
    x, w = rand(2, 8, 6, 5), rand(16, 8, 3, 3, seed=1)
    # A mirror needs a line more than it shows.
    widths = widths if mode == "edge" else ((1, 1), *widths[1:])
    attrs = dict(kernel_size=(3, 3), channels=16, padding=(1, 1))
    expected = np.abs(np.pad(np.tanh(x), widths, mode))
    expr = relay.abs(relay.nn.pad(relay.tanh(var("x", x.shape)), widths, pad_mode=mode))
    run_alone(expr, {"x": x}, None, expected, kinds=["eltwise", "eltwise"], rtol=1e-6)
    conv = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    expr = relay.tanh(relay.nn.pad(conv, widths, pad_mode=mode))
    expected = np.tanh(np.pad(conv2d(x, w, attrs), widths, mode))
    run_alone(expr, {"x": x}, {"w": w}, expected, kinds=["convolution", "eltwise"], rtol=RTOL)


def test_pad_of_a_tensor_that_others_read():
    x = rand(3, 4)
    y = relay.tanh(var("x", x.shape))
    expr = relay.add(relay.tanh(pad(y, ((0, 0), (0, 4)))), relay.concatenate([y, y], 1))
    t = np.tanh(x)
    expected = np.tanh(np.pad(t, ((0, 0), (0, 4)), constant_values=0.5)) + np.hstack([t, t])
    kinds = ["eltwise", "concat", "eltwise", "binary"]
    run_alone(expr, {"x": x}, None, expected, kinds=kinds, rtol=1e-6)


@json_only
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad_with_an_open_batch(mode):
    x = relay.var("x", shape=(relay.Any(), 4))
    padded = relay.nn.pad(relay.exp(x), ((0, 0), (1, 2)), -1.0, mode)
    mod = module(relay.tanh(padded))
    mod = dnnl.partition_for_dnnl(mod, prune=False)
    assert testing.offload(mod).ops["nn.pad"] == 1
    runner = testing.Runner(testing.build(mod, executor="vm"))
    for batch in (1, 3):
        data = rand(batch, 4)
        others = {"constant_values": -1.0} if mode == "constant" else {}
        expected = np.tanh(np.pad(np.exp(data), ((0, 0), (1, 2)), mode, **others))
        testing.assert_close(runner({"x": data}), [expected], 1e-6)


@pytest.mark.parametrize("type_", [ml_dtypes.bfloat16, np.float16])
def test_pad_of_reduced_precision_with_a_number(type_):
    """`relay.nn.pad` makes a float32 constant of a number, whatever the data are."""
    dtype = np.dtype(type_).name
    if not cpu.computes(dtype):
        pytest.skip(f"this CPU has no {dtype}")
    x, widths, value = rand(3, 8), ((1, 0), (2, 3)), 1 / 3
    padded = pad(relay.cast(var("x", x.shape), dtype), widths, value)
    mod = dnnl.partition_for_dnnl(module(relay.cast(padded, "float32")), prune=False)
    assert testing.offload(mod).ops["nn.pad"] == 1
    expected = np.pad(x, widths, constant_values=value).astype(type_).astype("float32")
    np.testing.assert_array_equal(direct.run(mod, {"x": x})[0], expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "uint8", "int8"])
def test_pad_with_a_plain_integer(dtype):
    """What `relay.nn.pad` pads with by default is an integer."""
    is_reduced = dtype in ("bfloat16", "float16")
    if is_reduced and not cpu.computes(dtype):
        pytest.skip(f"this CPU has no {dtype}")
    x, widths = (rand(3, 8) * 50).astype("float32" if is_reduced else dtype), ((1, 0), (2, 3))
    data = relay.var("x", shape=x.shape, dtype=str(x.dtype))
    padded = relay.nn.pad(relay.cast(data, dtype), widths, -3 if dtype != "uint8" else 200)
    mod = dnnl.partition_for_dnnl(module(relay.cast(padded, str(x.dtype))), prune=False)
    assert testing.offload(mod).ops["nn.pad"] == 1
    type_ = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    expected = np.pad(x.astype(type_), widths, constant_values=-3 if dtype != "uint8" else 200)
    np.testing.assert_array_equal(direct.run(mod, {"x": x})[0], expected.astype(x.dtype))


@json_only
def test_many_lines_are_copied_in_one_go():
    x = rand(3, 4)
    expr = relay.nn.pad(var("x", x.shape), ((33, 32), (0, 0)), pad_mode="edge")
    mod = dnnl.partition_for_dnnl(module(expr), prune=False)
    assert testing.offload(mod).ops["take"] == 1
    (got,) = direct.run(mod, {"x": x})
    np.testing.assert_array_equal(got, np.pad(x, ((33, 32), (0, 0)), "edge"))


def test_pads_that_stay():
    x, v = var("x", (3, 4)), relay.var("v", shape=())
    for expr, reason in (
        (relay.nn.pad(x, ((3, 0), (0, 0)), pad_mode="reflect"), "too large for the reflected"),
        (pad(x, ((-1, 0), (0, 0))), "negative"),
        (pad(x, ((1, 0), (0, 0)), v), "not a constant"),
        (
            pad(relay.var("i", shape=(3,), dtype="uint8"), ((1, 0),), 256),
            "int32 is not a value of uint8",
        ),
    ):
        assert reason in " ".join(reasons(expr))
