# SPDX-License-Identifier: Apache-2.0
"""The import of ONNX models: compared with onnxruntime, and node by node as TVM does it."""

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relay
from tvm.relay.frontend import common
from tvm.relay.frontend import onnx as frontend
from tvm.relay.frontend.onnx_repairs import incremental
from tvm.relay.frontend.onnx_repairs.incremental import (
    fold_constant,
    infer_type,
    infer_value,
    shape_of,
)
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.models import onnx_networks
from dnnl_tests.onnx_models import onnx_session
from dnnl_tests.reference import rand
from dnnl_tests.relay import var


def model(text, constants):
    """Return a model from ONNX's text format, with constants by name."""
    graph = onnx.parser.parse_graph(text)
    graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in constants.items())
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


PROTO = model(
    """g (float[n, 3, h, 4] x) => (float[n, 5] y) {
        s = Shape(x) d = Slice(s, zero, one) t = Concat<axis=0>(d, minus) r = Reshape(x, t)
        q = Gemm(r, w) y = Relu(q)
    }""",
    {
        "zero": np.array([0]),
        "one": np.array([1]),
        "minus": np.array([-1]),
        "w": rand(24, 5),
    },
)


@pytest.mark.parametrize("given", [{"x": (2, 3, 2, 4)}, {"n": 2, "h": 2}], ids=str)
def test_computed_shapes(given, tmp_path):
    x = rand(2, 3, 2, 4)
    onnx.save(PROTO, tmp_path / "m.onnx")
    mod, params = dnnl.from_onnx(tmp_path / "m.onnx", shape=given)
    assert [int(size) for size in mod["main"].params[0].checked_type.shape] == [2, 3, 2, 4]
    partitioned = dnnl.partition_for_dnnl(mod, params, prune=False)
    assert str(dnnl.offload_report(partitioned).summary).count("1 partition") == 1
    testing.assert_close(
        testing.run(partitioned, {"x": x}), onnx_session(PROTO).run(None, {"x": x})
    )


def test_open_dimensions_stay_open():
    mod, params = dnnl.from_onnx(PROTO, shape={"x": (None, 3, 2, "w")})
    sizes = mod["main"].params[0].checked_type.shape
    assert [isinstance(size, tvm.tir.Any) for size in sizes] == [True, False, False, True]
    assert not params


def test_empty_inputs():
    proto = model(
        "g (float[0, n] x) => (float[1, n] y) { y = ReduceSum(x, first) }", {"first": np.array([0])}
    )
    mod, params = dnnl.from_onnx(proto, shape={"n": 3})
    assert [int(size) for size in mod["main"].params[0].checked_type.shape] == [0, 3]
    (y,) = testing.run(dnnl.partition_for_dnnl(mod, params, prune=False), {"x": rand(0, 3)})
    np.testing.assert_array_equal(y, np.zeros((1, 3), "float32"))


def test_wrong_shapes():
    with pytest.raises(ValueError, match="no input 'y'; its inputs are x of rank 4 .n, 3, h, 4."):
        dnnl.from_onnx(PROTO, shape={"y": (1,)})


