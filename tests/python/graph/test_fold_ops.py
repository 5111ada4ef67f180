# SPDX-License-Identifier: Apache-2.0
"""Ops of ONNX that are folded in NumPy: the same as onnx's reference, and nothing invalid."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from tvm.contrib.onednn.frontend.evaluate import evaluate_in_numpy  # noqa: E402

INT64_MIN, INT64_MAX = np.iinfo("int64").min, np.iinfo("int64").max
DATA = np.arange(24, dtype="float32").reshape(2, 3, 4) - 11.6


def ints(*values):
    return np.array(values, "int64")


def node(op, count, **attrs):
    names = [f"x{i}" for i in range(count)]
    return helper.make_node(op, names, ["y"], **attrs)


def reference(op, values, opset):
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in zip(op.input, values)
    ]
    graph = helper.make_graph([op], "g", infos, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, dict(zip(op.input, values)))[0]


CASES = {
    "add": ("Add", [DATA, DATA[0]], {}),
    "add overflows": ("Add", [np.array([127], "int8"), np.array([1], "int8")], {}),
    "sub": ("Sub", [ints(1, 2), ints(5)], {}),
    "mul": ("Mul", [DATA.astype("float16"), np.float16(3).reshape(())], {}),
    "cast to int": ("Cast", [DATA], {"to": TensorProto.INT64}),
    "cast to bool": ("Cast", [DATA], {"to": TensorProto.BOOL}),
    "cast to half": ("Cast", [DATA], {"to": TensorProto.FLOAT16}),
    "concat": ("Concat", [DATA, DATA[:, :1]], {"axis": -2}),
    "constant of a shape": ("ConstantOfShape", [ints(2, 0, 3)], {}),
    "constant of a value": (
        "ConstantOfShape",
        [ints()],
        {"value": helper.make_tensor("value", TensorProto.INT64, [1], [7])},
    ),
    "equal": ("Equal", [DATA, DATA[:1]], {}),
    "expand": ("Expand", [DATA[:, :1], ints(2, 1, 3, 1)], {}),
    "less": ("Less", [ints(1, 2), ints(2)], {}),
    "not": ("Not", [DATA > 0], {}),
    "range of whole floats": ("Range", [np.float32(each).reshape(()) for each in (0, 40, 3)], {}),
    "range": ("Range", [np.array(5), np.array(-2), np.array(-3)], {}),
    "gather a number": ("Gather", [ints(3, 4, 5), np.array(-1)], {}),
    "gather": ("Gather", [DATA, ints([0, 2], [-1, 1])], {"axis": 1}),
    "reshape": ("Reshape", [DATA, ints(0, -1)], {}),
    "reshape empty": ("Reshape", [DATA[:, :0], ints(0, 5)], {"allowzero": 1}),
    "slice": ("Slice", [DATA, ints(-3), ints(INT64_MAX), ints(-1)], {}),
    "slice of all axes": ("Slice", [DATA, ints(0, 1), ints(1, -1)], {}),
    "slice backwards": ("Slice", [DATA, ints(9), ints(INT64_MIN), ints(1), ints(-2)], {}),
    "squeeze": ("Squeeze", [DATA[:1, :, :1], ints(-1)], {}),
    "squeeze all": ("Squeeze", [DATA[:1, :1, :1]], {}),
    "transpose": ("Transpose", [DATA], {"perm": [2, 0, 1]}),
    "transpose all": ("Transpose", [DATA], {}),
    "unsqueeze": ("Unsqueeze", [DATA, ints(0, -1)], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_same_as_the_reference(name):
    op, values, attrs = CASES[name]
    proto = node(op, len(values), **attrs)
    (result,) = evaluate_in_numpy(proto, values, 17)
    wanted = np.asarray(reference(proto, values, 17))
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("op, expected", [("Squeeze", (3, 4)), ("Unsqueeze", (1, 1, 3, 1, 4))])
def test_axes_as_attributes(op, expected):
    axes = {"Squeeze": [0], "Unsqueeze": [0, 3]}[op]
    (result,) = evaluate_in_numpy(node(op, 1, axes=axes), [DATA[:1]], 11)
    np.testing.assert_array_equal(result, DATA[:1].reshape(expected))


def test_bounds_as_attributes():
    attrs = {"starts": [-2, 1], "ends": [9, -1], "axes": [1, 2]}
    (result,) = evaluate_in_numpy(node("Slice", 1, **attrs), [DATA], 9)
    np.testing.assert_array_equal(result, DATA[:, -2:9, 1:-1])


INVALID = {
    "another op": ("Relu", [DATA], {}, 17),
    "an older version": ("Reshape", [DATA], {"shape": [24]}, 1),
    "an index that is too large": ("Gather", [DATA, ints(2)], {}, 17),
    "an axis of another size": ("Squeeze", [DATA, ints(0)], {}, 17),
    "a shape of another size": ("Reshape", [DATA, ints(5, 5)], {}, 17),
    "a range of floats": ("Range", [DATA[0, 0, 0].reshape(())] * 3, {}, 17),
    "two types": ("Add", [DATA, DATA.astype("float64")], {}, 17),
    "no axis": ("Concat", [DATA, DATA], {}, 17),
    "a missing input": ("Gather", [DATA, None], {}, 17),
    "a step of 0": ("Slice", [DATA, ints(0), ints(1), ints(0), ints(0)], {}, 17),
}


@pytest.mark.parametrize("name", INVALID)
def test_what_is_left_to_onnx(name):
    op, values, attrs, opset = INVALID[name]
    assert evaluate_in_numpy(node(op, len(values), **attrs), values, opset) is None
