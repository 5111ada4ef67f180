# SPDX-License-Identifier: Apache-2.0
"""Open dimensions: one library, and one plan for each shape that it is called with."""

from collections import Counter

import numpy as np
import pytest
import tvm
import tvm_dnnl
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import from_onnx

from dnnl_relax.modules import (
    check,
    compiled,
    composites,
    const,
    conv_bias_relu,
    module,
    partitions,
    rand,
    run,
    var,
    virtual_machine,
)
from dnnl_relax.onnx.nodes import node_model

# By name: the function, its parameters, and what is in its partition.
OPEN = {
    "conv2d": (conv_bias_relu, [var("x", "n", 6, 9, 9)], {"dnnl.conv2d_bias_relu": 1}),
    "matmul": (
        lambda b, x: op.nn.gelu(b.emit(op.matmul(x, const(8, 3)))),
        [var("x", "n", "m", 8)],
        {"dnnl.dense_gelu_erf": 1},
    ),
    "matmul-of-batches": (
        lambda b, x, y: op.matmul(x, y),
        [var("x", "n", 3, "m", 8), var("y", "n", 1, 8, 4)],
        {"dnnl.batch_matmul": 1},
    ),
    "matmul-of-one-matrix": (
        lambda b, x, y: op.matmul(x, y),
        [var("x", "m", 8), var("y", "n", "m", 8, 3)],
        {"dnnl.batch_matmul": 1},
    ),
    **{
        f"matmul-of-open-{name}": (
            lambda b, x, y: op.nn.gelu(b.emit(op.matmul(x, y))),
            [var("x", *left), var("y", *right)],
            {"dnnl.batch_matmul_gelu_erf": 1},
        )
        for name, left, right in (
            ("columns", (4, 8), (8, "n")),
            ("rows-and-columns", ("n", 8), (8, "m")),
            ("sums", ("n", "m"), ("m", 3)),
            ("sums-of-batches", (2, "n", "m"), ("m", "k")),
        )
    },
    "matmul-of-a-column": (
        lambda b, x: op.matmul(x, const(8)),
        [var("x", "n", "m", 8)],
        {"dnnl.dense": 1, "dnnl.reshape": 1},
    ),
    "layer_norm-of-two-axes": (
        lambda b, x: op.nn.layer_norm(x, const(5, 8), const(5, 8, seed=2), axes=[-2, -1]),
        [var("x", "n", "m", 5, 8)],
        {"dnnl.layer_norm": 1, "dnnl.reshape": 2},
    ),
    # One head; the mask is computed by TVM.
    "attention": (
        lambda b, x: op.nn.attention(x, x, x, causal_mask="TopLeft"),
        [var("x", 2, "n", 3, 8)],
        {"dnnl.attention": 1, "dnnl.transpose": 4},
    ),
    "reshape": (
        lambda b, x: op.nn.relu(b.emit(op.reshape(x, (x.ty.shape.values[0], 2, 36)))),
        [var("x", "n", 8, 9)],
        {"dnnl.reshape": 1, "dnnl.relu": 1},
    ),
}


@pytest.mark.parametrize("case", OPEN)
def test_open_dimensions(case):
    build, params, wanted = OPEN[case]
    mod = module(build, *params)
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert composites(partitioned) == Counter(wanted) and partitions(partitioned) == 1
    ours, alone = virtual_machine(compiled(partitioned)), virtual_machine(mod)
    for size in (1, 2, 5):
        inputs = []
        for _, shape, dtype in params:
            sizes = [size if isinstance(dim, str) else dim for dim in shape]
            inputs.append(tvm.runtime.tensor(rand(*sizes, dtype=dtype, seed=len(inputs))))
        one, other = (each["main"](*inputs).numpy() for each in (ours, alone))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


