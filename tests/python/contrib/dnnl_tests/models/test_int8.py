# SPDX-License-Identifier: Apache-2.0
"""QDQ models made by onnxruntime: what is quantized, that they import, and the numbers."""

import collections

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.models import accuracy, int8, ocr, onnx_networks, workloads
from dnnl_tests.onnx_models import onnx_session

SHAPE = (2, 3, 8, 8)


@pytest.fixture
def source(tmp_path):
    """Return the path of a convolution, a depthwise one, a product without bias and a sum."""
    random = np.random.default_rng(1)

    def constant(name, *shape):
        return numpy_helper.from_array(random.normal(0, 0.3, shape).astype("float32"), name)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "d"], ["e"], "depthwise", pads=[1] * 4, group=16),
        helper.make_node("Conv", ["e", "p"], ["f"], "pointwise"),
        helper.make_node("Reshape", ["f", "shape"], ["g"]),
        helper.make_node("MatMul", ["g", "m"], ["h"]),
        helper.make_node("Add", ["h", "g"], ["y"]),
    ]
    constants = [constant("w", 16, 3, 3, 3), constant("b", 16), constant("d", 16, 1, 3, 3)]
    constants += [constant("p", 16, 16, 1, 1), constant("m", 64, 64)]
    constants.append(numpy_helper.from_array(np.array([2, 16, 64]), "shape"))
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 16, 64))],
        constants,
    )
    # Older than scales for channels: it is converted.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=7)
    path = tmp_path / "small.onnx"
    onnx.save(model, path)
    return str(path)


def inputs(seed):
    return {"x": np.random.default_rng(seed).uniform(-1, 1, SHAPE).astype("float32")}


def quantize(source, recipe, activations="u8", **extra):
    target = source.replace("small", "int8")
    int8.quantize(source, target, [inputs(seed) for seed in range(4)], recipe, activations, **extra)
    return target


@pytest.mark.parametrize("activations", int8.SUFFIXES)
def test_a_quantized_model_imports_and_runs(source, activations):
    target = quantize(source, int8.Recipe(("Conv", "MatMul", "Add")), activations)
    model = onnx.load(target)
    mod, params = relay.frontend.from_onnx(model, shape={"x": SHAPE}, freeze_params=True)
    ops = testing.offload(mod).host_ops
    assert ops["qnn.dequantize"] > 5 and ops["nn.conv2d"] == 3
    assert ops["nn.dense"] == 1 and not ops["nn.batch_matmul"], "weights of rank 2 are a dense"
    x = inputs(9)
    # Op by op, as written: its int8 kernels saturate where there is no VNNI.
    exact = onnx_session(model).run(None, x)
    results = testing.run(dnnl.partition_for_dnnl(mod, params), x, params)
    # An output is a sum of quantized ones: a step of one of them more or less is no error.
    step = max(
        float(numpy_helper.to_array(tensor))
        for tensor in model.graph.initializer
        if tensor.name.endswith("scale") and not tensor.dims
    )
    assert np.abs(results[0] - exact[0]).max() <= 2 * step
    assert accuracy.Accuracy.of(results, exact, False).cosine > 0.999