def quantized_matmul():
    """Return a model as onnxruntime's quantize_dynamic writes it."""
    kinds = {"x": [2, 4, 8], "y": [2, 4, 3]}
    given, result = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, kinds[name]) for name in "xy"
    )
    weight = np.arange(-12, 12, dtype="int8").reshape(8, 3)
    constants = {"w": weight, "w_zero": np.int8(1), "w_scale": np.float32(0.5)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero", "w_zero"], ["product"]),
        helper.make_node("Cast", ["product"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["scale", "w_scale"], ["both"]),
        helper.make_node("Mul", ["real", "both"], ["y"]),
    ]
    held = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph(nodes, "dynamic", [given], [result], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


MODELS = {
    "transformer": lambda: onnx_networks.bert(layers=1, length=8, size=32, heads=2),
    "transformer-open": lambda: onnx_networks.bert(1, "length", 32, 2, batch="batch"),
    "dynamic-int8": quantized_matmul,
}


@pytest.mark.parametrize("model", [pytest.param(make(), id=name) for name, make in MODELS.items()])
def test_the_module_is_that_of_the_whole_graph(model, monkeypatch):
    module, _ = relay.frontend.from_onnx(model)
    for name in ("fold_constant", "infer_shape", "infer_type", "infer_value", "shape_of"):
        monkeypatch.setattr(frontend, name, getattr(common, name))
    expected, _ = relay.frontend.from_onnx(model)
    tvm.ir.assert_structural_equal(module, expected, map_free_vars=True)


@pytest.mark.parametrize("name", ["transformer", "dynamic-int8"])
def test_nothing_is_compiled(name, monkeypatch):
    def refuse(*args):
        raise AssertionError("TVM compiles a function for what it folds")

    monkeypatch.setattr(incremental.common, "fold_constant", refuse)
    relay.frontend.from_onnx(MODELS[name]())


def test_values_of_constants_and_parameters(monkeypatch):
    total = relay.add(relay.const(1.0), relay.var("w", shape=(2,)))
    weights = {"w": tvm.nd.array(np.array([1, 2], "float32"))}
    assert infer_value(total, weights).numpy().tolist() == [2, 3]
    monkeypatch.setattr(common, "infer_value", None)
    assert infer_value(relay.add(relay.const(1.0), relay.const(2.0)), {}).numpy() == 3


def test_versions_of_converters_are_found_once(monkeypatch):
    class Converter(frontend.OnnxOpConverter):
        @classmethod
        def _impl_v1(cls):
            return 1

        @classmethod
        def _impl_v7(cls):
            return 7

    for _ in range(2):
        assert [Converter.get_converter(opset)() for opset in (1, 6, 7, 13)] == [1, 1, 7, 7]
    monkeypatch.setattr(Converter, "_impl_v7", classmethod(lambda cls: "replaced"))
    assert Converter.get_converter(13)() == "replaced"
    with pytest.raises(NotImplementedError, match="version 17"):
        type("Empty", (frontend.OnnxOpConverter,), {}).get_converter(17)


def test_a_type_is_kept():
    x = var("x", 2, 3)
    middle = relay.exp(x)
    assert infer_type(relay.transpose(middle)).checked_type == relay.TensorType((3, 2))
    infer_type(middle)
    top = relay.add(middle, x)
    assert infer_type(top) is top
    assert top.checked_type == relay.TensorType((2, 3))


def test_what_was_imported_is_not_visited():
    span = relay.Span(relay.SourceName("node"), 0, 0, 0, 0)
    imported = common.set_span(relay.add(relay.const(1.0), relay.const(2.0)), span)
    assert fold_constant(imported).same_as(imported)
    new = relay.multiply(imported, relay.add(relay.const(1.0), relay.const(2.0)))
    left, right = fold_constant(new).args
    assert left.same_as(imported)
    assert right.data.numpy() == 3


def test_nothing_to_fold_is_the_same_object():
    call = relay.exp(relay.add(var("x", 2), relay.const(1.0)))
    assert fold_constant(call).same_as(call)


@pytest.mark.parametrize(
    "make, value",
    [
        (lambda: relay.TupleGetItem(relay.Tuple([relay.const(1), relay.const(2)]), 1), 2),
        (lambda: relay.split(relay.const([1, 2, 3, 4]), 2)[1], [3, 4]),
        (lambda: relay.concatenate([relay.const([1]), relay.const([2])], 0), [1, 2]),
        (lambda: relay.shape_of(relay.exp(var("x", 2, 3)), "int64"), [2, 3]),
        (lambda: relay.divide(relay.const([-7]), relay.const([2])), [-3]),
        # numpy has no definition of this: TVM computes it.
        (lambda: relay.cumsum(relay.const([1, 2, 3]), 0), [1, 3, 6]),
        (lambda: relay.If(relay.const(True), relay.const(1), relay.const(2)), 1),
    ],
    ids="field split concatenate shape_of divide cumsum if".split(),
)
def test_folded(make, value):
    np.testing.assert_array_equal(fold_constant(make()).data.numpy(), value)


def test_an_open_shape_is_computed():
    x = var("x", relay.Any(), 3)
    assert shape_of(x).op.name == "shape_of"
    assert fold_constant(relay.shape_of(x)).op.name == "shape_of"
    assert shape_of(var("x", 2, 3, 4), start=1).data.numpy().tolist() == [3, 4]
