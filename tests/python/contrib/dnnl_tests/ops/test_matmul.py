# SPDX-License-Identifier: Apache-2.0
"""Matmul on oneDNN, against float64."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl

from dnnl_tests import direct
from dnnl_tests.marks import has_avx2, has_avx512, json_only
from dnnl_tests.reference import RTOL, rand
from dnnl_tests.single_op import run_planned, var

# oneDNN packs weights that lie in order where it has AVX-512, as it has for bfloat16.
# With AVX2 alone it has blocked code for convolutions and not for a matmul.
IS_CONVOLUTION = has_avx2() and not cpu.computes("bfloat16")
OF_ROWS = "convolution" if IS_CONVOLUTION else "matmul"
INNER_PRODUCT = "inner_product, weights packed once"
OF_ROWS_PACKED = f"{OF_ROWS + ' of rows' if IS_CONVOLUTION else OF_ROWS}, weights packed once"


def transposed(array, flag):
    return np.swapaxes(array, -1, -2) if flag else array


def product(a, b, transpose_a, transpose_b):
    """Multiply matrices, or batches of them, in float64."""
    a, b = (x.astype("float64") for x in (transposed(a, transpose_a), transposed(b, transpose_b)))
    return (a @ b).astype("float32")


def test_dense_with_weights_that_are_computed_is_not_packed():
    x, w = rand(20, 64), rand(48, 64, seed=1)
    expr = relay.nn.dense(var("x", x.shape), var("w", w.shape))
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr))
    steps = run_planned(mod, {"x": x, "w": w}, [product(x, w, False, True)], RTOL)
    assert [step["kind"] for step in steps] == ["matmul"]
    assert steps[0]["variant"] == "matmul, weights as they are"


def heads(name, array, axes):
    """Return rows whose parts are of one head each as (heads, ...), in Relay and in numpy."""
    rows, size = array.shape[0], 16
    shape = (rows, array.shape[1] // size, size)
    expr = relay.transpose(relay.reshape(var(name, array.shape), shape), axes)
    return expr, array.reshape(shape).transpose(axes)


@json_only
@pytest.mark.parametrize("is_first", [True, False], ids=["scores", "values"])
@pytest.mark.parametrize("transpose_b", [True, False])
def test_heads_are_read_as_they_are(transpose_b, is_first):
    x, y = rand(24, 64), rand(24, 64, seed=1)
    columns = (1, 0, 2) if transpose_b == is_first else (1, 2, 0)
    (a, left), (b, right) = heads("x", x, (1, 0, 2)), heads("y", y, columns)
    inputs = {"x": x, "y": y}
    if not is_first:
        left = rand(4, 24, 24, seed=2)
        a, inputs = var("x", left.shape), {"x": left, "y": y}
    expr = relay.nn.batch_matmul(a, b, transpose_b=transpose_b)
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), prune=False)
    expected = product(left, right, False, transpose_b)
    steps = run_planned(mod, inputs, [expected], RTOL)
    # Where oneDNN has no blocked matmul, it reads matrices that lie in order only.
    if cpu.computes("bfloat16"):
        assert [step["kind"] for step in steps] == ["matmul"]
        assert steps[0]["variant"] == "matmul, weights as they are"


@json_only
@pytest.mark.parametrize("is_read_twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("batch", [(), (1,), (2,)], ids=["no-batch", "batch-1", "batch-2"])
@pytest.mark.parametrize("is_interleaved", [True, False], ids=["interleaved", "in-order"])
def test_heads_are_written_as_rows(is_interleaved, batch, is_read_twice):
    scores, values = rand(*batch, 4, 24, 24), rand(*batch, 4, 24, 16, seed=1)
    a, b = var("x", scores.shape), var("y", values.shape)
    inputs, rank = {"x": scores, "y": values}, len(scores.shape)
    swap = (*range(rank - 3), rank - 2, rank - 3, rank - 1)
    if is_interleaved:
        inputs["y"] = np.ascontiguousarray(values.transpose(swap))
        b = relay.transpose(var("y", inputs["y"].shape), swap)
    if rank == 3:
        heads_of = relay.nn.batch_matmul(a, b, transpose_b=False)
    else:
        matrices = [
            relay.reshape(each, (-1, *each_shape[-2:]))
            for each, each_shape in ((a, scores.shape), (b, values.shape))
        ]
        heads_of = relay.reshape(
            relay.nn.batch_matmul(*matrices, transpose_b=False), (*batch, 4, 24, 16)
        )
    rows = relay.reshape(relay.transpose(heads_of, swap), (*batch, 24, 64))
    product_of = product(scores, values, False, False)
    expected = [product_of.transpose(swap).reshape(*batch, 24, 64)]
    if is_read_twice:
        rows, expected = relay.Tuple([rows, heads_of]), [*expected, product_of]
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(rows), prune=False)
    steps = run_planned(mod, inputs, expected, RTOL)
    # Batches and heads are one dimension of the matmul, whose strides they do not share.
    is_alone = is_interleaved and not is_read_twice and batch != (2,)
    if cpu.computes("bfloat16"):
        kinds = [step["kind"] for step in steps]
        assert kinds == ["matmul"] if is_alone else kinds[-2:] == ["matmul", "reorder"]


@pytest.mark.parametrize(
    "op, rows, width, variant",
    [
        (relay.nn.dense, 80, 64, INNER_PRODUCT),
        (relay.nn.dense, 81, 64, OF_ROWS_PACKED),
        # oneDNN's blocks for AVX2 have at most 2,048 elements of a sum.
        (relay.nn.dense, 16, 2112, OF_ROWS_PACKED if IS_CONVOLUTION else INNER_PRODUCT),
        (relay.nn.dense, 4, 2112, INNER_PRODUCT),
        (relay.nn.matmul, 20, 64, INNER_PRODUCT),
    ],
    ids=["dense", "dense-of-many-rows", "dense-of-long-rows", "dense-of-few-long-rows", "matmul"],
)
def test_the_plan_names_the_variant(op, rows, width, variant):
    x, w = rand(rows, width), rand(64, width, seed=1)
    if op is relay.nn.matmul:
        w = w.T.copy()
    expected = product(x, w, False, op is relay.nn.dense)
    expr = op(var("x", x.shape), var("w", w.shape))
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), {"w": w})
    steps = run_planned(mod, {"x": x}, [expected], RTOL)
    (step,) = [step for step in steps if step["kind"] != "reorder"]
    assert step["variant"] == variant


@json_only
def test_what_is_fused_to_a_dense_of_many_rows():
    x, w, bias, other = rand(197, 64), rand(48, 64, seed=1), rand(48, seed=2), rand(197, 48, seed=3)
    dense = relay.nn.dense(var("x", x.shape), var("w", w.shape))
    expr = relay.nn.relu(relay.nn.bias_add(dense, var("bias", bias.shape))) + var("y", other.shape)
    expected = np.maximum(product(x, w, False, True) + bias, 0) + other
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), {"w": w, "bias": bias})
    steps = run_planned(mod, {"x": x, "y": other}, [expected], RTOL)
    (step,) = [step for step in steps if step["kind"] != "reorder"]
    assert step["variant"] == OF_ROWS_PACKED
    assert step["post_ops"] == ["bias", "eltwise_relu", "binary_add"]


# What is added to a product of (2, 3, 32) and one matrix.
SUMMANDS = {
    "column": ((24,), "bias"),
    "columns": ((1, 1, 24), "bias"),
    "all": ((2, 3, 24), "binary_add"),
    "one": ((1,), "binary_add"),
}


@json_only
@pytest.mark.parametrize("shape, name", SUMMANDS.values(), ids=SUMMANDS.keys())
def test_what_is_added_to_rows_by_one_matrix(shape, name):
    x, w, other = rand(2, 3, 32), rand(1, 24, 32, seed=1), rand(*shape, seed=2)
    y = relay.nn.batch_matmul(var("x", x.shape), var("w", w.shape)) + var("y", shape)
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(relay.nn.relu(y)), {"w": w})
    expected = np.maximum(product(x, w, False, True) + other, 0)
    steps = run_planned(mod, {"x": x, "y": other}, [expected], RTOL)
    (step,) = [step for step in steps if step["kind"] != "reorder"]
    assert step["post_ops"] == [name, "eltwise_relu"] and step["kind"] == OF_ROWS


POST_OPS = {
    "bias": (lambda y, v: y + v["b"], ["bias"]),
    "bias_add": (lambda y, v: relay.nn.bias_add(y, v["b"], axis=-1), ["bias"]),
    "bias-relu": (lambda y, v: relay.nn.relu(y + v["b"]), ["bias", "eltwise_relu"]),
    "scaled": (lambda y, v: y * relay.const(0.125), ["binary_mul"]),
    "divided": (lambda y, v: y / relay.const(8.0), ["binary_div"]),
    "residual": (lambda y, v: y + v["r"], ["binary_add"]),
    "residual-first": (lambda y, v: v["r"] - y, ["binary_add"]),
    "scaled-residual-tanh": (
        lambda y, v: relay.tanh(y * relay.const(0.125) + v["r"]),
        ["binary_mul", "binary_add", "eltwise_tanh"],
    ),
    "silu": (lambda y, v: (y + v["b"]) * relay.sigmoid(y + v["b"]), None),
}


@pytest.mark.parametrize("kind", ["matmul", "matmul-rank-3", "dense", "batch_matmul"])
@pytest.mark.parametrize("name", POST_OPS)
def test_post_ops(name, kind):
    """All of it in one primitive, and the numbers of TVM."""
    function, names = POST_OPS[name]
    shape = {"matmul": (6, 32), "dense": (6, 32)}.get(kind, (3, 4, 32))
    weight = {"batch_matmul": (3, 24, 32), "dense": (24, 32)}.get(kind, (32, 24))
    out = (*shape[:-1], 24)
    values = {
        "x": rand(*shape),
        "w": rand(*weight, seed=1),
        "b": rand(24, seed=2),
        "r": rand(*out, seed=3),
    }
    variables = {key: var(key, value.shape) for key, value in values.items()}
    op = getattr(relay.nn, kind.split("-")[0])
    expr = function(op(variables["x"], variables["w"]), variables)
    mod = tvm.IRModule.from_expr(expr)
    values = {v.name_hint: values[v.name_hint] for v in relay.analysis.free_vars(expr)}
    steps = run_planned(dnnl.partition_for_dnnl(mod), values, direct.run(mod, values), RTOL)
    if names:
        step, *others = [step for step in steps if step["kind"] != "reorder"]
        if names[-1] == "eltwise_tanh" and not has_avx512():
            names = names[:-1]
            assert others.pop()["kind"] == "eltwise"
        assert step["kind"] == "matmul" and not step["reference"] and not others
        assert [name.replace("eltwise_linear", "") for name in step["post_ops"]] == names