NEAREST = {"coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"}
# By name: the method and its attributes, the factors of height and width, and the layout.
RESIZED = {
    "linear": ("linear", {}, (2, 3), "NCHW"),
    "linear-of-rows": ("linear", {}, (2, None), "NCHW"),
    "nearest": ("nearest_neighbor", NEAREST, (2, 4), "NCHW"),
    "nearest-of-columns": ("nearest_neighbor", NEAREST, (None, 2), "NHWC"),
    "nearest-half-pixel": ("nearest_neighbor", {"rounding_method": "round"}, (2, 1), "NHWC"),
}


def _resized(method, attrs, factors, layout):
    """A resize by factors, where one is None from 6 to 12, and two convolutions."""

    def build(builder, x):
        sizes = [x.ty.shape.values[layout.index(letter)] for letter in "HW"]
        sizes = [12 if by is None else size * by for size, by in zip(sizes, factors)]
        named = dict(layout=layout, method=method, **attrs)
        x = builder.emit(op.image.resize2d(x, relax.ShapeExpr(sizes), **named))
        return op.nn.relu(builder.emit(op.nn.conv2d(x, const(4, 3, 3, 3), data_layout=layout)))

    sizes = ["h" if factors[0] else 6, "w" if factors[1] else 6]
    shape = ["n", 3, *sizes] if layout == "NCHW" else ["n", *sizes, 3]
    return build, var("x", *shape)


@pytest.mark.parametrize("name", RESIZED)
def test_resize(name):
    build, param = _resized(*RESIZED[name])
    mod = module(build, param)
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert composites(partitioned) == {"dnnl.resize2d": 1, "dnnl.conv2d_relu": 1}
    runner = compiled(partitioned)
    for sizes in ({"n": 1, "h": 4, "w": 5}, {"n": 2, "h": 7, "w": 3}, {"n": 1, "h": 16, "w": 33}):
        x = rand(*(sizes.get(size, size) for size in param[1]))
        (one,), (other,) = run(runner, x), run(mod, x)
        # TVM computes the weights of linear interpolation in float32, oneDNN others.
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode, factor", [("asymmetric", 3), ("half_pixel", 3)])
def test_resizes_that_stay(mode, factor):
    attrs = {"coordinate_transformation_mode": mode, "rounding_method": "floor"}
    mod = module(*_resized("nearest_neighbor", attrs, (factor, 2), "NCHW"))
    partitioned = check(mod, {"dnnl.conv2d_relu": 1}, rand(1, 3, 5, 7))
    (text,) = tvm_dnnl.offload_report(partitioned).reasons["image.resize2d"]
    assert text == "the values that nearest_neighbor reads depend on H, which is open"


def _resize_of_onnx(shape, factors, **attrs):
    """A resize by factors as ONNX's importer writes it: of rows, a function of TIR."""
    operands = {"x": np.zeros([1] * len(shape), "float32"), "roi": None}
    operands["scales"] = np.array([1, 1, *factors], "float32")
    options = dict(domain="", opset=18, consts=["scales"], dims={"x": shape})
    model = node_model("Resize", operands, **options, **attrs)
    return from_onnx(model, keep_params_in_input=False)


