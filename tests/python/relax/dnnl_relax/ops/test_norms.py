# SPDX-License-Identifier: Apache-2.0
"""Normalizations: written as several ops, and without a factor or a summand."""

import numpy as np
import pytest
import tvm_dnnl
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import from_onnx

from dnnl_relax.modules import (
    X3,
    X4,
    check,
    check_case,
    compiled,
    composites,
    const,
    module,
    rand,
    run,
    var,
)
from dnnl_relax.onnx.nodes import node_model


def _scaled(builder, y, shape):
    """Multiply and add constants, if a shape is given."""
    if shape is None:
        return op.nn.relu(y)
    return op.add(builder.emit(op.multiply(y, const(*shape))), const(*shape, seed=2))


def _norm(axes, shape, variance=op.variance):
    """A normalization that is written out."""

    def build(builder, x):
        mean = builder.emit(op.mean(x, axes, keepdims=True))
        centred = builder.emit(op.subtract(x, mean))
        square = builder.emit(variance(x, axes, keepdims=True))
        root = builder.emit(op.sqrt(builder.emit(op.add(square, relax.const(1e-5, "float32")))))
        return _scaled(builder, builder.emit(op.divide(centred, root)), shape)

    return build


def _rms_norm(builder, x):
    mean = builder.emit(op.mean(builder.emit(op.square(x)), [-1], keepdims=True))
    root = builder.emit(op.sqrt(builder.emit(op.add(mean, relax.const(1e-5, "float32")))))
    return op.multiply(builder.emit(op.divide(x, root)), const(1, 1, 8))


IMAGE = [2, 3]
X5 = var("x", 2, 6, 3, 4, 5)
LAYER, INSTANCE = {"dnnl.layer_norm": 1}, {"dnnl.instance_norm": 1}
CASES = {
    "layer_norm": (_norm([-1], (8,)), [X3], LAYER),
    "layer_norm-of-rank-3": (_norm([-1], (1, 1, 8)), [X3], LAYER),
    "layer_norm-alone": (_norm([-1], None), [X3], {**LAYER, "dnnl.relu": 1}),
    "rms_norm-of-rank-3": (_rms_norm, [X3], {"dnnl.rms_norm": 1}),
    "instance_norm": (_norm(IMAGE, (6, 1, 1)), [X4], INSTANCE),
    "instance_norm-of-rank-4": (_norm(IMAGE, (1, 6, 1, 1)), [X4], INSTANCE),
    "instance_norm-of-one-image": (_norm(IMAGE, (6, 1, 1)), [var("x", 1, 6, 9, 9)], INSTANCE),
    "instance_norm-of-one-position": (_norm(IMAGE, (6, 1, 1)), [var("x", 2, 6, 1, 1)], INSTANCE),
    "instance_norm-of-volumes": (_norm([2, 3, 4], (6, 1, 1, 1)), [X5], INSTANCE),
    "instance_norm-alone": (_norm(IMAGE, None), [X4], {**INSTANCE, "dnnl.relu": 1}),
}


@pytest.mark.parametrize("case", CASES)
def test_written_as_ops(case):
    check_case(*CASES[case])


def _group_norm(builder, x, channel, axes):
    size = int(x.ty.shape.values[channel])
    attrs = dict(num_groups=3, channel_axis=channel, axes=axes)
    return op.nn.group_norm(x, const(size), const(size, seed=2), **attrs)


@pytest.mark.parametrize(
    "channel, axes, transposes",
    [
        (1, [2, 3], 0),
        (2, [3], 0),
        (-1, [], 0),
        (3, [1, 2], 2),
        (-1, [-2, 1], 2),
        (2, [1, 3], 2),
        (1, [3], 2),
        (3, [0, 1, 2], 2),
    ],
)
def test_group_norm_of_any_axes(channel, axes, transposes):
    wanted = {"dnnl.group_norm": 1, **({"dnnl.transpose": transposes} if transposes else {})}
    check_case(lambda b, x: _group_norm(b, x, channel, axes), [X4], wanted)


@pytest.mark.parametrize(
    "axes, shape, wanted",
    [
        ([2], (6, 1, 1), None),
        ([1, 2, 3], (6, 1, 1), None),
        ([3], (6, 1, 1), "dnnl.layer_norm"),
        (IMAGE, (9,), "dnnl.instance_norm"),
    ],
    ids=["columns", "images", "rows-of-channels", "images-of-columns"],
)
def test_factors_of_other_axes_are_not_in_it(axes, shape, wanted):
    counts = composites(check(module(_norm(axes, shape), X4), None, rand(2, 6, 9, 9)))
    assert {"dnnl.instance_norm", "dnnl.layer_norm"} & set(counts) == (
        {wanted} if wanted else set()
    )


