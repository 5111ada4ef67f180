# SPDX-License-Identifier: Apache-2.0
"""ONNX's `If`, `Loop` and sequences in Relax. A branch runs only if it is selected."""

import numpy as np
import onnx
import pytest
import tvm_dnnl
from onnx import numpy_helper
from tvm import relax
from tvm_dnnl.frontend._dnnl.onnx import open_shapes

from dnnl_relax.modules import compiled, rand, run
from dnnl_relax.onnx.nodes import assert_close, check_node, onnxruntime_results

W = {"w": rand(8, 8), "v": rand(8, 8, seed=1), "k": rand(4, 8, 3, seed=2)}


def model(text, **constants):
    """Return a model from ONNX's text format, with the constants that it reads."""
    graph = onnx.parser.parse_graph(text)
    for name, value in {**W, "rate": np.array(16000), **constants}.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    opsets = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def check(proto, shape=None, *inputs):
    """Compare with onnxruntime for inputs by name; return the partitioned module."""
    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(proto, shape), prune=False)
    module = compiled(partitioned)
    for values in inputs:
        expected = onnxruntime_results(proto, values)
        assert_close(run(module, *(values[each.name] for each in proto.graph.input)), expected)
    return partitioned


# The condition is an input. Both branches read a value and weights of the graph around them.
RATES = """g (float[1, 8] x, int64 sr, float[1, 8] state) => (float[a, b] y, float[c, d] s) {
    h = Relu(x)
    is_fast = Equal(sr, rate)
    y, s = If(is_fast) <
        then_branch = t () => (float[e, f] ty, float[g, i] ts) {
            m = MatMul(h, w)  a = Add(m, state)  ty = Sigmoid(a)  ts = Relu(a) },
        else_branch = e () => (float[e, f] ey, float[g, i] es) {
            m = MatMul(h, v)  ey = Tanh(m)  es = Add(ey, state) }>
}"""


def rates(*values):
    x, state = rand(1, 8), rand(1, 8, seed=3)
    return [{"x": x, "sr": np.array(value), "state": state} for value in values]


def test_both_branches_of_a_condition_at_run_time():
    partitioned = check(model(RATES), None, *rates(16000, 8000))
    report = tvm_dnnl.offload_report(partitioned)
    # The comparison of integers stays on TVM.
    assert (report.total - report.offloaded, report.partitions) == (1, 3)
    main = partitioned["main"]
    called = [b.value for block in main.body.blocks for b in block.bindings]
    assert sum(isinstance(value, relax.If) for value in called) == 1


def test_a_constant_input_selects_the_branch():
    inputs = rates(8000)[0]
    expected = onnxruntime_results(model(RATES), inputs)
    compiled_model = tvm_dnnl.compile(model(RATES), constants={"sr": 8000}, prune=False)
    assert compiled_model.input_names == ["x", "state"]
    assert (compiled_model.report.offloaded, compiled_model.report.partitions) == (4, 1)
    assert_close(compiled_model(inputs["x"], inputs["state"]), expected)


def test_scalar_inputs_of_a_compiled_model():
    compiled_model = tvm_dnnl.compile(model(RATES), prune=False)
    inputs = rates(16000)[0]
    assert_close(compiled_model(**inputs), onnxruntime_results(model(RATES), inputs))


# As PyTorch writes a squeeze: `If` of a size, in a branch.
NESTED = """g (float[n, 8, 3] x, int64 sr) => (float[a, b] y) {
    is_fast = Equal(sr, rate)
    y = If(is_fast) <
        then_branch = t () => (float[c, d] ty) {
            m = Conv(x, k)  s = Shape(m)  size = Gather(s, last)  is_one = Equal(size, one)
            q = If(is_one) <
                then_branch = tt () => (float[e, f] tty) { tty = Squeeze(m, axes) },
                else_branch = te () => (float[i, j, l] tey) { tey = Identity(m) }>
            ty = Relu(q) },
        else_branch = e () => (float[c, d] ey) {
            z = ReduceMax<axes=[2], keepdims=0>(x)  ey = MatMul(z, r) }>
}"""
CONSTANTS = {"last": np.array(2), "one": np.array(1), "axes": np.array([2]), "r": rand(8, 4)}


@pytest.mark.parametrize("shape", [{"x": (2, 8, 3)}, None], ids=["static", "open"])
def test_conditions_of_sizes_in_branches(shape):
    inputs = [{"x": rand(2, 8, 3), "sr": np.array(rate)} for rate in (16000, 8000)]
    partitioned = check(model(NESTED, **CONSTANTS), shape, *inputs)
    report = tvm_dnnl.offload_report(partitioned)
    assert (report.total - report.offloaded, report.partitions) == (1, 2)


# A pad that stays on TVM: it allocates memory in both branches.
PADS = """g (float[1, 8] x, int64 sr) => (float[a, b] y) {
    is_fast = Equal(sr, rate)
    y = If(is_fast) <
        then_branch = t () => (float[c, d] ty) {
            p = Pad<mode="reflect">(x, few)  q = Pad<mode="reflect">(p, few)  ty = Relu(q) },
        else_branch = e () => (float[c, d] ey) {
            p = Pad<mode="reflect">(x, few)  q = Pad<mode="reflect">(p, few)  ey = Neg(q) }>
}"""


def test_ops_of_tvm_in_both_branches():
    inputs = [{"x": rand(1, 8), "sr": np.array(rate)} for rate in (8000, 16000, 8000)]
    check(model(PADS, few=np.array([0, 2, 0, 2])), None, *inputs)