OF_ONNX = {
    "nearest": {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    },
    "nearest-half-pixel": {"mode": "nearest"},
    "linear": {"mode": "linear"},
    "linear-asymmetric": {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
}


@pytest.mark.parametrize("factor", [2, 2.5])
def test_resize_of_onnx(factor):
    """Its importer multiplies open sizes in float32, and cuts off the fraction."""
    mod = _resize_of_onnx(["n", 3, "h", "w"], [factor, 2], **OF_ONNX["nearest"])
    partitioned = check(mod, {"dnnl.resize2d": 1} if factor == 2 else {}, rand(2, 3, 5, 7))
    for text in tvm_dnnl.offload_report(partitioned).reasons.get("image.resize2d", ()):
        assert "is not a known multiple of h" in text


@pytest.mark.parametrize("batch, width", [(2, 7), ("n", 7), ("n", "w")])
@pytest.mark.parametrize("name", OF_ONNX)
def test_resize_of_rows_of_onnx(name, batch, width):
    mod = _resize_of_onnx([batch, 3, width], [2], **OF_ONNX[name])
    assert "call_tir" in mod.script()
    check(mod, {"dnnl.resize1d": 1}, rand(2, 3, 7))


def test_resizes_of_rows_that_stay():
    mod = _resize_of_onnx([2, 3, 7], [2], mode="cubic")
    partitioned = check(mod, {}, rand(2, 3, 7))
    assert dict(tvm_dnnl.offload_report(partitioned).ops) == {"call_tir": 1}


def _four_rows_each(builder, x):
    """4 * n rows, which TVM makes."""
    rows = builder.emit(op.repeat(x, 4, axis=0))
    return builder.emit(op.nn.gelu(builder.emit(op.matmul(rows, const(8, 3)))))


# A partition of 4 * n rows has no input of n rows: n is passed to it.
WITHOUT_SYMBOL = {
    "type": (_four_rows_each, [], {}),
    "argument": (
        lambda b, x: op.reshape(_four_rows_each(b, x), (x.ty.shape.values[0], 12)),
        [],
        {"dnnl.reshape": 1},
    ),
    "two partitions": (
        lambda b, x: op.nn.softmax(b.emit(op.exp(_four_rows_each(b, x)))),
        ["exp"],
        {"dnnl.softmax": 1},
    ),
}


@pytest.mark.parametrize("case", WITHOUT_SYMBOL)
def test_inputs_that_do_not_tell_a_symbol(case):
    build, excluded, wanted = WITHOUT_SYMBOL[case]
    mod = module(build, var("x", "n", 8))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, exclude=["repeat", *excluded], prune=False)
    assert composites(partitioned) == {"dnnl.dense_gelu_erf": 1, **wanted}
    relax.analysis.well_formed(partitioned)
    assert tvm_dnnl.offload_report(partitioned).offloaded == len(wanted) + 2
    for size in (1, 3):
        x = rand(size, 8)
        (one,), (other,) = run(compiled(partitioned), x), run(mod, x)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def joined_rows(softmax, axis):
    """Return what builds a softmax along an axis of rows of (n, 4, m, k), restored."""

    def build(builder, x):
        n, _, m, k = x.ty.shape.values
        rows = builder.emit(op.reshape(builder.emit(op.exp(x)), (n * 4 * m, k)))
        rows = builder.emit(op.reshape(builder.emit(softmax(rows, axis)), (n, 4, m, k)))
        return op.nn.relu(rows)

    return module(build, var("x", "n", 4, "m", "k"))


@pytest.mark.parametrize("softmax", [op.nn.softmax, op.nn.log_softmax])
@pytest.mark.parametrize("axis", [-1, 1])
def test_softmax_of_rows_that_are_joined(softmax, axis):
    """As onnxruntime converts a softmax of an opset before 13."""
    name = softmax.__name__
    wanted = {"dnnl.exp": 1, f"dnnl.{name}": 1, "dnnl.relu": 1}
    assert partitions(check(joined_rows(softmax, axis), wanted, rand(3, 4, 2, 7))) == 1


def test_softmax_of_columns_of_joined_rows():
    """It sums over what the reshape joined, to sizes that are read in each call."""
    wanted = {"dnnl.exp": 1, "dnnl.open_reshape": 2, "dnnl.softmax": 1, "dnnl.relu": 1}
    partitioned = check(joined_rows(op.nn.softmax, 0), wanted, rand(3, 4, 2, 7))
    assert partitions(partitioned) == 1


def test_excluded_softmax_of_rows():
    partitioned = tvm_dnnl.partition_for_dnnl(
        joined_rows(op.nn.softmax, 1), prune=False, exclude=["nn.softmax"]
    )
    assert dict(tvm_dnnl.offload_report(partitioned).ops)["reshape"] == 2
