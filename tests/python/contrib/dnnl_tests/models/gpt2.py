# SPDX-License-Identifier: Apache-2.0
"""GPT-2 as an ONNX model with open dimensions, with the inputs and outputs that Optimum exports.

Inputs and outputs are those of `llama`, with as many heads of keys as of queries. The fused model
is as onnxruntime's optimizer writes GPT-2: its ops are those of com.microsoft, and the keys and
values of a layer are one tensor, ``past_N`` and ``present_N`` of (2, batch, heads, length, head
size).
"""

import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from . import llama

CONTRIB = "com.microsoft"


def random_weights(config, seed=0):
    """Return random weights by name, with which activations keep their scale."""
    random = np.random.default_rng(seed)
    width, inner = config.width, config.hidden
    shapes = {"wte": (config.vocabulary, width), "wpe": (config.context, width)}
    for n in range(config.layers):
        for name, size in (("attn", 3 * width), ("proj", width), ("fc", inner)):
            shapes |= {f"{n}.{name}": (width, size), f"{n}.{name}.bias": (size,)}
        shapes |= {f"{n}.out": (inner, width), f"{n}.out.bias": (width,)}
    norms = [f"{n}.{name}" for n in range(config.layers) for name in ("ln_1", "ln_2")]
    for name in (*norms, "ln_f"):
        shapes |= {name: (width,), f"{name}.bias": (width,)}
    return {
        name: random.normal(
            float(name in (*norms, "ln_f")), 0.1 if len(shape) == 1 else shape[-2] ** -0.5, shape
        ).astype("float32")
        for name, shape in shapes.items()
    }


