# SPDX-License-Identifier: Apache-2.0
"""Convolutions that compute only what the strided 1x1 convolutions after them read."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib._dnnl.ir.dataflow_graph import op_calls
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import json_only
from dnnl_tests.quantized import Quantization, run_quantized
from dnnl_tests.reference import conv as numpy_conv
from dnnl_tests.reference import rand
from dnnl_tests.relay import const, conv, module, partition, var

X_SHAPE = (1, 8, 12, 16)
x = var("x", *X_SHAPE)
relu = relay.nn.relu


def every(data, *strides, seed=1, **attrs):
    """A 1x1 convolution that reads every so many spatial positions."""
    return conv(data, kernel=1, strides=strides, seed=seed, **attrs)


def both(data):
    """Two convolutions that skip the same spatial positions."""
    return every(data, 2, 2) + every(data, 2, 2, seed=2)


def batch_norm(data):
    values = [relay.const(np.abs(rand(8, seed=seed)) + np.float32(0.5)) for seed in range(4)]
    return relay.nn.batch_norm(data, *values)[0]


def hard_swish(data):
    bounded = relay.clip(data + relay.const(3.0), 0.0, 6.0)
    return data * bounded / relay.const(6.0)


def conv_nd(rank, data, kernel, layout, kernel_layout, in_channels=8, **attrs):
    """A convolution over any number of dimensions, to 8 channels."""
    sizes = {"O": 8, "I": in_channels, **dict.fromkeys("DHW", kernel)}
    weight = const(*(sizes[letter] for letter in kernel_layout))
    return getattr(relay.nn, f"conv{rank}d")(
        data,
        weight,
        channels=8,
        kernel_size=(kernel,) * rank,
        padding=(kernel // 2,) * rank,
        data_layout=layout,
        kernel_layout=kernel_layout,
        **attrs,
    )


def pair(rank, shape, layout, kernel_layout):
    """A convolution and a strided 1x1 convolution after it."""
    first = conv_nd(rank, var("x", *shape), 3, layout, kernel_layout)
    return conv_nd(rank, relu(first), 1, layout, kernel_layout, strides=(2,) * rank)


def residual_pair(rank, shape, layout, kernel_layout):
    """The same with a residual."""
    data = var("x", *shape)
    first = conv_nd(rank, data, 3, layout, kernel_layout) + data
    return conv_nd(rank, relu(first), 1, layout, kernel_layout, strides=(2,) * rank)


# By name: the expression, the strides of its convolutions afterwards, and how many residuals are
# subsampled.
SKIPPED = {
    "relu": (every(relu(conv(x)), 2, 2), [(2, 2), (1, 1)], 0),
    "one-axis": (every(relu(conv(x)), 1, 2), [(1, 2), (1, 1)], 0),
    "two-readers": (both(relu(conv(x) + const(8, 1, 1))), [(2, 2), (1, 1), (1, 1)], 0),
    "residual": (both(relu(conv(x) + x)), [(2, 2), (1, 1), (1, 1)], 1),
    "pre-activated": (both(relu(batch_norm(conv(x) + x))), [(2, 2), (1, 1), (1, 1)], 1),
    "formula": (every(hard_swish(conv(x)), 2, 2), [(2, 2), (1, 1)], 0),
    "through-1x1": (every(conv(conv(x), kernel=1), 2, 2), [(2, 2), (1, 1), (1, 1)], 0),
    "strides-multiply": (
        every(relu(every(conv(x, strides=(1, 2)), 2, 2)), 2, 1),
        [(4, 4), (1, 1), (1, 1)],
        0,
    ),
    "as-far-as-shared": (
        both(every(relu(conv(x)), 2, 2) + every(x, 2, 2)),
        [(4, 4), (4, 4), (1, 1), (1, 1), (1, 1)],
        0,
    ),
    "odd-size": (
        every(relu(conv(var("x", 1, 8, 9, 7))), 2, 2),
        [(2, 2), (1, 1)],
        0,
    ),
    "residual-of-odd-size": (
        every(conv(var("x", 1, 8, 9, 7)) + var("r", 1, 8, 9, 7), 2, 2),
        [(2, 2), (1, 1)],
        1,
    ),
    "residual-of-one-channel": (
        every(conv(x) * relay.sigmoid(conv(x, out_channels=1)), 2, 2),
        [(2, 2), (2, 2), (1, 1)],
        0,
    ),
    "channels-last": (pair(2, (1, 6, 8, 8), "NHWC", "HWIO"), [(2, 2), (1, 1)], 0),
    "residual-channels-last": (
        residual_pair(2, (1, 6, 8, 8), "NHWC", "HWIO"),
        [(2, 2), (1, 1)],
        1,
    ),
    "residual-signal": (residual_pair(1, (1, 8, 20), "NCW", "OIW"), [(2,), (1,)], 1),
    "signal": (pair(1, (1, 8, 20), "NCW", "OIW"), [(2,), (1,)], 0),
    "volume": (pair(3, (1, 8, 4, 6, 6), "NCDHW", "OIDHW"), [(2, 2, 2), (1, 1, 1)], 0),
}


def convs_and_parts(mod):
    """Return the strides of the convolutions of a module, sorted, and how much is subsampled."""
    calls = [call for func in mod.functions.values() for call in op_calls(func)]
    strides = [
        tuple(map(int, call.attrs.strides)) for call in calls if call.op.name.startswith("nn.conv")
    ]
    pools = [call for call in calls if "avg_pool" in call.op.name or "max_pool" in call.op.name]
    return sorted(strides), sum(set(map(int, call.attrs.pool_size)) == {1} for call in pools)


def data_of(mod):
    return {
        param.name_hint: rand(*map(int, param.checked_type.shape)) for param in mod["main"].params
    }


@pytest.mark.parametrize("name", SKIPPED)
def test_strides_are_propagated(name):
    expr, strides, parts = SKIPPED[name]
    mod = module(expr)
    partitioned = direct.check(mod, data_of(mod), partitions=1)
    assert convs_and_parts(partitioned) == (sorted(strides), parts)


def with_shape(expr, shape):
    """Return an expression whose variables have another shape; None is an open size."""
    known = relay.analysis.free_vars(expr)
    return relay.bind(expr, {each: var(each.name_hint, *shape) for each in known})


# An axis, a residual, and each layout are compiled; of the others the graph says it all.
COMPILED = ("one-axis", "residual-channels-last", "volume")


@json_only
@pytest.mark.parametrize("name", SKIPPED)
def test_with_open_sizes(name):
    """Of open batch, height and width, with sizes that are multiples of the strides or not."""
    expr, strides, parts = SKIPPED[name]
    known, *others = relay.analysis.free_vars(expr)
    shape = [int(size) for size in known.type_annotation.shape]
    channels = len(shape) - 1 if "last" in name else 1
    partitioned = partition(
        module(with_shape(expr, [n if k == channels else None for k, n in enumerate(shape)]))
    )
    # Another input may be of another size.
    want = convs_and_parts(module(expr)) if others else (sorted(strides), parts)
    assert convs_and_parts(partitioned) == want
    report = dnnl.offload_report(partitioned)
    assert (report.offloaded, report.partitions) == (report.total, 1), report
    if name not in COMPILED:
        return
    runner = testing.Runner(testing.build(partitioned, executor="vm", opt_level=1))
    least = min(n for k, n in enumerate(shape) if k not in (0, channels))
    for batch, more in ((1, 0), (3, -1), (2, 3), (1, 1 - least)):
        sizes = [n if k == channels else n + more for k, n in enumerate(shape)]
        static = module(with_shape(expr, [batch, *sizes[1:]]))
        inputs = data_of(static)
        testing.assert_close(runner(inputs), direct.run(static, inputs))


def test_open_sizes_that_may_differ():
    """Each of two inputs could be as long as the other, or one shorter: that is to be an error."""
    x_open, r_open = (var(name, 1, 8, None, None) for name in "xr")
    for expr in (
        every(conv(x_open) + r_open, 2, 2),
        every(relu(conv(x_open)) + conv(r_open), 2, 2),
    ):
        mod = module(expr)
        partitioned = partition(mod)
        assert convs_and_parts(partitioned) == convs_and_parts(mod)


def test_an_open_batch_is_no_hindrance():
    """Only where elements are skipped the sizes need be the same."""
    first, residual = (var(name, None, *X_SHAPE[1:]) for name in "xr")
    mod = module(every(conv(first) + residual, 2, 2))
    partitioned = partition(mod)
    assert convs_and_parts(partitioned) == ([(1, 1), (2, 2)], 1)


def test_what_is_left_out_of_a_residual_is_not_changed():
    """Infinities and what is no number are kept, as a maximum would not."""
    data = np.zeros((1, 8, 3, 3), "float32")
    data[0, :4, 0, 2] = [np.inf, -np.inf, np.nan, np.float32(1e-45)]
    zero = relay.const(np.zeros((8, 8, 3, 3), "float32"))
    x3 = var("x", *data.shape)
    y = relay.nn.conv2d(relay.nn.relu(var("z", *data.shape)), zero, padding=(1, 1)) + x3
    # Each channel by itself: what is no number would be in the sums of the others.
    y = relay.nn.conv2d(y, relay.const(np.ones((8, 1, 1, 1), "float32")), strides=(2, 2), groups=8)
    mod = module(y)
    partitioned = partition(mod)
    assert convs_and_parts(partitioned)[1] == 1
    (result,) = direct.run(partitioned, {"x": data, "z": np.zeros_like(data)})
    np.testing.assert_array_equal(result, data[:, :, ::2, ::2])


@pytest.mark.parametrize("shape", [(1, 16, 14, 14), (2, 3, 8, 8)])
def test_what_is_left_is_not_changed(shape):
    """The result is that of the same convolution with a longer stride."""
    data = var("x", *shape)
    channels = shape[1]
    plain = module(conv(conv(data, in_channels=channels, strides=(2, 2)), kernel=1))
    propagated = module(every(conv(data, in_channels=channels), 2, 2, seed=0))
    inputs = {"x": rand(*shape)}
    (want,) = direct.run(partition(plain), inputs)
    (got,) = direct.run(partition(propagated), inputs)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "channels,axis,strides", [(8, 1, (2, 2)), (12, 2, (1, 1))], ids=["channels", "rows"]
)
def test_scales_along_an_axis(channels, axis, strides):
    quantization = Quantization(np.linspace(0.02, 0.05, channels), 0, "int8", axis)
    data = quantization.dequantize(quantization.quantize(relu(conv(x))))
    convs, _ = convs_and_parts(partition(module(every(data, 2, 2))))
    assert strides in convs and len(set(convs)) == 2


def test_of_8_bits():
    """Pairs of quantize and dequantize are passed; a residual is subsampled in 8 bits."""
    data, out = Quantization(0.02, 131, "uint8"), Quantization(0.11, 120, "uint8")
    weight = Quantization(np.linspace(0.004, 0.02, 8), 0, "int8", 0)
    inputs = {"x": data.values(*X_SHAPE), "r": out.values(*X_SHAPE, seed=1)}
    w, v = weight.values(8, 8, 3, 3, low=-64, high=64), weight.values(8, 8, 1, 1, low=-64, high=64)
    window = dict(kernel_size=(3, 3), padding=(1, 1), channels=8)
    pointwise = dict(kernel_size=(1, 1), strides=(2, 2), channels=8)
    r = out.dequantize(out.var("r", *X_SHAPE))
    real = data.dequantize(data.var("x", *X_SHAPE))
    real = relay.nn.conv2d(real, weight.dequantize(w), **window)
    real = out.dequantize(out.quantize(real)) + r
    real = relu(out.dequantize(out.quantize(real)))
    real = out.dequantize(out.quantize(real))
    real = relay.nn.conv2d(real, weight.dequantize(v), **pointwise)
    want = numpy_conv(data.real(inputs["x"]), weight.real(w), window)
    for sum_ in (0, out.real(inputs["r"])):
        want = out.real(out.nearest(want + sum_))
    want = numpy_conv(np.maximum(want, 0), weight.real(v), pointwise)
    counts = {"dnnl.qnn.conv2d_quantize_sum_quantize_relu_quantize": 1}
    counts["dnnl.qnn.conv2d_quantize"] = 1
    real = out.quantize(real)
    assert convs_and_parts(partition(module(real))) == ([(1, 1), (2, 2)], 1)
    run_quantized(real, inputs, out.nearest(want), composites=counts)


y = relu(conv(x))
KEPT = {
    "result": relay.Tuple([y, every(y, 2, 2)]),
    "other-strides": relay.concatenate(
        [relay.reshape(every(y, 2, 2), (-1,)), relay.reshape(every(y, 2, 1), (-1,))], 0
    ),
    "whole-reader": relay.Tuple([every(y, 2, 2), conv(y)]),
    "3x3": conv(y, strides=(2, 2)),
    "padded": every(y, 2, 2, padding=(1, 1)),
    "input": every(relu(x), 2, 2),
    "pool": every(relay.nn.max_pool2d(y, (2, 2)), 2, 2),
    "varies-on-rows": every(y * var("f", 16), 2, 2),
    "channels-of-another-layout": conv_nd(
        2, conv(x, kernel=1), 1, "NHWC", "HWIO", strides=(2, 1), in_channels=16
    ),
    "weight": relay.nn.conv2d(
        relu(conv(var("x", 8, 8, 1, 1), kernel=1)),
        relu(conv(var("w", 8, 8, 1, 1), kernel=1)),
        kernel_size=(1, 1),
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_kept(name):
    expr = KEPT[name]
    mod = module(*(expr.fields if isinstance(expr, relay.Tuple) else [expr]))
    partitioned = partition(mod, prune=False)
    assert convs_and_parts(partitioned) == convs_and_parts(mod)
    testing.assert_close(direct.run(partitioned, data_of(mod)), direct.run(mod, data_of(mod)))


def test_no_pool_is_made_where_pools_stay_on_tvm():
    mod = module(both(relu(conv(x) + x)))
    partitioned = partition(mod, exclude=["nn.avg_pool2d"])
    assert convs_and_parts(partitioned) == convs_and_parts(mod)


def test_a_branch_is_not_looked_into():
    """What is computed outside of a branch is there whichever is taken."""
    flag = relay.var("flag", shape=(), dtype="bool")
    data = relu(conv(x))
    body = relay.If(flag, every(data, 2, 2), every(data, 2, 2, seed=2))
    mod = tvm.IRModule.from_expr(relay.Function([flag, x], body))
    mod = relay.transform.InferType()(mod)
    assert convs_and_parts(partition(mod, prune=False)) == ([(1, 1), (2, 2), (2, 2)], 0)