def test_a_branch_of_a_value_and_a_condition_of_one_element():
    text = """g (float[4, 8] x) => (float[4, 8] y) {
        m = MatMul(x, w)
        top = ReduceMax<keepdims=0>(m)  is_high = Greater(top, limit)  c = Reshape(is_high, shape)
        y = If(c) <then_branch = t () => (float[4, 8] ty) { ty = MatMul(m, v) },
                   else_branch = e () => (float[4, 8] ey) { ey = Identity(m) }>
    }"""
    proto = model(text, limit=np.float32(0), shape=np.array([1]))
    partitioned = check(proto, None, {"x": rand(4, 8)}, {"x": np.zeros((4, 8), "float32")})
    report = tvm_dnnl.offload_report(partitioned)
    assert {"max", "greater"}.issuperset(report.reasons)


def test_a_branch_that_does_not_fit_is_named():
    text = """g (float[1, 8] x, int64 sr) => (float[a, b] y) {
        is_fast = Equal(sr, rate)
        y = If(is_fast) <
            then_branch = t () => (float[c, d] ty) { ty = MatMul(x, w) },
            else_branch = e () => (float[c, d] ey) { ey = MatMul(x, short) }>
    }"""
    proto = model(text, short=rand(4, 8))
    proto.graph.node[1].name = "by_rate"
    with pytest.raises(Exception, match="If, node by_rate: else_branch: .*MatMul(.|\n)*constants"):
        tvm_dnnl.from_onnx(proto)
    mod = tvm_dnnl.from_onnx(proto, constants={"sr": 16000})
    x = rand(1, 8)
    (got,) = run(compiled(tvm_dnnl.partition_for_dnnl(mod, prune=False)), x)
    np.testing.assert_allclose(got, x @ W["w"], rtol=1e-5, atol=1e-6)


def test_branches_of_different_types_are_refused():
    text = """g (float[1, 8] x, int64 sr) => (float[a, b] y) {
        is_fast = Equal(sr, rate)
        y = If(is_fast) <then_branch = t () => (float[c, d] ty) { ty = Relu(x) },
                         else_branch = e () => (int64[c, d] ey) { ey = Cast<to=7>(x) }>
    }"""
    with pytest.raises(ValueError, match="If, node y: its branches return .*float32.*int64"):
        open_shapes.OpenShapeImporter({}, "float32").from_onnx(model(text).graph, 17)


# The state is doubled, and summed in each iteration; `y` has all states.
LOOP = """g (float[1, 8] x) => (float[1, 8] last, float[a, b, c] y) {
    shape = Shape(x)  size = Gather(shape, axis)  steps = Div(size, two)
    last, y = Loop(limit, condition, x) <
        body = b (int64 i, bool go, float[1, 8] state)
            => (bool more, float[1, 8] n, float[1, 8] s) {
            m = MatMul(state, w)  t = Tanh(m)  f = Cast<to=1>(i)  n = Add(t, f)
            next = Add(i, one)  more = Less(next, steps)  s = Identity(n) }>
}"""
COUNTS = {"axis": np.array(1), "two": np.array(2), "one": np.array(1)}


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize("limit, steps", [("", 4), (np.array(3), 3)], ids=["while", "for"])
def test_loops_of_known_length_are_unrolled(limit, steps, opset):
    """The number of iterations is known once the shape is."""
    known = {} if limit == "" else {"limit": limit}
    text = LOOP.replace("limit", '""', 1) if limit == "" else LOOP
    proto = model(text.replace("condition", "yes"), **COUNTS, **known, yes=np.array(True))
    proto.opset_import[0].version = opset
    partitioned = check(proto, None, {"x": rand(1, 8)})
    report = tvm_dnnl.offload_report(partitioned)
    assert (report.partitions, report.reasons) == (1, {})
    assert report.offloaded_ops["matmul"] == steps


def test_a_loop_of_unknown_length_is_named():
    text = LOOP.replace("float[1, 8] x", "float[1, 8] x, bool condition", 1)
    proto = model(text, **COUNTS, limit=np.array(3))
    proto.graph.node[3].name = "decoder"
    with pytest.raises(NotImplementedError, match="ONNX Loop, node decoder: the number of iter"):
        tvm_dnnl.from_onnx(proto)
    assert tvm_dnnl.from_onnx(proto, constants={"condition": True})


@pytest.mark.parametrize("lengths", [[3] * 5, [5] * 5, [1, 2, 3, 4, 5]], ids=str)
@pytest.mark.parametrize("time_axis", [0, 1])
def test_reverse_sequence(lengths, time_axis):
    operands = {"x": rand(5, 5, 3), "sequence_lens": np.array(lengths)}
    attrs = {"time_axis": time_axis, "batch_axis": 1 - time_axis}
    check_node("ReverseSequence", operands, consts=["sequence_lens"], domain="", **attrs)


def test_reverse_sequence_of_computed_lengths_is_named():
    operands = {"x": rand(5, 5, 3), "sequence_lens": np.array([3] * 5)}
    with pytest.raises(NotImplementedError, match="ReverseSequence node: sequence_lens that are"):
        check_node("ReverseSequence", operands, domain="")


SLICES = {
    "axes": {"starts": [1, -3], "ends": [3, 9], "axes": [0, 2]},
    "no-axes": {"starts": [0, 1], "ends": [-1, 2]},
}


@pytest.mark.parametrize("attrs", SLICES.values(), ids=SLICES)
def test_slice_before_opset_10(attrs):
    x = rand(4, 3, 5)
    node = onnx.helper.make_node("Slice", ["x"], ["y"], **attrs)
    info = onnx.helper.make_tensor_value_info("x", 1, x.shape)
    result = onnx.helper.make_tensor_value_info("y", 1, None)
    graph = onnx.helper.make_graph([node], "g", [info], [result])
    opsets = [onnx.helper.make_opsetid("", 9)]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    partitioned = check(proto, None, {"x": x})
    assert tvm_dnnl.offload_report(partitioned).offloaded == 1
