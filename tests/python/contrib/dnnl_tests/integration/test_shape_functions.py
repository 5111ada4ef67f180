# SPDX-License-Identifier: Apache-2.0
"""Shape functions tell what type inference tells where the sizes are known."""

import numpy as np
import pytest
import tvm
from tvm import relay, te
from tvm.testing.dnnl import host_target

from dnnl_tests.relay import var

nn = relay.nn


def shapes_of(call, shapes):
    """Run the shape function of a typed call for the shapes of its arguments."""
    inputs = [te.placeholder((len(shape),), "int64") for shape in shapes]
    types = call.checked_type
    types = types.fields if isinstance(types, relay.TupleType) else [types]
    ndims = [tvm.tir.IntImm("int32", len(type_.shape)) for type_ in types]
    outputs = list(call.op.get_attr("FShapeFunc")(call.attrs, inputs, ndims))
    schedule = te.create_schedule([out.op for out in outputs])
    function = tvm.build(schedule, [*inputs, *outputs], target=host_target())
    results = [tvm.nd.array(np.zeros(len(type_.shape), "int64")) for type_ in types]
    function(*(tvm.nd.array(np.array(shape, "int64")) for shape in shapes), *results)
    return [tuple(each.numpy()) for each in results]


def check(expr):
    """Compare the shape function of the last call of an expression with type inference."""
    func = relay.transform.InferType()(tvm.IRModule.from_expr(expr))["main"]
    call = func.body.tuple_value if isinstance(func.body, relay.TupleGetItem) else func.body
    types = call.checked_type
    types = types.fields if isinstance(types, relay.TupleType) else [types]
    want = [tuple(int(dim) for dim in type_.shape) for type_ in types]
    operands = [arg.checked_type for arg in call.args]
    operands = [each for type_ in operands for each in getattr(type_, "fields", [type_])]
    args = [tuple(int(dim) for dim in type_.shape) for type_ in operands]
    assert shapes_of(call, args) == want


def image(*shape):
    """Return a variable for data."""
    return var("x", *shape)


WINDOWS = {
    "conv": lambda: nn.conv2d(
        image(2, 4, 9, 11), var("w", 8, 4, 3, 3), padding=(1, 1), strides=(2, 2)
    ),
    "conv-asymmetric": lambda: nn.conv2d(
        image(2, 4, 9, 11), var("w", 8, 4, 3, 3), padding=(0, 1, 1, 2), strides=(2, 1)
    ),
    "conv-dilated": lambda: nn.conv2d(
        image(2, 4, 9, 11), var("w", 8, 4, 3, 3), padding=(2, 1), dilation=(2, 3)
    ),
    "conv-nhwc": lambda: nn.conv2d(
        image(2, 9, 11, 4),
        var("w", 3, 3, 4, 8),
        data_layout="NHWC",
        kernel_layout="HWIO",
        channels=8,
        kernel_size=(3, 3),
        padding=(0, 0, 1, 1),
    ),
    "conv-depthwise-multiplier": lambda: nn.conv2d(
        image(2, 9, 11, 4),
        var("w", 3, 3, 4, 2),
        data_layout="NHWC",
        kernel_layout="HWOI",
        groups=4,
        channels=8,
        kernel_size=(3, 3),
    ),
    "conv-groups": lambda: nn.conv2d(image(2, 4, 9, 11), var("w", 8, 2, 3, 3), groups=2),
    "conv1d": lambda: nn.conv1d(
        image(2, 4, 9), var("w", 8, 4, 3), channels=8, kernel_size=3, padding=(0, 1)
    ),
    "conv3d": lambda: nn.conv3d(
        image(2, 4, 5, 9, 11),
        var("w", 8, 4, 3, 3, 3),
        channels=8,
        kernel_size=(3, 3, 3),
        padding=(0, 1, 1, 1, 0, 2),
    ),
    "conv2d_transpose": lambda: nn.conv2d_transpose(
        image(2, 4, 9, 11),
        var("w", 4, 3, 3, 2),
        channels=6,
        groups=2,
        kernel_size=(3, 2),
        strides=(2, 3),
        padding=(1, 0, 0, 1),
        output_padding=(1, 2),
    ),
    "conv3d_transpose": lambda: nn.conv3d_transpose(
        image(2, 4, 5, 9, 11),
        var("w", 4, 6, 3, 3, 3),
        channels=6,
        kernel_size=(3, 3, 3),
        strides=(2, 1, 1),
    ),
    "max_pool": lambda: nn.max_pool2d(image(2, 4, 9, 11), (3, 2), (2, 2), padding=(1, 0, 0, 1)),
    "max_pool-ceil": lambda: nn.max_pool2d(
        image(2, 4, 9, 12), (2, 3), (2, 2), ceil_mode=True, padding=(0, 1)
    ),
    "max_pool-dilated": lambda: nn.max_pool2d(image(2, 4, 9, 12), (2, 3), dilation=(3, 2)),
    "max_pool-nhwc": lambda: nn.max_pool2d(image(2, 9, 12, 4), (2, 2), (3, 2), layout="NHWC"),
    "avg_pool1d": lambda: nn.avg_pool1d(image(2, 4, 9), (2,), (2,), padding=(0, 1)),
    "avg_pool3d": lambda: nn.avg_pool3d(image(2, 4, 9, 8, 7), (2, 2, 2), (2, 3, 1), ceil_mode=True),
    "adaptive1d": lambda: nn.adaptive_avg_pool1d(image(2, 4, 9), (3,)),
    "adaptive2d": lambda: nn.adaptive_max_pool2d(image(2, 8, 9, 4), (4, 3), layout="NHWC"),
    "adaptive3d": lambda: nn.adaptive_avg_pool3d(image(2, 4, 9, 8, 7)),
    "resize3d": lambda: relay.image.resize3d(image(2, 4, 5, 7, 3), (8, 9, 10)),
    "upsampling": lambda: nn.upsampling(image(2, 5, 7, 3), 2.0, 1.5, layout="NHWC"),
    "upsampling3d": lambda: nn.upsampling3d(image(2, 4, 5, 7, 3), 2, 3, 1.5),
    "depth_to_space": lambda: nn.depth_to_space(image(2, 12, 5, 7), 2),
    "space_to_depth": lambda: nn.space_to_depth(image(2, 6, 9, 4), 3, layout="NHWC"),
    "einsum": lambda: relay.einsum([image(2, 1, 3, 4), var("y", 5, 4, 6)], "...ij,...jk->k...i"),
    "einsum-implicit": lambda: relay.einsum([image(4, 3), var("y", 4, 6)], "ji,jk"),
    "einsum-diagonal": lambda: relay.einsum([image(3, 3)], "ii->i"),
}

