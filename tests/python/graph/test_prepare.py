# SPDX-License-Identifier: Apache-2.0
"""The preparation of ONNX models, compared with onnxruntime without its optimizations."""

import sys

import numpy as np
import pytest
from tvm.contrib.onednn.frontend.prepare import prepare
from tvm.contrib.onednn.frontend.protobuf import fixed_size

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from tvm.contrib.onednn.frontend import __main__ as command_line  # noqa: E402

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(text, constants=(), opset=17, domains=()):
    """Return a model from ONNX's text format, with constants by name."""
    graph = onnx.parser.parse_graph(text)
    weights = dict(constants)
    graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items())
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(name, 1) for name in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def run(proto, inputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, inputs)


def ops(proto):
    return [node.op_type for node in proto.graph.node]


def shape(value):
    return [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]


def output_dims(proto):
    return proto.graph.output[0].type.tensor_type.shape.dim


def check(proto, wanted, sizes, given=None):
    """Assert the ops of a prepared model, its outputs and its interface; return it."""
    before = proto.SerializeToString()
    prepared = prepare(proto, given)
    assert proto.SerializeToString() == before, "the caller's model was changed"
    onnx.checker.check_model(prepared)
    assert ops(prepared) == wanted
    for values in ("input", "output"):
        old, new = (getattr(each.graph, values) for each in (proto, prepared))
        assert [(v.name, v.type.tensor_type.elem_type) for v in old] == [
            (v.name, v.type.tensor_type.elem_type) for v in new
        ]
    random = np.random.default_rng(0)
    inputs = {name: random.uniform(-1, 1, dims).astype("float32") for name, dims in sizes.items()}
    # The nodes that are left compute the same, bit by bit.
    for one, other in zip(run(prepared, inputs), run(proto, inputs)):
        np.testing.assert_array_equal(one, other)
    return prepared


RESHAPE = """g (float[n, 3, h, 4] x) => (float[p, q] y) {
    s = Shape(x) d = Slice(s, zero, one) t = Concat<axis=0>(d, minus) y = Reshape(x, t)
}"""
INDICES = {"zero": np.array([0]), "one": np.array([1]), "minus": np.array([-1])}


def test_computed_shapes():
    check(model(RESHAPE, INDICES), ["Reshape"], {"x": (2, 3, 5, 4)}, {"x": (2, 3, 5, 4)})
    check(model(RESHAPE, INDICES), ["Reshape"], {"x": (2, 3, 5, 4)}, {"n": 2})
    sizes = {"x": (2, 3, 5, 4)}
    prepared = check(model(RESHAPE, INDICES), ["Shape", "Slice", "Concat", "Reshape"], sizes)
    assert shape(prepared.graph.input[0]) == ["n", 3, "h", 4]


def test_known_sizes_of_an_open_shape():
    text = """g (float[n, 3, h, 4] x) => (float[a, b, c, 3, 4] y) {
        s = Shape(x) c = Gather(s, one) d = Squeeze(last) w = Slice(s, last, end)
        t = Concat<axis=0>(zero, zero, minus, c, w) y = Reshape<allowzero=0>(x, t)
    }"""
    text = text.replace("(zero, zero,", "(one, one,").replace("d = Squeeze(last) ", "")
    constants = {**INDICES, "last": np.array([3]), "end": np.array([9])}
    check(model(text, constants), ["Reshape"], {"x": (2, 3, 5, 4)})


BRANCHES = """g (float[n, 4] x) => (float[n, 4] y) {
    k = Relu(x) size = Shape(w) c = Gather(size, zero) b = Equal(c, four)
    y = If(b) <then_branch = t () => (float[n, 4] r) { v = Add(k, one) r = Mul(v, v) },
               else_branch = e () => (float[n, 4] r) { v = Sub(k, one) r = Neg(v) }>
}"""


@pytest.mark.parametrize("rows", [4, 5], ids=["then", "else"])
def test_branch_of_a_constant_condition(rows):
    constants = {"w": np.ones((rows, 2), "float32"), "zero": np.array(0), "four": np.array(4)}
    wanted = ["Relu", "Add", "Mul"] if rows == 4 else ["Relu", "Sub", "Neg"]
    proto = model(BRANCHES, {**constants, "one": np.float32(1)})
    prepared = check(proto, [*wanted, "Identity"], {"x": (3, 4)})
    assert {tensor.name for tensor in prepared.graph.initializer} == {"one"}


