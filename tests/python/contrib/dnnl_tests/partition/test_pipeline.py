# SPDX-License-Identifier: Apache-2.0
"""The backend through TVM's own BYOC passes, as its tutorials write them."""

import json
import re
from collections import Counter

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn.failures import PartitionError, PartitionWarning
from tvm.relay import testing as models
from tvm.relay.dataflow_pattern import is_op, is_tuple, wildcard
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib.register import get_pattern_table
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import json_only
from dnnl_tests.reference import RTOL, conv2d, rand


def byoc_pipeline(mod, params=None, composites=True):
    """Annotate, merge and partition with nothing but TVM's passes."""
    if params:
        mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    passes = [
        relay.transform.SimplifyInference(),
        relay.transform.FoldConstant(),
        relay.transform.FoldScaleAxis(),
        relay.transform.FoldConstant(),
        relay.transform.MergeComposite(get_pattern_table("dnnl")) if composites else None,
        relay.transform.AnnotateTarget(["dnnl"]),
        relay.transform.MergeCompilerRegions(),
        relay.transform.PartitionGraph(),
    ]
    with tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential([p for p in passes if p])(mod)


def conv_bias_relu():
    """Return a module, its input, its weights and the expected result."""
    attrs = dict(kernel_size=(3, 3), channels=8, padding=(1, 1))
    x, w, b = rand(1, 8, 6, 6), rand(8, 8, 3, 3, seed=1), rand(8, 1, 1, seed=2)
    data, weight, bias = (
        relay.var(name, shape=value.shape) for name, value in zip("xwb", (x, w, b))
    )
    expr = relay.nn.relu(relay.nn.conv2d(data, weight, **attrs) + bias)
    expected = np.maximum(conv2d(x, w, attrs) + b, 0)
    return tvm.IRModule.from_expr(expr), {"x": x}, {"w": w, "b": b}, expected


@pytest.mark.parametrize("executor", ["graph", "vm"])
def test_patterns(executor):
    mod, inputs, params, expected = conv_bias_relu()
    partitioned = byoc_pipeline(mod, params)
    assert testing.offload(partitioned).composites == {"dnnl.conv2d_bias_relu": 1}
    testing.assert_close(direct.run(partitioned, inputs, executor=executor), [expected], RTOL)