def test_weights_that_the_model_quantizes(source):
    """With floating-point values before QuantizeLinear they become the same integers, once."""
    results, reports = [], []
    for is_real in (False, True):
        model = onnx.load(
            quantize(source, int8.Recipe(("Conv", "MatMul")), AddQDQPairToWeight=is_real)
        )
        constants = {tensor.name for tensor in model.graph.initializer}
        quantizes = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
        assert sum(node.input[0] in constants for node in quantizes) == (4 if is_real else 0)
        mod, params = relay.frontend.from_onnx(model, shape={"x": SHAPE}, freeze_params=True)
        partitioned = dnnl.partition_for_dnnl(mod, params)
        reports.append(dnnl.offload_report(partitioned))
        results += testing.run(partitioned, inputs(9), params)
    assert reports[1].composites == reports[0].composites
    assert reports[1].in_8_bits == reports[0].in_8_bits and reports[1].in_8_bits.total() == 4
    assert reports[1].folded["qnn.quantize"] == 4 + reports[0].folded["qnn.quantize"]
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("recipe,casts", [(("Gemm", "MatMul"), 0), (("Gemm",), 2)])
def test_transformer_with_reduced_precision(tmp_path, monkeypatch, recipe, casts):
    """What is quantized stays so, fused as ever; what is not computes in bfloat16."""
    computes_bfloat16 = cpu.computes("bfloat16")
    monkeypatch.setattr(cpu, "computes", lambda dtype: True)
    shape, path = (1, 20, 64), str(tmp_path / "small.onnx")
    onnx.save(onnx_networks.bert(layers=1, length=20, size=64, heads=2), path)
    samples = [{"x": np.random.default_rng(k).normal(size=shape).astype("float32")} for k in (1, 2)]
    int8.quantize(path, path.replace("small", "int8"), samples, int8.Recipe(recipe))
    model = onnx.load(path.replace("small", "int8"))
    mod, params = relay.frontend.from_onnx(model, shape={"x": shape}, freeze_params=True)
    plain, reduced = (
        dnnl.partition_for_dnnl(mod, params, precision=precision)
        for precision in ("float32", "bfloat16")
    )
    before, after = (dnnl.offload_report(each) for each in (plain, reduced))
    assert after.partitions == 1 and after.offloaded == after.total
    assert after.composites == before.composites and after.ops.get("cast", 0) == casts
    layer = "dnnl.qnn.dense_bias_quantize"
    wanted = {layer: 3, f"{layer}_sum": 2, f"{layer}_gelu_erf_quantize": 1}
    assert wanted.items() <= after.composites.items()
    if computes_bfloat16:
        exact = workloads.onnx_session(path).run(None, samples[0])
        results = testing.run(reduced, samples[0])
        assert accuracy.Accuracy.of(results, exact, False).cosine > 0.999


def test_what_a_recipe_leaves_out_stays_in_float32(source):
    def quantized(recipe):
        graph = onnx.load(quantize(source, recipe)).graph
        op_types = {name: node.op_type for node in graph.node for name in node.output}
        kinds = collections.defaultdict(list)
        for node in graph.node:
            is_quantized = op_types.get(node.input[0]) == "DequantizeLinear"
            kinds[is_quantized].append(node.name or node.op_type)
        return kinds

    assert {"first", "depthwise", "pointwise"} <= set(quantized(int8.Recipe(("Conv",)))[True])
    kinds = quantized(int8.Recipe(("Conv",), sensitive=True))
    assert {"first", "depthwise"} <= set(kinds[False]) and "pointwise" in kinds[True]


def test_a_model_is_made_once(source, tmp_path, monkeypatch):
    monkeypatch.setattr(int8, "FOLDER", tmp_path / "made")
    monkeypatch.setitem(int8.RECIPES, "small", int8.Recipe(("Conv",)))
    workload = workloads.Workload("small", "Small", None, "x", SHAPE, lambda: source)
    row = int8.quantized(workload, "s8")
    assert (row.name, row.title) == ("small-int8-s8", "Small, int8-s8")
    path = row.onnx_path()
    first = onnx.load(path).SerializeToString()
    assert [each.name for each in (tmp_path / "made").iterdir()] == [path.rpartition("/")[2]]
    monkeypatch.setattr(int8, "quantize", None)
    assert int8.path(workload, "s8") == path
    monkeypatch.undo()
    again = str(tmp_path / "again.onnx")
    int8.quantize(source, again, int8.calibration(workload), int8.Recipe(("Conv",)), "s8")
    assert onnx.load(again).SerializeToString() == first, "the same each time"


@pytest.mark.nightly
@pytest.mark.slow
# TVM's importer infers all types anew at each of its 650 nodes.
@pytest.mark.timeout(1800)
def test_the_recogniser_reads_in_int8(subtests):
    workload = workloads.INT8["rec-int8"]
    session = workloads.onnx_session(workload.onnx_path())
    runner = testing.Runner(testing.build(dnnl.partition_for_dnnl(*workload.load())))
    classes = ocr.characters()
    for text, example in zip(accuracy.TEXTS, accuracy.examples(workload)):
        with subtests.test(text=text):
            assert ocr.decode(runner(example)[0], classes)[0] == text
            assert ocr.decode(session.run(None, example)[0], classes)[0] == text


def test_accuracy():
    want = [np.array([[0.0, 1.0, 4.0]])]
    assert accuracy.Accuracy.of(want, want, True) == accuracy.Accuracy(pytest.approx(1.0), 0.0, 1.0)
    accuracies = accuracy.Accuracy.of([np.array([[0.0, 5.0, 4.0]])], want, True)
    assert (accuracies.error, accuracies.top1) == (1.0, 0.0)
    assert accuracy.Accuracy.of(want, want, False).top1 is None