def test_branch_of_a_computed_condition_stays():
    text = """g (float[n, 4] x) => (float[n, 4] y) {
        m = ReduceMax<keepdims=0>(x) b = Greater(m, one) i = Identity(x)
        y = If(b) <then_branch = t () => (float[n, 4] r) { r = Relu(i) },
                   else_branch = e () => (float[n, 4] r) { r = Neg(i) }>
    }"""
    check(model(text, {"one": np.float32(1)}), ["ReduceMax", "Greater", "If"], {"x": (3, 4)})


def test_branches_of_a_computed_condition_are_folded():
    text = """g (float[n, 4] x) => (float[n, 4] y) {
        m = ReduceMax<keepdims=0>(x) b = Greater(m, one) i = Relu(x)
        y = If(b) <
            then_branch = t () => (float[n, 4] r) {
                s = Shape(i) c = Gather(s, last) is_four = Equal(c, four)
                k = If(is_four) <then_branch = tt () => (float[n, 4] q) { q = Add(i, one) },
                                 else_branch = te () => (float[n, 4] q) { q = Neg(i) }>
                f = Neg(one) d = Add(one, f) r = Mul(k, d) },
            else_branch = e () => (float[n, 4] r) { r = Identity(i) }>
    }"""
    constants = {"one": np.float32(1), "last": np.array(1), "four": np.array(4)}
    prepared = check(model(text, constants), ["ReduceMax", "Greater", "Relu", "If"], {"x": (3, 4)})
    branches = {each.name: each.g for each in prepared.graph.node[-1].attribute}
    assert [node.op_type for node in branches["then_branch"].node] == ["Add", "Mul"]
    assert [tensor.name for tensor in branches["then_branch"].initializer] == ["d"]
    assert {tensor.name for tensor in prepared.graph.initializer} == {"one"}


RATES = """g (float[n, 4] x, int64 sr) => (float[n, 4] y) {
    b = Equal(sr, rate)
    y = If(b) <then_branch = t () => (float[n, 4] r) { r = Relu(x) },
               else_branch = e () => (float[n, 4] r) { r = Neg(x) }>
}"""


@pytest.mark.parametrize("value, op", [(16000, "Relu"), (np.array(8000), "Neg")])
def test_constant_inputs(value, op):
    prepared = prepare(model(RATES, {"rate": np.array(16000)}), constants={"sr": value})
    assert ops(prepared) == [op, "Identity"]
    assert [each.name for each in prepared.graph.input] == ["x"]


def test_a_number_fills_a_constant_input():
    proto = model("g (float[2, 3] x, float[2, 3] z) => (float[2, 3] y) { y = Add(x, z) }")
    (weight,) = prepare(proto, constants={"z": 0.1}).graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(weight), np.full((2, 3), np.float32(0.1)))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"rate": 1}, "constants: the model has no input 'rate'; its inputs are x, sr"),
        ({"sr": [1, 2]}, r"a value of the shape \(2,\) for the input sr of rank 0"),
        ({"x": np.ones((3, 5))}, r"a value of the shape \(3, 5\) for the input x of rank 2"),
        ({"sr": 0.5}, "0.5 is not of the type int64 of the input sr"),
        ({"sr": 2**63}, "is not of the type int64"),
    ],
    ids=["weight", "rank", "size", "fraction", "range"],
)
def test_wrong_constant_inputs(given, message):
    with pytest.raises(ValueError, match=message):
        prepare(model(RATES, {"rate": np.array(16000)}), constants=given)


def test_quantized_weights_stay_in_8_bits():
    text = """g (float[n, 4] x) => (float[n, 3] y) {
        f = DequantizeLinear(w, scale, zero) t = Identity(f) y = MatMul(x, t)
    }"""
    weight = np.arange(12, dtype="int8").reshape(4, 3)
    constants = {"w": weight, "scale": np.float32(0.1), "zero": np.int8(0)}
    prepared = check(model(text, constants), ["DequantizeLinear", "MatMul"], {"x": (2, 4)})
    assert {tensor.data_type for tensor in prepared.graph.initializer} == {FLOAT, TensorProto.INT8}