SIGMOID = relay.sigmoid, lambda value: 1 / (1 + np.exp(-value))
RELU = relay.nn.relu, lambda value: np.maximum(value, 0)
PATTERNS = {
    "conv2d_sigmoid": (False, None, SIGMOID),
    "conv2d_bias_sigmoid": (True, None, SIGMOID),
    "conv2d_bias_sum": (True, "second", None),
    "conv2d_bias_sum_relu": (True, "first", RELU),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_of_the_table(name):
    """Each pattern makes one composite, with the residual on either side."""
    has_bias, residual, post = PATTERNS[name]
    attrs = dict(kernel_size=(3, 3), channels=8, padding=(1, 1))
    x, w, b, r = rand(1, 8, 6, 6), rand(8, 8, 3, 3, seed=1), rand(8, 1, 1), rand(1, 8, 6, 6, seed=3)
    data, other = relay.var("x", shape=x.shape), relay.var("r", shape=r.shape)
    expr, expected = relay.nn.conv2d(data, relay.const(w), **attrs), conv2d(x, w, attrs)
    if has_bias:
        expr, expected = expr + relay.const(b), expected + b
    if residual:
        expr = expr + other if residual == "second" else other + expr
        expected = expected + r
    if post:
        expr, expected = post[0](expr), post[1](expected)
    partitioned = byoc_pipeline(tvm.IRModule.from_expr(expr))
    assert testing.offload(partitioned).composites == {f"dnnl.{name}": 1}
    inputs = {"x": x, "r": r} if residual else {"x": x}
    testing.assert_close(direct.run(partitioned, inputs), [expected], RTOL)


@pytest.mark.parametrize("post", ["", "_relu"])
@pytest.mark.parametrize("second", [True, False], ids=["second", "first"])
def test_a_residual_that_is_read_twice(second, post):
    """Of two convolutions, the one that nothing else reads has the sum, on whichever side it is."""
    attrs = dict(kernel_size=(3, 3), channels=8, padding=(1, 1))
    x, w, b = rand(1, 8, 6, 6), rand(8, 8, 3, 3, seed=1), rand(8, 1, 1, seed=2)

    def layer(data):
        return relay.nn.conv2d(data, relay.const(w), **attrs) + relay.const(b)

    shortcut = layer(relay.var("x", shape=x.shape))
    other = layer(shortcut)
    expr = shortcut + other if second else other + shortcut
    partitioned = byoc_pipeline(tvm.IRModule.from_expr(relay.nn.relu(expr) if post else expr))
    offload = testing.offload(partitioned)
    assert offload.composites == {"dnnl.conv2d_bias": 1, f"dnnl.conv2d_bias_sum{post}": 1}
    first = conv2d(x, w, attrs) + b
    expected = first + conv2d(first, w, attrs) + b
    expected = np.maximum(expected, 0) if post else expected
    testing.assert_close(direct.run(partitioned, {"x": x}), [expected], RTOL)


def residual_of(kind, conv):
    """What is added to a convolution of 1x8x6x6, but is no residual that oneDNN could add."""
    return {
        "broadcast": lambda: relay.var("r", shape=(6, 6)),
        "from-the-root": lambda: relay.nn.relu(conv),
    }[kind]()


@pytest.mark.parametrize("kind", ["broadcast", "from-the-root"])
def test_what_is_no_residual(kind):
    conv = relay.nn.conv2d(relay.var("x", shape=(1, 8, 6, 6)), relay.const(rand(8, 8, 1, 1)))
    bias = relay.const(rand(8, 1, 1))
    partitioned = byoc_pipeline(tvm.IRModule.from_expr((conv + bias) + residual_of(kind, conv)))
    composites = testing.offload(partitioned).composites
    assert "dnnl.conv2d_bias_sum" not in composites
    assert set(composites) <= {"dnnl.conv2d_bias"}


NO_BIAS = {
    "row": lambda conv: conv + relay.const(rand(8)),
    "bias_add-of-rows": lambda conv: relay.nn.bias_add(conv, relay.const(rand(8)), axis=3),
    "from-the-root": lambda conv: conv + relay.max(conv, axis=[0, 2, 3], keepdims=True),
}
BIAS = {
    "left": lambda conv: relay.const(rand(8, 1, 1)) + conv,
    "bias_add": lambda conv: relay.nn.bias_add(conv, relay.const(rand(8)), axis=1),
}


@pytest.mark.parametrize("kind", [*NO_BIAS, *BIAS])
def test_what_is_a_bias(kind):
    """As wide as the channels are many, so that the shape alone does not tell."""
    conv = relay.nn.conv2d(relay.var("x", shape=(1, 8, 6, 8)), relay.const(rand(8, 8, 1, 1)))
    partitioned = byoc_pipeline(tvm.IRModule.from_expr({**NO_BIAS, **BIAS}[kind](conv)))
    counts = testing.offload(partitioned).composites
    assert counts == ({"dnnl.conv2d_bias": 1} if kind in BIAS else {})


@json_only
@pytest.mark.parametrize("partition", [byoc_pipeline, dnnl.partition_for_dnnl])
@pytest.mark.parametrize("kind", [*NO_BIAS, *BIAS])
def test_the_graph_has_a_bias_where_the_name_has(kind, partition):
    """Both pipelines mark it in the description of the kernel."""
    conv = relay.nn.conv2d(relay.var("x", shape=(1, 8, 6, 8)), relay.const(rand(8, 8, 1, 1)))
    lib = testing.build(partition(tvm.IRModule.from_expr({**NO_BIAS, **BIAS}[kind](conv))))
    (module,) = testing.dnnl_modules(lib)
    kernels = json.loads(module.get_source("json"))["nodes"]
    first = {n["name"]: n["attrs"].get("post_ops", [{}])[0] for n in kernels}
    marked = [name for name, post_op in first.items() if post_op.get("is_bias")]
    assert marked == [node["name"] for node in kernels if "bias" in node["name"].split("_")]
    assert marked == (["dnnl.conv2d_bias"] if kind in BIAS else [])


@json_only
def test_the_code_generator_copies_the_kernel_that_the_partitioner_describes():
    mod, _, params, _ = conv_bias_relu()
    (func,) = (
        func
        for func in dnnl.partition_for_dnnl(mod, params).functions.values()
        if func.attrs and "Compiler" in func.attrs
    )
    composite = func.body.op
    described = json.loads(composite.attrs["dnnl_kernel"])
    changed = json.dumps({**described, "only_here": 7})
    call = relay.Call(composite.with_attr("dnnl_kernel", changed), func.body.args)
    other = tvm.IRModule.from_expr(relay.Function(func.params, call, func.ret_type))
    other = relay.transform.InferType()(other)["main"].with_attr("global_symbol", "other")
    for each, only in ((func, None), (other, 7)):
        module = tvm.get_global_func("relay.ext.dnnl")(each)
        (node,) = (n for n in json.loads(module.get_source("json"))["nodes"] if n["op"] == "kernel")
        assert node["attrs"].get("only_here") == only
        assert described.items() <= node["attrs"].items()
        assert len(node["inputs"]) == len(composite.params) == 3


@json_only
@pytest.mark.parametrize("text", ["", "{", "[]", "1", '{"post_ops": [}', '{"a": 1} 2'])
def test_a_damaged_description(text):
    mod, _, params, _ = conv_bias_relu()
    partitioned = dnnl.partition_for_dnnl(mod, params)
    (func,) = (f for f in partitioned.functions.values() if f.attrs and "Compiler" in f.attrs)
    call = relay.Call(func.body.op.with_attr("dnnl_kernel", text), func.body.args)
    other = tvm.IRModule.from_expr(relay.Function(func.params, call, func.ret_type))
    other = relay.transform.InferType()(other)["main"].with_attr("global_symbol", "other")
    with pytest.raises(tvm.TVMError, match=f"{func.body.op.attrs['Composite']}: .*dnnl_kernel"):
        tvm.get_global_func("relay.ext.dnnl")(other)


def test_single_ops():
    mod, inputs, params, expected = conv_bias_relu()
    partitioned = byoc_pipeline(mod, params, composites=False)
    offload = testing.offload(partitioned)
    assert not offload.composites and not offload.host_ops and offload.partitions == 1
    testing.assert_close(direct.run(partitioned, inputs), [expected], RTOL)


def test_the_same_is_offloaded_as_by_partition_for_dnnl():
    """On a network without branches, TVM's passes offload what ours do, but for the views."""
    data = relay.var("data", shape=(1, 3, 32, 32))
    body = models.mobilenet.conv_block(data, "first", 8, strides=(2, 2))
    body = models.mobilenet.separable_conv_block(body, "second", 8, 16)
    body = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(body))
    body = relay.nn.softmax(models.layers.dense_add_bias(body, units=10, name="last"))
    func = relay.Function(relay.analysis.free_vars(body), body)
    mod, params = models.create_workload(func)
    ours = testing.offload(dnnl.partition_for_dnnl(mod, params))
    passes = testing.offload(byoc_pipeline(mod, params))
    assert passes.composites == ours.composites
    assert passes.host_ops == ours.host_ops + Counter(["nn.batch_flatten"])
    assert (passes.partitions, ours.partitions) == (2, 1)


