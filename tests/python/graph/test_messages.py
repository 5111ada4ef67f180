# SPDX-License-Identifier: Apache-2.0
"""Errors of models that do not import: they name the node, its operands and the remedies."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from tvm.contrib.onednn.frontend.functions import import_expanded  # noqa: E402
from tvm.contrib.onednn.frontend.prepare import load, prepare  # noqa: E402


def model(nodes, opset=17, weights=()):
    sides = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 8, 8]), ("y", None))
    ]
    arrays = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in weights]
    graph = helper.make_graph(nodes, "g", sides[:1], sides[1:], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


INVALID = {
    "opset 99, .* knows opsets up to": model([helper.make_node("Relu", ["x"], ["y"])], opset=99),
    "ONNX Relu, node r: its input nothere is neither": model(
        [helper.make_node("Relu", ["nothere"], ["y"], name="r")]
    ),
    "ONNX Softmax, node s: the attribute axis has the type STRING, .* requires INT": model(
        [helper.make_node("Softmax", ["x"], ["y"], name="s", axis="a")]
    ),
}


@pytest.mark.parametrize("message", INVALID, ids=["opset", "input", "attribute"])
def test_invalid_models_are_refused(message):
    with pytest.raises(ValueError, match=message):
        prepare(INVALID[message])


def test_an_error_of_an_importer_is_explained():
    source = prepare(
        model(
            [
                helper.make_node("Relu", ["x"], ["r"]),
                helper.make_node("MatMul", ["r", "w"], ["y"], name="mm"),
            ],
            weights=[("w", np.zeros((5, 7), "float32"))],
        )
    )

    def convert(_):
        raise ValueError(
            'ONNX MatMul, node mm: In ir.Op(span=None, name="relax.matmul", support_level=10), the '
            'shape R.shape([T.int64(8)]) of metadata["ir.GenericConst"][0]\n'
            "# Metadata omitted. Use show_meta=True in script() method to show it. is wrong"
        )

    with pytest.raises(ValueError) as raised:
        import_expanded(source, convert)
    text, operands, inference, remedies = str(raised.value).splitlines()
    assert text == ("ONNX MatMul, node mm: In relax.matmul, the shape [8] of a constant is wrong")
    assert operands == "Its operands: r float [1, 3, 8, 8], w float [5, 7]"
    assert "Incompatible dimensions for matrix multiplication" in inference
    assert remedies == "Remedies: docs/import.md#if-a-model-does-not-import"


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.onnx", b"", "it is empty"),
        ("a.onnx", b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS"),
        ("a.tflite", b"\x18\0\0\0TFL3\0\0", "the plug-in for Relax"),
        ("a.pt2", b"PK\x03\x04" + bytes(range(200)), "the plug-in for Relax"),
    ],
    ids=["empty", "pointer", "tflite", "pt2"],
)
def test_files_that_are_no_onnx_models(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} is not an ONNX model: .*{message}"):
        load(tmp_path / name)


def test_other_objects():
    with pytest.raises(TypeError, match="a path or an onnx.ModelProto, not int"):
        load(5)
