# SPDX-License-Identifier: Apache-2.0
"""A language model in lower precision: its files, what is compiled, and how runtimes compare."""

import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm_dnnl
from dnnl_tests.models import llama
from onnx import TensorProto, numpy_helper
from tvm.contrib.onednn import cpu
from tvm_dnnl._dnnl import codegen
from tvm_dnnl.frontend._dnnl.onnx.block_quantized import unpack_weight

from dnnl_relax.modules import partitions
from dnnl_relax.onnx.quantized_nodes import has_vnni
from scripts.bench import text, text_worker
from scripts.errors import SetupError
from scripts.language import generate, low_precision
from scripts.options import TEXT_PRECISIONS

CONFIG = llama.Config(layers=2, width=64, hidden=128, heads=4, kv_heads=2, vocabulary=300)
IDS, COUNT = [3, 7, 11, 200, 5], 12


def tiny():
    return llama.model(CONFIG, llama.random_weights(CONFIG), last_only=True)


def quantized(precision, folder):
    """Return a model in a precision, and the options that it is compiled with."""
    model = tiny()
    if precision == "int8":
        low_precision.int8(model, folder / "int8.onnx")
        return onnx.load(folder / "int8.onnx"), {}
    if precision.endswith("weights"):
        low_precision.weights(model, 8 if precision.startswith("int8") else 4)
        return model, {}
    return model, {"precision": precision}


def in_float32(model):
    """Return the model with matmuls that do not permit to quantize data."""
    for node in model.graph.node:
        for attr in node.attribute:
            if attr.name == "accuracy_level":
                attr.i = 0
    return model


def dequantized(model):
    """Return the model with float32 matmuls by the values of packed weights."""
    values = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "MatMulNBits":
            continue
        attrs = {each.name: each.i for each in node.attribute}
        packed, scales, *zeros = (values[name] for name in node.input[1:])
        sizes = (attrs["bits"], attrs["block_size"], attrs["N"], attrs["K"])
        weight = unpack_weight(packed, scales, *(zeros or [None]), *sizes)
        name = f"{node.name}.float32"
        model.graph.initializer.append(numpy_helper.from_array(weight.T.copy(), name))
        node.CopyFrom(
            onnx.helper.make_node("MatMul", [node.input[0], name], node.output, node.name)
        )
    return model


