# SPDX-License-Identifier: Apache-2.0
"""The language model of the demo: its GGUF file, its tokenizer, and the tokens it generates."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import tvm_dnnl
from dnnl_tests.models import llama

from scripts.errors import SetupError
from scripts.language import generate
from scripts.layout import ROOT

gguf = pytest.importorskip("gguf")

CONFIG = llama.Config(layers=2, width=64, hidden=96, heads=4, kv_heads=2, vocabulary=300)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEXT = "A cat sat, on 12 mats!\nÅ 🙂"


def interleaved(weight, heads):
    """Return rows in the order of a GGUF file: pairs that are rotated are beside each other."""
    halves = weight.reshape(heads, 2, -1, weight.shape[-1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


def vocabulary():
    """Return the tokens: control tokens, bytes, and two pairs; and the pairs."""
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = ["a t", "Ġ c"]
    tokens = [*CONTROL, *letters, *(pair.replace(" ", "") for pair in merges)]
    return tokens, merges


def write(path, config=CONFIG, weights=None, **metadata):
    """Write a GGUF file, with some metadata replaced."""
    from scripts.language import gguf_file

    names = {ours: theirs for theirs, ours in gguf_file._LAYER.items()}
    names |= {ours: theirs for theirs, ours in gguf_file._OTHERS.items()}
    weights = weights or llama.random_weights(config)
    writer = gguf.GGUFWriter(path, metadata.pop("architecture", "llama"))
    writer.add_block_count(config.layers)
    writer.add_embedding_length(config.width)
    writer.add_feed_forward_length(config.hidden)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_vocab_size(config.vocabulary)
    writer.add_context_length(config.context)
    writer.add_rope_freq_base(config.theta)
    writer.add_layer_norm_rms_eps(config.epsilon)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(metadata.pop("pre", "smollm"))
    tokens, merges = vocabulary()
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL)))
    writer.add_token_merges(merges)
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    for name, value in metadata.items():
        writer.add_string(name.replace("__", "."), value)
    for name, value in weights.items():
        layer, _, ours = name.rpartition(".")
        if ours in ("q", "k"):
            value = interleaved(value, config.heads if ours == "q" else config.kv_heads)
        kind = gguf.GGMLQuantizationType.F32 if value.ndim == 1 else gguf.GGMLQuantizationType.Q8_0
        full = f"blk.{layer}.{names[ours]}.weight" if layer else f"{names[name]}.weight"
        writer.add_tensor(full, gguf.quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from scripts.language.gguf_file import GgufFile

    return GgufFile(write(tmp_path_factory.mktemp("gguf") / "tiny.gguf"))


def test_sizes_and_weights(model):
    assert model.config.shapes() == CONFIG.shapes()
    assert (model.config.theta, model.config.context) == (CONFIG.theta, CONFIG.context)
    weights, expected = model.weights(), llama.random_weights(CONFIG)
    for name, value in expected.items():
        # Q8_0 has 127 steps of the largest of 32 weights, and norms are not quantized.
        step = 0 if value.ndim == 1 else np.abs(value).max() / 127
        np.testing.assert_allclose(weights[name], value, rtol=0, atol=0.51 * step)


def test_tokenizer(model):
    ids = model.tokenizer.encode(f"<|im_start|>{TEXT}<|im_end|>").ids
    tokens, _ = vocabulary()
    texts = [tokens[number] for number in ids]
    assert texts[0] == "<|im_start|>" and texts[-1] == "<|im_end|>"
    assert texts[1:6] == ["A", "Ġc", "at", "Ġ", "s"]
    # Each digit is a token, without the space before it.
    assert texts[texts.index("1") - 1 :][:3] == ["Ġ", "1", "2"]
    assert model.tokenizer.decode(ids, skip_special_tokens=True) == TEXT
    turn = model.turn(TEXT)
    assert model.tokenizer.decode(turn, skip_special_tokens=False).endswith(
        f"<|im_start|>user\n{TEXT}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert model.end == tokens.index("<|im_end|>")


@pytest.mark.parametrize(
    "metadata, words",
    [
        ({"architecture": "gpt2"}, "general.architecture is gpt2, not llama"),
        ({"pre": "qwen2"}, "tokenizer.ggml.pre is qwen2, not smollm"),
        ({"llama__rope__scaling__type": "yarn"}, "scaled or partial rotary"),
    ],
    ids=["architecture", "tokenizer", "scaling"],
)
def test_refused(tmp_path, metadata, words):
    from scripts.language.gguf_file import GgufFile

    path = write(tmp_path / "other.gguf", **metadata)
    with pytest.raises(SetupError, match=words):
        GgufFile(path).weights()


def test_weights_of_another_model_are_named(tmp_path):
    from scripts.language.gguf_file import GgufFile

    weights = llama.random_weights(CONFIG)
    del weights["1.gate"]
    with pytest.raises(SetupError, match=r"tied embeddings: 1\.gate"):
        GgufFile(write(tmp_path / "part.gguf", weights=weights)).weights()
    (tmp_path / "text.gguf").write_text(json.dumps("text"))
    with pytest.raises(SetupError, match="text.gguf"):
        GgufFile(tmp_path / "text.gguf")


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """Return the bytes of a file, those before the weights' data last."""
    data = Path(write(tmp_path_factory.mktemp("intact") / "tiny.gguf")).read_bytes()
    return data, data.index(b"blk.1.ffn_down.weight")