SAME = {
    "layer_norm": lambda: nn.layer_norm(image(2, 3, 4), var("g", 4), var("b", 4)),
    "group_norm": lambda: nn.group_norm(image(2, 4, 3), var("g", 4), var("b", 4), 2),
    "batch_norm": lambda: nn.batch_norm(
        image(2, 4, 3), *(var(name, 4) for name in ("g", "b", "m", "v"))
    ).astuple(),
    "abs": lambda: relay.abs(image(2, 3)),
    "reverse": lambda: relay.reverse(image(2, 3), 1),
    "reverse_sequence": lambda: relay.reverse_sequence(image(2, 3), relay.const([3, 2, 1]), 0, 1),
    "trilu": lambda: relay.trilu(image(2, 3), relay.const(1)),
    "atan": lambda: relay.atan(image(2, 3)),
    "isnan": lambda: relay.isnan(image(2, 3)),
    "reinterpret": lambda: relay.reinterpret(image(2, 3), "int32"),
    "log_softmax": lambda: nn.log_softmax(image(2, 3)),
    "l2_normalize": lambda: nn.l2_normalize(image(2, 3), 1e-5, [1]),
}


@pytest.mark.parametrize("make", [pytest.param(f, id=k) for k, f in {**WINDOWS, **SAME}.items()])
def test_as_type_inference(make):
    """The shape is that which Relay infers for the same sizes."""
    expr = make()
    check(expr.tuple_value if isinstance(expr, relay.TupleGetItem) else expr)


def test_blocked_layouts_are_left_to_tvm():
    """Layouts that only TVM has are still read by TVM's own function."""
    call = nn.max_pool2d(image(2, 1, 9, 12, 16), (2, 2), (2, 2), layout="NCHW16c")
    check(call)


def test_a_chain_of_windows_is_compiled_in_linear_time():
    """TVM inlines stages that it can: 4 reads of a shape in each op were 4**40 in 40 ops."""
    pool = nn.max_pool2d(image(2, 4, 96, 96), (3, 3), padding=(1, 1))
    call = relay.transform.InferType()(tvm.IRModule.from_expr(pool))["main"].body
    shape = source = te.placeholder((4,), "int64")
    for _ in range(40):
        (shape,) = call.op.get_attr("FShapeFunc")(call.attrs, [shape], [tvm.tir.IntImm("int32", 4)])
    schedule = te.create_schedule([shape.op])
    te.schedule.AutoInlineInjective(schedule)
    function = tvm.build(schedule, [source, shape], target=host_target())
    result = tvm.nd.array(np.zeros(4, "int64"))
    function(tvm.nd.array(np.array((2, 4, 96, 95), "int64")), result)
    assert tuple(result.numpy()) == (2, 4, 96, 95)