def test_a_view_is_no_partition():
    """TVM's passes do not prune what computes nothing."""
    data = relay.var("x", shape=(2, 3, 4))
    partitioned = byoc_pipeline(tvm.IRModule.from_expr(relay.cumsum(relay.nn.batch_flatten(data))))
    assert testing.offload(partitioned).partitions == 0


W = wildcard
X48 = relay.var("x", shape=(4, 8))
DENSE = relay.nn.dense(X48, relay.const(rand(3, 8)))
UNWRITABLE = {
    "unknown-root": (relay.atan(X48), is_op("atan")(W()), "atan: no rule for this op"),
    "unknown-post-op": (
        relay.atan(DENSE),
        is_op("atan")(is_op("nn.dense")(W(), W())),
        "atan: no rule for this op",
    ),
    "two-kernels": (
        relay.exp(DENSE) + relay.tanh(DENSE),
        is_op("add")(is_op("exp")(W()), is_op("tanh")(W())),
        "tanh: not fused with the other ops",
    ),
    "tuple": (
        relay.concatenate([relay.exp(X48), X48], 1),
        is_op("concatenate")(is_tuple([is_op("exp")(W()), W()])),
        "exp: not fused with the other ops",
    ),
    "float64": (
        relay.nn.relu(relay.exp(relay.var("x", shape=(4, 8), dtype="float64"))),
        is_op("nn.relu")(is_op("exp")(W())),
        "exp: ",
    ),
}


def merged(kind):
    """Return a module with a composite of somebody's own pattern, and what is wrong with it."""
    expr, pattern, message = UNWRITABLE[kind]
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(expr))
    message = f"dnnl.any is not a oneDNN kernel: {message}"
    return relay.transform.MergeComposite([("dnnl.any", pattern)])(mod), message


@json_only
@pytest.mark.parametrize("kind", UNWRITABLE)
def test_a_pattern_of_what_is_no_kernel(kind):
    """It is an error when it is compiled, not when it is run, and says what to do."""
    mod, message = merged(kind)
    mod = tvm.transform.Sequential(
        [
            relay.transform.AnnotateTarget(["dnnl"]),
            relay.transform.MergeCompilerRegions(),
            relay.transform.PartitionGraph(),
        ]
    )(mod)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        testing.build(mod)
    assert "partition with partition_for_dnnl" in str(error.value)


@json_only
@pytest.mark.parametrize("kind", ["unknown-post-op", "two-kernels", "tuple"])
def test_partition_for_dnnl_leaves_such_a_composite_to_tvm(kind):
    mod, message = merged(kind)
    with pytest.warns(PartitionWarning, match=re.escape(message)):
        partitioned = dnnl.partition_for_dnnl(mod, prune=False, strict=False)
    x = {"x": rand(4, 8)}
    (got,), (want,) = direct.run(partitioned, x), direct.run(mod, x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    with pytest.raises(PartitionError, match=re.escape(message)):
        dnnl.partition_for_dnnl(mod, prune=False, strict=True)