@pytest.mark.parametrize("seed", range(60))
def test_damaged_files(intact, tmp_path, seed):
    """A file that was cut or changed is an error that names it, or has other values."""
    from scripts.language.gguf_file import GgufFile

    data, header = intact
    random, damaged = np.random.default_rng(seed), bytearray(data)
    if seed % 4 == 0:
        del damaged[random.integers(len(data)) :]
    else:
        for at in random.integers(header, size=1 + seed % 4):
            damaged[at] = random.choice([0, 1, 127, 255, random.integers(256)])
    path = tmp_path / "damaged.gguf"
    path.write_bytes(damaged)
    try:
        model = GgufFile(path)
        model.weights()
        model.turn(TEXT)
        assert model.end < CONFIG.vocabulary
    except SetupError as error:
        assert "damaged.gguf: " in error.problem


def test_the_same_tokens_as_onnxruntime(model, tmp_path):
    """Of a library on Relax, whose cache stays in TVM's tensors."""
    import onnx

    proto = llama.model(model.config, model.weights(), last_only=True)
    onnx.save(proto, tmp_path / "tiny.onnx")
    path = tmp_path / "tiny.so"
    tvm_dnnl.compile(proto).export_library(path)
    decoders = (
        generate.relax_decoder(path),
        generate.onnxruntime_decoder(tmp_path / "tiny.onnx", threads=1),
    )
    for settings in ({}, {"temperature": 0.8, "top_p": 0.9, "seed": 1}):
        ours, theirs = (
            [
                token
                for token, _ in generate.generate(
                    decoder, model.config, [3, 7, 11], 20, generate.Sampler(**settings)
                )
            ]
            for decoder in decoders
        )
        assert ours == theirs and len(ours) == 20


def test_sampler():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], "float32"))
    assert generate.Sampler()(logits) == 0

    def drawn(**settings):
        sampler = generate.Sampler(**settings)
        return np.bincount([sampler(logits) for _ in range(2000)], minlength=4) / 2000

    np.testing.assert_allclose(drawn(temperature=1.0), np.exp(logits), atol=0.05)
    # 0.5 and 0.3 are less than 0.9 together.
    expected = np.array([0.5, 0.3, 0.15, 0]) / 0.95
    np.testing.assert_allclose(drawn(temperature=1.0, top_p=0.9), expected, atol=0.05)
    assert drawn(temperature=1.0, top_p=0.4)[0] == 1
    assert drawn(temperature=0.01)[0] == 1
    assert list(drawn(temperature=1.0, seed=3)) == list(drawn(temperature=1.0, seed=3))


def test_an_end_and_a_context_that_is_too_short():
    def decoder(ids, *_):
        logits = np.eye(CONFIG.vocabulary, dtype="float32")[None, ids[:, -1] + 1]
        cache = [np.zeros((1, 2, 1, 16), "float32")] * 4
        return logits, *cache

    tokens = [token for token, _ in generate.generate(decoder, CONFIG, [5], 10, end=8)]
    assert tokens == [6, 7, 8]
    for ids, count in (([1] * 60, 5), ([], 5)):
        with pytest.raises(SetupError, match=f"of {len(ids)} tokens"):
            next(generate.generate(decoder, CONFIG, ids, count))


def test_the_example_of_the_documentation(capsys, tmp_path):
    example = runpy.run_path(str(ROOT / "docs" / "examples" / "language_model.py"))
    proto = llama.model(CONFIG, llama.random_weights(CONFIG))
    path = tmp_path / "tiny.onnx"
    path.write_bytes(proto.SerializeToString())
    decoder = generate.onnxruntime_decoder(path, threads=1)
    expected = [token for token, _ in generate.generate(decoder, CONFIG, [3, 5, 9], 6)]
    assert example["generate"](proto, [3, 5, 9], 6) == expected
    assert "partitions: 1" in capsys.readouterr().out
