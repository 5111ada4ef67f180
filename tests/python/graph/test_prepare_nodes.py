# SPDX-License-Identifier: Apache-2.0
"""Preparing ONNX models: the order of nodes, loops of a known length, tensors without elements."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper, reference  # noqa: E402
from onnx.helper import make_node, make_tensor_value_info  # noqa: E402
from tvm.contrib.onednn.frontend.prepare import prepare  # noqa: E402


def model(nodes, inputs, outputs=("y",), constants=(), opset=17):
    """Return a model of inputs by name with float32 shapes."""
    graph = helper.make_graph(
        nodes,
        "g",
        [make_tensor_value_info(name, 1, dims) for name, dims in inputs.items()],
        [make_tensor_value_info(name, 1, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in dict(constants).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def ops(proto):
    return [node.op_type for node in proto.graph.node]


def test_nodes_in_any_order():
    """Also within branches, whose values may have the names of later ones."""
    branches = {
        name: helper.make_graph(
            [make_node("Neg", ["r"], ["z"]), make_node(op, ["b"], ["r"])],
            name,
            [],
            [make_tensor_value_info("z", 1, None)],
        )
        for name, op in (("then_branch", "Relu"), ("else_branch", "Abs"))
    }
    nodes = [
        make_node("Sigmoid", ["u"], ["y"]),
        make_node("If", ["c"], ["u"], **branches),
        make_node("ReduceMax", ["a"], ["m"], keepdims=0),
        make_node("Greater", ["m", "zero"], ["c"]),
        make_node("Exp", ["a"], ["b"]),
        make_node("Tanh", ["x"], ["a"]),
    ]
    prepared = prepare(model(nodes, {"x": [2, 3]}, constants={"zero": np.float32(0)}))
    known = {"x", "zero"}
    for node in prepared.graph.node:
        assert known.issuperset(node.input)
        known.update(node.output)
    (branch,) = (node for node in prepared.graph.node if node.op_type == "If")
    for attribute in branch.attribute:
        assert [node.op_type for node in attribute.g.node][-1] == "Neg"
    x = np.array([[1, -2, 3], [0, 1, 2]], "float32")
    (got,) = reference.ReferenceEvaluator(prepared).run(None, {"x": x})
    np.testing.assert_allclose(got, 1 / (1 + np.exp(np.exp(np.tanh(x)))), rtol=1e-6)


def test_sorted_nodes_stay_as_they_are():
    nodes = [make_node("Tanh", ["x"], ["a"]), make_node("Exp", ["x"], ["b"])]
    proto = model([*nodes, make_node("Add", ["a", "b"], ["y"])], {"x": [2, 3]})
    assert prepare(proto).graph.node == proto.graph.node


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_scan_of_a_known_length(axis, direction):
    value = make_tensor_value_info
    body = helper.make_graph(
        [make_node("Add", ["s", "e"], ["t"]), make_node("Mul", ["t", "w"], ["o"])],
        "body",
        [value("s", 1, [2]), value("e", 1, [2])],
        [value("t", 1, [2]), value("o", 1, [2])],
        [numpy_helper.from_array(np.float32(3), "w")],
    )
    attrs = dict(num_scan_inputs=1, scan_input_axes=[axis], scan_input_directions=[direction])
    attrs.update(scan_output_axes=[-1], scan_output_directions=[1 - direction])
    node = make_node("Scan", ["i", "x"], ["y", "z"], body=body, **attrs)
    x = np.arange(8, dtype="float32").reshape((4, 2) if axis == 0 else (2, 4))
    prepared = prepare(model([node], {"i": [2], "x": list(x.shape)}, ("y", "z")))
    assert "Scan" not in ops(prepared)
    inputs = {"i": np.array([1, 2], "float32"), "x": x}
    items, state, outputs = np.moveaxis(x, axis, 0), inputs["i"], []
    for item in items[::-1] if direction else items:
        state = state + item
        outputs.append(state * 3)
    outputs = outputs if direction else outputs[::-1]
    got = reference.ReferenceEvaluator(prepared).run(None, inputs)
    np.testing.assert_array_equal(got[0], state)
    np.testing.assert_array_equal(got[1], np.stack(outputs, -1))


def test_scan_of_an_open_length_stays():
    value = make_tensor_value_info
    body = helper.make_graph(
        [make_node("Add", ["s", "e"], ["t"])],
        "body",
        [value("s", 1, [2]), value("e", 1, [2])],
        [value("t", 1, [2])],
    )
    node = make_node("Scan", ["i", "x"], ["y"], body=body, num_scan_inputs=1)
    assert ops(prepare(model([node], {"i": [2], "x": ["n", 2]}))) == ["Scan"]


NOTHING = {
    "mean": (make_node("ReduceMean", ["x"], ["y"], axes=[0]), {"x": [0, 4]}, np.nan),
    "product": (make_node("ReduceProd", ["x"], ["y"], axes=[0]), {"x": [0, 4]}, 1),
    "matmul": (make_node("MatMul", ["x", "z"], ["y"]), {"x": [3, 0], "z": [0, 4]}, 0),
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_is_computed_of_nothing_is_constant(name):
    node, shapes, wanted = NOTHING[name]
    prepared = prepare(model([node], shapes))
    assert not ops(prepared)
    assert [value.name for value in prepared.graph.input] == list(shapes)
    (value,) = map(numpy_helper.to_array, prepared.graph.initializer)
    np.testing.assert_array_equal(value, np.full(value.shape, wanted, "float32"))


def test_nothing_is_not_computed():
    """TVM does not compile all ops for it."""
    prepared = prepare(model([make_node("Softmax", ["x"], ["y"])], {"x": [2, 0, 3]}))
    assert ops(prepared) == ["ConstantOfShape"]