@pytest.mark.parametrize("precision", TEXT_PRECISIONS)
def test_a_model_in_each_precision(precision, tmp_path):
    """It is one partition, and computes what onnxruntime does with the same values."""
    if precision == "bfloat16" and not cpu.computes("bfloat16"):
        pytest.skip("the CPU has no bfloat16")
    if precision == "int8" and not has_vnni():
        pytest.skip("onnxruntime's products of int8 saturate in 16 bits without VNNI")
    model, options = quantized(precision, tmp_path)
    mod = tvm_dnnl.from_onnx(in_float32(model))
    assert partitions(tvm_dnnl.partition_for_dnnl(mod, **options)) == 1
    library = tmp_path / "model.so"
    tvm_dnnl.compile(mod, **options).export_library(library)
    if precision == "int8":
        # Each weight is kept once.
        shapes = [w.dims for w in model.graph.initializer if w.data_type == TensorProto.INT8]
        size = sum(int(np.prod(shape)) for shape in shapes if len(shape) == 2)
        generated = codegen.generate(tvm_dnnl.partition_for_dnnl(mod))
        kept = generated.attrs["const_name_to_constant"].values()
        kept = [each for each in kept if str(each.dtype) == "int8" and len(each.shape) == 2]
        assert sum(int(np.prod(each.shape)) for each in kept) == size
    onnx.save(dequantized(model), tmp_path / "expected.onnx")
    reference = text_worker.Decoder(
        generate.onnxruntime_decoder(tmp_path / "expected.onnx", 1), CONFIG
    )
    tokens, _ = reference.measure(IDS, COUNT, ())
    decoder = text_worker.Decoder(generate.relax_decoder(library), CONFIG)
    decoder.measure(IDS, COUNT, tokens)
    # Of sums in float32; of 8 bits of a mantissa; of a value that is rounded to another step.
    tolerance = {"bfloat16": 3e-2, "int8": 3e-2}.get(precision, 1e-5)
    scale = np.abs(reference.logits).max()
    np.testing.assert_allclose(decoder.logits, reference.logits, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("bits", [4, 8])
def test_logits_of_data_in_int8(bits, tmp_path):
    """As far from those in float32 as onnxruntime's, which quantizes data as well."""
    model, _ = quantized(f"int{bits}-weights", tmp_path)
    paths = [str(tmp_path / name) for name in ("model.onnx", "float32.onnx")]
    onnx.save(model, paths[0])
    tvm_dnnl.compile(tvm_dnnl.from_onnx(model)).export_library(tmp_path / "model.so")
    onnx.save(dequantized(model), paths[1])
    decoders = [generate.onnxruntime_decoder(path, 1) for path in paths]
    decoders.append(generate.relax_decoder(tmp_path / "model.so"))
    tokens, logits = (), []
    for decoder in decoders[::-1]:
        own = text_worker.Decoder(decoder, CONFIG)
        tokens = own.measure(IDS, COUNT, tokens)[0]
        logits.append(own.logits)
    got, exact, other = logits
    error = np.abs(other - exact).max()
    assert np.abs(got - exact).max() <= 2 * error


@pytest.mark.parametrize("bits", [4, 8])
def test_blocks_are_rounded_to_the_nearest_value(bits):
    weight = np.random.default_rng(0).normal(size=(6, 128)).astype("float32")
    weight[2, :32], weight[3] = 0, np.abs(weight[3])
    values = low_precision.quantized_blocks(weight, bits)
    assert len(values) == (3 if bits == 4 else 2)
    zeros = values[2] if bits == 4 else None
    got = unpack_weight(*values[:2], zeros, bits, low_precision.BLOCK, *weight.shape)
    steps = np.repeat(values[1].reshape(6, -1), low_precision.BLOCK, axis=1)
    # A zero point is rounded as well, which shifts the ends of the range by half a step.
    assert (np.abs(got - weight) <= (1.01 if bits == 4 else 0.501) * steps).all()
    assert (got[weight == 0] == 0).all()


def test_only_matmuls_are_quantized():
    model = tiny()
    low_precision.weights(model, 4)
    ops = [node.op_type for node in model.graph.node]
    # Two of attention a layer; the output layer has 8 bits.
    assert (ops.count("MatMulNBits"), ops.count("MatMul")) == (15, 4)
    nodes = [node for node in model.graph.node if node.op_type == "MatMulNBits"]
    bits = [attr.i for node in nodes for attr in node.attribute if attr.name == "bits"]
    assert bits == [4] * 14 + [8]
    large = [each for each in model.graph.initializer if each.data_type == TensorProto.FLOAT]
    assert [each.name for each in large if np.prod(each.dims) > 8192] == ["embedding"]
    # onnxruntime runs the file as it is.
    session = onnxruntime.InferenceSession(model.SerializeToString())
    logits, *_ = session.run(None, llama.inputs(CONFIG, IDS))
    assert np.isfinite(logits).all()


def test_gguf_files_of_other_types(tmp_path):
    pytest.importorskip("gguf")
    from dnnl_relax.plugin.test_language_model import write
    from scripts.language.gguf_file import GgufFile

    model = GgufFile(write(tmp_path / "tiny.gguf"))
    expected = model.weights()
    for kind in ("F32", "BF16", "Q8_0"):
        model.convert(tmp_path / f"{kind}.gguf", kind)
        other = GgufFile(tmp_path / f"{kind}.gguf")
        assert other.config == model.config
        assert other.turn("A cat") == model.turn("A cat")
        # The values are those of Q8_0, which half has a rounded scale.
        tolerance = {"BF16": 2**-8, "Q8_0": 1e-3}.get(kind, 0)
        for name, value in other.weights().items():
            atol = tolerance * np.abs(expected[name]).max()
            np.testing.assert_allclose(value, expected[name], rtol=0, atol=atol)


def test_tokens_beside_a_reference(tmp_path):
    onnx.save(tiny(), tmp_path / "tiny.onnx")
    decoder = generate.onnxruntime_decoder(tmp_path / "tiny.onnx", 1)
    paths = {"onnx": tmp_path / "tiny.onnx"}
    text_worker.prepare("onnxruntime", paths, 1, CONFIG, "float32", 64)
    tokens = text_worker.save_reference(IDS, COUNT, tmp_path / "logits.npy")
    expected = generate.generate(decoder, CONFIG, IDS, COUNT)
    assert tokens == [token for token, _ in expected]
    assert text_worker.measure(IDS, COUNT, tokens)[0] == tokens
    difference, spread = text_worker.largest_error(tmp_path / "logits.npy")
    assert difference == 0 and spread > 0
    # Other tokens are read, and so the logits after them are others.
    others = [token + 1 for token in tokens]
    assert text_worker.measure(IDS, COUNT, others)[0][0] == tokens[0]
    assert text_worker.largest_error(tmp_path / "logits.npy")[0] > 0
    assert text.equal_tokens(tokens, [tokens[0], *others[1:]]) == f"1/{COUNT}"
    assert text.equal_tokens(None, tokens) == ""


def test_what_a_runtime_does_not_run_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(SetupError, match="`pip install xllamacpp`"):
        text_worker.prepare("llama.cpp", {"gguf": "none"}, 1, CONFIG, "float32", 64)
    with pytest.raises(SetupError, match="reads GGUF files of 8 or 4 bits only"):
        text_worker.prepare("openvino-genai", {}, 1, CONFIG, "float32", 64)
    with pytest.raises(SetupError, match="onnxruntime has no bfloat16 kernels"):
        text_worker.prepare("onnxruntime", {}, 1, CONFIG, "bfloat16", 64)