def test_ops_of_other_domains_stay():
    text = """g (float[n, 4] x) => (float[n, 4] y) {
        c = com.microsoft.Gelu(w) e = ConstantOfShape(empty) a = Add(c, e) y = Mul(x, a)
    }"""
    constants = {"w": np.ones(4, "float32"), "empty": np.zeros(0, "int64")}
    proto = model(text, constants, domains=["com.microsoft"])
    check(proto, ["Gelu", "Add", "Mul"], {"x": (2, 4)})


def test_what_is_random_or_large_stays():
    text = """g (float[n, 4] x) => (float[n, 4] y, float[m] z) {
        r = RandomNormal<shape=[4]>() o = Mul(r, zero) y = Add(x, o) z = ConstantOfShape(size)
    }"""
    proto = model(text, {"zero": np.zeros(1, "float32"), "size": np.array([2**20])})
    check(proto, ["RandomNormal", "Mul", "Add", "ConstantOfShape"], {"x": (2, 4)})


def test_pads_are_explicit():
    text = """g (float[n, 3, h, w] x) => (float[a, b, c, d] y) {
        c = Conv<auto_pad="SAME_UPPER", kernel_shape=[3, 3]>(x, k)
        y = MaxPool<auto_pad="SAME_LOWER", kernel_shape=[2, 2], strides=[2, 1]>(c)
    }"""
    constants = {"k": np.random.default_rng(1).uniform(-1, 1, (2, 3, 3, 3)).astype("float32")}
    for given in (None, {"x": (1, 3, 7, 6)}):
        prepared = check(model(text, constants), ["Conv", "MaxPool"], {"x": (1, 3, 7, 6)}, given)
        modes = [attr.name for node in prepared.graph.node for attr in node.attribute]
        # The pads of a stride of 2 depend on the size.
        assert modes.count("pads") == (2 if given else 1)


def test_functions_of_the_model_are_inlined():
    function = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    proto = model("g (float[n] x) => (float[n] y) { y = own.Twice(x) }", domains=["own"])
    proto.functions.append(function)
    check(proto, ["Add"], {"x": (3,)})


def test_external_data(tmp_path):
    text = "g (float[n, 64] x) => (float[n, 64] y) { y = MatMul(x, w) }"
    proto = model(text, {"w": np.eye(64, dtype="float32")})
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="m.data", size_threshold=0)
    weight = prepare(path).graph.initializer[0]
    np.testing.assert_array_equal(numpy_helper.to_array(weight), np.eye(64))
    with pytest.raises(ValueError, match="the data of w is in another file"):
        prepare(onnx.load(path, load_external_data=False))


def test_names_of_dimensions():
    proto = model("g (float[1] x, float[1] z) => (float[1] y) { y = Add(x, z) }")
    for value, dims in zip(proto.graph.input, (["b-1", None, "-1", "0"], ["b-1", "?", "n", "2*n"])):
        value.CopyFrom(helper.make_tensor_value_info(value.name, FLOAT, dims))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, None))
    prepared = prepare(proto)
    assert [shape(value) for value in prepared.graph.input] == [
        ["b_1", "x_1", "x_2", "x_3"],
        ["b_1", "z_1", "n", "2*n"],
    ]


def test_a_size_of_zero_is_fixed():
    """As in onnxruntime; only that of a result may be one that the exporter does not know."""
    proto = model("g (float[0, n] x) => (float[0, m] y) { s = Shape(x) f = Slice(s, o, l) "
                  "t = Concat<axis=0>(f, i) y = Reshape<allowzero=1>(x, t) }",
                  {"o": np.array([0]), "l": np.array([1]), "i": np.array([3])})  # fmt: skip
    prepared = check(proto, ["Reshape"], {"x": (0, 2)})
    (value,) = prepared.graph.input
    assert list(map(fixed_size, value.type.tensor_type.shape.dim)) == [0, None]
    for given in ({"x": (2, 3)}, {"x": (0, 3)}):
        (value,) = prepare(proto, given).graph.input
        assert list(map(fixed_size, value.type.tensor_type.shape.dim)) == [*given["x"]]
    unknown = model("g (float[2, 3] x) => (float[0, 0] y) { y = Relu(x) }")
    assert not any(dim.HasField("dim_value") for dim in output_dims(prepare(unknown)))