class _Builder(llama._Builder):
    """Adds the nodes of a GPT-2 to a graph; values are their names."""

    def embedding(self):
        rows = (("wte", "input_ids"), ("wpe", "position_ids"))
        both = [self.op("Gather", self.weight(name), ids, axis=0) for name, ids in rows]
        return self.op("Add", *both)

    def conv1d(self, x, name):
        """Add a Conv1D of transformers: a Gemm between reshapes."""
        inner, size = self.weights[name].shape
        sizes = [self.size(x, axis) for axis in (0, 1)]
        rows = self.op("Reshape", x, self.const([-1, inner]))
        rows = self.op("Gemm", rows, self.weight(name), self.weight(f"{name}.bias"))
        return self.op("Reshape", rows, self.op("Concat", *sizes, self.const([size]), axis=0))

    def layer_norm(self, x, name):
        return self.op(
            "LayerNormalization", x, self.weight(name), self.weight(f"{name}.bias"), epsilon=1e-5
        )

    def gelu(self, x):
        """Add the approximation of GELU by tanh."""
        cube = self.op("Pow", x, self.const(3, "float32"))
        sum_ = self.op("Add", x, self.op("Mul", cube, self.const(0.044715, "float32")))
        root = self.const(math.sqrt(2 / math.pi), "float32")
        tanh = self.op("Tanh", self.op("Mul", sum_, root))
        half = self.op("Mul", x, self.const(0.5, "float32"))
        return self.op("Mul", half, self.op("Add", tanh, self.const(1, "float32")))

    def padding(self):
        """Add what hides padding: (batch, 1, 1, past + sequence)."""
        kept = self.op("Cast", "attention_mask", to=TensorProto.FLOAT)
        kept = self.op("Unsqueeze", kept, self.const([1, 2]))
        hidden = self.op("Sub", self.const(1, "float32"), kept)
        return self.op("Mul", hidden, self.const(llama.MASKED, "float32"))

    def seen(self, key, query):
        """Add the part of the buffer of truths that is for some keys and queries."""
        context = self.config.context
        if "bias" not in self.constants:
            values = np.tri(context, dtype=bool)[None, None]
            self.constants["bias"] = numpy_helper.from_array(values, "bias")
        keys, queries = (self.size(x, 2) for x in (key, query))
        first = self.op("Sub", keys, queries)
        rows = self.op("Slice", "bias", first, keys, self.const([2]), self.const([1]))
        return self.op("Slice", rows, self.const([0]), keys, self.const([3]), self.const([1]))

    def attention(self, x, layer, padding):
        """Add the attention of a layer; return the result, and the keys and values."""
        config = self.config
        parts = self.op(
            "Split",
            self.conv1d(x, f"{layer}.attn"),
            self.const([config.width] * 3),
            outputs=3,
            axis=2,
        )
        query, *new = (self.heads(part, config.heads) for part in parts)
        names = [f"past_key_values.{layer}.{what}" for what in ("key", "value")]
        key, value = (self.op("Concat", *pair, axis=-2) for pair in zip(names, new))
        scores = self.op("MatMul", query, self.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self.op("Div", scores, self.const(math.sqrt(config.size), "float32"))
        lowest = self.const(llama.MASKED, "float32")
        scores = self.op("Where", self.seen(key, query), scores, lowest)
        shares = self.op("Softmax", self.op("Add", scores, padding), axis=-1)
        joined = self.op("Transpose", self.op("MatMul", shares, value), perm=[0, 2, 1, 3])
        flat = self.op("Reshape", joined, self.const([0, 0, config.width]))
        return self.conv1d(flat, f"{layer}.proj"), key, value


class _FusedBuilder(_Builder):
    """Adds the nodes of a GPT-2 that onnxruntime has optimized."""

    def fused(self, kind, *names, outputs=1, **attrs):
        return self.op(kind, *names, outputs=outputs, domain=CONTRIB, **attrs)

    def attention(self, x, layer, mask):
        """Add the attention of a layer; return the result, and the keys and values in one."""
        weights = [self.weight(f"{layer}.attn{end}") for end in ("", ".bias")]
        attended, present = self.fused(
            "Attention",
            x,
            *weights,
            mask,
            f"past_{layer}",
            outputs=2,
            num_heads=self.config.heads,
            unidirectional=1,
            mask_filter_value=float(llama.MASKED),
        )
        product = self.op("MatMul", attended, self.weight(f"{layer}.proj"))
        return self.op("Add", product, self.weight(f"{layer}.proj.bias")), present

    def mlp(self, x, layer):
        rows = self.op("MatMul", x, self.weight(f"{layer}.fc"))
        rows = self.fused("FastGelu", rows, self.weight(f"{layer}.fc.bias"))
        rows = self.op("MatMul", rows, self.weight(f"{layer}.out"))
        return self.op("Add", rows, self.weight(f"{layer}.out.bias"))

    def sum_and_norm(self, x, y, name):
        """Add a SkipLayerNormalization; return the sum, and the norm of it."""
        norm, _, _, total = self.fused(
            "SkipLayerNormalization",
            x,
            y,
            self.weight(name),
            self.weight(f"{name}.bias"),
            outputs=4,
            epsilon=1e-5,
        )
        return total, norm


def fused_model(config, weights):
    """Return a GPT-2 as onnxruntime's optimizer writes it."""
    add = _FusedBuilder(config, weights)
    x, presents = add.embedding(), []
    mask = add.op("Cast", "attention_mask", to=TensorProto.INT32)
    norm = add.layer_norm(x, "0.ln_1")
    for layer in range(config.layers):
        y, present = add.attention(norm, layer, mask)
        presents.append(present)
        x, norm = add.sum_and_norm(x, y, f"{layer}.ln_2")
        last = layer + 1 == config.layers
        y = add.mlp(norm, layer)
        x, norm = add.sum_and_norm(x, y, "ln_f" if last else f"{layer + 1}.ln_1")
    logits = add.op("MatMul", norm, add.op("Transpose", "wte", perm=[1, 0]))
    proto = llama.finished(add, [logits] + [logits] * 2 * config.layers, is_checked=False)
    names = [f"present_{layer}" for layer in range(config.layers)]
    del proto.graph.output[1:], proto.graph.input[3:], proto.graph.node[-2 * config.layers :]
    for name, value in zip(names, presents):
        proto.graph.node.append(helper.make_node("Identity", [value], [name], name=name))
    sizes = config.heads, config.size
    for kind, others, length in (
        ("past", proto.graph.input, "past"),
        ("present", proto.graph.output, "past + sequence"),
    ):
        shape = [2, "batch", sizes[0], length, sizes[1]]
        others.extend(
            helper.make_tensor_value_info(f"{kind}_{layer}", TensorProto.FLOAT, shape)
            for layer in range(config.layers)
        )
    proto.opset_import.append(helper.make_opsetid(CONTRIB, 1))
    return proto


def fused_inputs(config, ids, cache=None):
    """Return the inputs of one call of a fused model by name; see `llama.inputs`."""
    if cache is None:
        cache = [np.zeros((2, 1, config.heads, 0, config.size), "float32")] * config.layers
    inputs = llama.inputs(config, ids, [each[0] for each in cache])
    integers = {name: inputs[name] for name in list(inputs)[:3]}
    return {**integers, **{f"past_{layer}": each for layer, each in enumerate(cache)}}


def model(config, weights):
    """Return a GPT-2 as an ONNX model; `hidden` is the width of its MLP."""
    add = _Builder(config, weights)
    x, padding, presents = add.embedding(), add.padding(), []
    for layer in range(config.layers):
        y, *present = add.attention(add.layer_norm(x, f"{layer}.ln_1"), layer, padding)
        presents += present
        x = add.op("Add", x, y)
        y = add.gelu(add.conv1d(add.layer_norm(x, f"{layer}.ln_2"), f"{layer}.fc"))
        x = add.op("Add", x, add.conv1d(y, f"{layer}.out"))
    logits = add.op("MatMul", add.layer_norm(x, "ln_f"), add.op("Transpose", "wte", perm=[1, 0]))
    return llama.finished(add, [logits, *presents])
