# SPDX-License-Identifier: Apache-2.0
"""Llamas in GGUF files: sizes, weights as float32, and the tokenizer.

The weights of a GGUF file are quantized in blocks. They are dequantized here: the model computes in
float32, with the values that llama.cpp has for them.
"""

import functools

import gguf
import numpy as np
from dnnl_tests.models import llama
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from scripts.errors import SetupError

# The names of the weights of a layer: in the file, and in `llama.Config.shapes`.
_LAYER = {
    "attn_norm": "input_norm",
    "attn_q": "q",
    "attn_k": "k",
    "attn_v": "v",
    "attn_output": "o",
    "ffn_norm": "post_norm",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
}
# The sizes in the metadata, and the most that a Llama has.
_SIZES = {
    "block_count": 1000,
    "embedding_length": 1 << 20,
    "feed_forward_length": 1 << 20,
    "attention.head_count": 1 << 14,
    "attention.head_count_kv": 1 << 14,
    "vocab_size": 1 << 24,
    "context_length": 1 << 30,
}
_OTHERS = {"token_embd": "embedding", "output_norm": "norm"}
# How a GGUF file marks tokens that are no text, such as the end of a turn.
_CONTROL = 3
# Fields of a file that the writer of another one adds itself.
_OWN_FIELDS = ("general.architecture", "general.file_type")


_REMEDY = "name a Llama with the tokenizer of SmolLM."


def _reads(what):
    """Decorate a method that reads a part of the file: a damaged one is a SetupError."""

    def decorate(method):
        @functools.wraps(method)
        def read(self, *args):
            try:
                return method(self, *args)
            except SetupError:
                raise
            # The package gguf does not check what it reads, so that anything may be raised.
            except Exception as error:
                said = " ".join(f"{type(error).__name__}: {error}".split())
                raise SetupError(f"{self.path}: cannot read {what}: {said}", _REMEDY) from error

        return read

    return decorate


class GgufFile:
    """A Llama in a GGUF file.

    Parameters
    ----------
    path : str | pathlib.Path
        The file.

    Raises
    ------
    SetupError
        The file cannot be read, or the model is another one. Other members raise it, too, where
        what they read is damaged.
    """

    def __init__(self, path):
        self.path = path
        self._reader = self._open()
        for key, expected in (
            ("general.architecture", "llama"),
            ("tokenizer.ggml.model", "gpt2"),
            ("tokenizer.ggml.pre", "smollm"),
        ):
            if self.value(key) != expected:
                raise SetupError(f"{path}: {key} is {self.value(key)}, not {expected}", _REMEDY)

    @_reads("the header")
    def _open(self):
        return gguf.GGUFReader(self.path)

    @_reads("the metadata")
    def value(self, key, default=None):
        """Return a value of the file's metadata."""
        field = self._reader.fields.get(key)
        return default if field is None else field.contents()

    @functools.cached_property
    @_reads("the sizes")
    def config(self):
        """The sizes."""

        def of(key):
            return self.value(f"llama.{key}")

        # Sizes that do not fit each other show in the shapes of the weights.
        for key, most in _SIZES.items():
            if not (isinstance(of(key), int) and 0 < of(key) <= most):
                raise ValueError(f"llama.{key} is {of(key)}, not a number from 1 to {most}")

        config = llama.Config(
            layers=of("block_count"),
            width=of("embedding_length"),
            hidden=of("feed_forward_length"),
            heads=of("attention.head_count"),
            kv_heads=of("attention.head_count_kv"),
            vocabulary=of("vocab_size"),
            context=of("context_length"),
            theta=of("rope.freq_base"),
            epsilon=of("attention.layer_norm_rms_epsilon"),
        )
        scaling = [key for key in self._reader.fields if key.startswith("llama.rope.scaling")]
        if scaling or of("rope.dimension_count") not in (None, config.size):
            raise SetupError(f"{self.path}: scaled or partial rotary embeddings are not supported")
        return config

    @_reads("the weights")
    def weights(self):
        """Return the weights by the names of `llama.Config.shapes`, float32."""
        weights = {}
        for tensor in self._reader.tensors:
            name, value = self._weight(tensor)
            weights[name] = np.ascontiguousarray(value, "float32")
        shapes = self.config.shapes()
        present = {name: value.shape for name, value in weights.items()}
        if present != shapes:
            names = sorted(n for n in {*shapes, *present} if shapes.get(n) != present.get(n))
            raise SetupError(
                f"{self.path}: these weights are not those of a Llama with tied embeddings: "
                + ", ".join(names)
            )
        return weights

    def convert(self, path, kind):
        """Write the model as a GGUF file with the matrices in another type.

        `kind` is a name of `gguf.GGMLQuantizationType`, such as F32 or Q8_0.
        """
        kind = gguf.GGMLQuantizationType[kind]
        writer = gguf.GGUFWriter(path, self.value("general.architecture"))
        most = "ALL" if kind == gguf.GGMLQuantizationType.F32 else "MOSTLY"
        writer.add_file_type(gguf.LlamaFileType[f"{most}_{kind.name}"])
        for name, field in self._reader.fields.items():
            if name.startswith("GGUF.") or name in _OWN_FIELDS:
                continue
            element = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], element)
        for tensor in self._reader.tensors:
            value, own = gguf.dequantize(tensor.data, tensor.tensor_type), kind
            if value.ndim == 1:
                own = gguf.GGMLQuantizationType.F32
            writer.add_tensor(tensor.name, gguf.quantize(value, own), raw_dtype=own)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def _weight(self, tensor):
        """Return the name and the value of a weight."""
        value = gguf.dequantize(tensor.data, tensor.tensor_type)
        part, *rest = tensor.name.split(".")
        if part != "blk":
            return _OTHERS.get(part, tensor.name), value
        name = _LAYER.get(rest[1], rest[1])
        if name in ("q", "k"):
            # The file has rows in the order of an interleaved rotary embedding.
            heads = self.config.heads if name == "q" else self.config.kv_heads
            pairs = value.reshape(heads, -1, 2, value.shape[-1])
            value = pairs.swapaxes(1, 2).reshape(value.shape)
        return f"{rest[0]}.{name}", value

    @functools.cached_property
    @_reads("the tokenizer")
    def tokenizer(self):
        """The tokenizer: byte pairs, of which digits are never part."""
        tokens = self.value("tokenizer.ggml.tokens")
        merges = [tuple(pair.split(" ")) for pair in self.value("tokenizer.ggml.merges")]
        numbers = {token: number for number, token in enumerate(tokens)}
        tokenizer = Tokenizer(models.BPE(vocab=numbers, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        kinds = self.value("tokenizer.ggml.token_type")
        control = [token for token, kind in zip(tokens, kinds) if kind == _CONTROL]
        tokenizer.add_special_tokens([AddedToken(each, special=True) for each in control])
        return tokenizer

    @property
    def end(self):
        """The token that ends a turn."""
        token = self.value("tokenizer.ggml.eos_token_id")
        if not (isinstance(token, int) and 0 <= token < self.config.vocabulary):
            raise SetupError(f"{self.path}: the token that ends a turn is {token}", _REMEDY)
        return token

    def turn(self, prompt):
        """Return the tokens of a prompt as the user's turn, up to where the answer begins."""
        turns = (
            ("system", "You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
            ("user", prompt),
        )
        text = "".join(f"<|im_start|>{who}\n{words}<|im_end|>\n" for who, words in turns)
        return self.tokenizer.encode(f"{text}<|im_start|>assistant\n").ids