def test_given_shapes():
    proto = model("g (float[n, 3] x, float[n, k] z, float[3] c) => (float[n, 3] y) {y = Add(x, c)}")
    given = [shape(v) for v in prepare(proto, {"x": (2, None), "z": [2, "m"]}).graph.input]
    assert given == [[2, 3], [2, "m"], [3]]
    assert [shape(v) for v in prepare(proto, {"n": 4}).graph.input] == [[4, 3], [4, "k"], [3]]
    assert shape(prepare(proto, {"x": (2, 3)}).graph.output[0]) == [2, 3]
    # Another size than the model has, and sizes that differ for one name.
    assert shape(prepare(proto, {"x": (2, 1), "z": (5, 1)}).graph.input[0]) == [2, 1]


@pytest.mark.parametrize(
    "given, message",
    [
        ({"y": (1, 3)}, "no input 'y'; its inputs are x of rank 2 .n, 3., z of unknown rank"),
        ({"m": 1}, "no dimension 'm'"),
        ({"x": 1}, "1 is no shape of the input x of rank 2 .n, 3."),
        ({"x": (1, 3, 4)}, "input x of rank 2 .n, 3. cannot have the shape .1, 3, 4. of rank 3"),
        ({"x": "1,3"}, "'1,3' is not a shape"),
        ({"x": (1, -3)}, "-3 is not a size of x"),
        ({"x": (1, 2.5)}, "2.5 is not a size of x"),
    ],
    ids=["input", "dimension", "number", "rank", "text", "negative", "fraction"],
)
def test_wrong_shapes(given, message):
    proto = model("g (float[n, 3] x, float[n] z) => (float[n, 3] y) { y = Relu(x) }")
    proto.graph.input[1].type.tensor_type.ClearField("shape")
    with pytest.raises(ValueError, match=message):
        prepare(proto, given)


def test_files_that_are_no_models(tmp_path):
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(ValueError, match="text.onnx is not an ONNX model"):
        prepare(tmp_path / "text.onnx")
    with pytest.raises(OSError):
        prepare(tmp_path / "none.onnx")


def test_without_onnx(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match="pip install onnx"):
        prepare("m.onnx")


def test_without_inferred_shapes(monkeypatch):
    """Constants are folded all the same."""

    def fail(*args, **options):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", fail)
    proto = model("g (float[2, 4] x) => (float[2, 4] y) { e = Neg(w) y = Add(x, e) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(4, "float32"), "w"))
    with pytest.warns(UserWarning, match="cannot be inferred: out of memory"):
        assert ops(prepare(proto)) == ["Add"]


def test_command_line(tmp_path, capsys):
    """The command that prepares a file for tvmc."""
    proto = model(
        """g (float[batch, 3, height] x) => (float[batch, rest] y) {
            sizes = Concat<axis=0>(zero, minus_one)
            y = Reshape(x, sizes)
        }""",
        {"zero": [0], "minus_one": [-1]},
    )
    path, prepared = tmp_path / "model.onnx", tmp_path / "prepared.onnx"
    onnx.save(proto, path)
    command_line.main([str(path), str(prepared), "--shape", "x=2,3,h"])
    result = onnx.load(prepared)
    assert ops(result) == ["Reshape"] and shape(result.graph.input[0]) == [2, 3, "h"]
    command_line.main([str(path), str(prepared), "--shape", "batch=2", "--shape", "height=5"])
    assert shape(onnx.load(prepared).graph.input[0]) == [2, 3, 5]
    for words, message in (
        (["--shape", "x=2,3"], "the input x of rank 3 (batch, 3, height) cannot have the shape"),
        (["--shape", "z=2"], "has no dimension 'z'"),
        (["--shape", "x"], "'x' is not like NAME=1,3,48,width"),
    ):
        with pytest.raises(SystemExit):
            command_line.main([str(path), str(prepared), *words])
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command_line.main([str(tmp_path / "none.onnx"), str(prepared)])
    assert "none.onnx" in capsys.readouterr().err