def test_instance_norm_of_images_of_any_size():
    mod = module(_norm(IMAGE, (6, 1, 1)), var("x", "n", 6, "h", "w"))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert composites(partitioned) == INSTANCE
    runner = compiled(partitioned)
    for shape in ((2, 6, 9, 9), (1, 6, 3, 4)):
        x = rand(*shape)
        np.testing.assert_allclose(run(runner, x)[0], run(mod, x)[0], rtol=1e-5, atol=1e-5)


# Of the data, the factors and the summands, with the two switches.
SWITCHED = {
    "layer_norm": lambda *args, **switches: op.nn.layer_norm(*args, axes=[1], **switches),
    "group_norm": lambda *args, **switches: op.nn.group_norm(
        *args, num_groups=3, channel_axis=1, axes=IMAGE, **switches
    ),
    "instance_norm": lambda *args, **switches: op.nn.instance_norm(
        *args, channel_axis=1, axes=IMAGE, **switches
    ),
}


def _switched(name, gamma, beta, **switches):
    def build(builder, x):
        vectors = (relax.const(np.broadcast_to(np.float32(v), 6).copy()) for v in (gamma, beta))
        return SWITCHED[name](x, *vectors, **switches)

    return build


@pytest.mark.parametrize("center", [False, True], ids=["no-center", "center"])
@pytest.mark.parametrize("scale", [False, True], ids=["no-scale", "scale"])
@pytest.mark.parametrize("name", SWITCHED)
def test_switched_off(name, scale, center):
    gamma, beta = rand(6) if scale else 1, rand(6, seed=1) if center else 0
    build = _switched(name, gamma, beta, scale=scale, center=center)
    check_case(build, [X4], {f"dnnl.{name}": 1})


@pytest.mark.parametrize(
    "switches, reason", [({"scale": False}, "scale=False"), ({"center": False}, "center=False")]
)
@pytest.mark.parametrize("name", SWITCHED)
def test_what_tvm_applies_all_the_same_stays(name, switches, reason):
    mod = module(_switched(name, 0.5, 0.5, **switches), X4)
    partitioned = check(mod, {}, rand(2, 6, 9, 9))
    (text,) = tvm_dnnl.offload_report(partitioned).reasons[f"nn.{name}"]
    assert text.startswith(reason)


@pytest.mark.parametrize("switch", ["scale", "center"])
def test_what_tvm_applies_over_two_axes_stays(switch):
    vectors = [relax.const(np.full((9, 9), 0.5, "float32")) for _ in range(2)]
    mod = module(lambda b, x: op.nn.layer_norm(x, *vectors, axes=[2, 3], **{switch: False}), X4)
    check(mod, {}, rand(2, 6, 9, 9))


@pytest.mark.parametrize(
    "name, opset, attrs, wanted",
    [
        ("InstanceNormalization", 18, {}, INSTANCE),
        (
            "GroupNormalization",
            21,
            {"num_groups": 3},
            {"dnnl.group_norm": 1, "dnnl.multiply_add": 1},
        ),
    ],
)
def test_of_onnx(name, opset, attrs, wanted):
    operands = {"x": rand(2, 6, 9, 9), "scale": rand(6), "bias": rand(6, seed=1)}
    options = dict(domain="", opset=opset, consts=("scale", "bias"))
    model = node_model(name, operands, **options, **attrs)
    check(from_onnx(model, keep_params_in_input=False), wanted, rand(2, 6, 9, 9))


@pytest.mark.parametrize("axis", [1, 3])
def test_batch_norm_of_given_statistics(axis):
    """Statistics that are computed, or a parameter: it is one op, with what is fused to it."""
    size = (2, 6, 9, 9)[axis]

    def build(b, x, mean):
        vectors = [const(size) for _ in range(2)]
        variance = relax.const(np.abs(rand(size, seed=2)) + 0.5)
        norm = b.emit(op.nn.batch_norm(x, *vectors, mean, variance, axis, training=False))
        return op.nn.relu(b.emit(relax.TupleGetItem(norm, 0)))

    mod = module(build, X4, var("mean", size))
    check(mod, {"dnnl.batch_norm_relu": 1}, rand(2, 6, 9, 9), rand(size))
