# SPDX-License-Identifier: Apache-2.0
"""Llama as an ONNX model with open dimensions, with the inputs and outputs that Optimum exports.

Inputs are ``input_ids`` (batch, sequence), ``attention_mask`` (batch, past + sequence),
``position_ids`` (batch, sequence), all int64, and for each layer ``past_key_values.N.key`` and
``.value`` (batch, kv heads, past, head size). Outputs are ``logits`` and ``present.N.key`` and
``.value`` (batch, kv heads, past + sequence, head size).
"""

import dataclasses
import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
# The largest finite value of the mask: a row of -inf would become NaN in the softmax.
MASKED = np.finfo("float32").min


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of a Llama.

    Attributes
    ----------
    layers, width, hidden, heads, kv_heads, vocabulary : int
        Decoder layers, width of a token, width of the MLP, heads of queries and of keys, tokens.
    context : int
        The most positions, past included.
    theta : float
        The base of the rotary angles.
    epsilon : float
        Of the RMS norms.
    is_interleaved : bool
        Whether the rotary embedding pairs elements 2i and 2i + 1, and not i and i + half.
    """

    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int = 64
    theta: float = 10000.0
    epsilon: float = 1e-5
    is_interleaved: bool = False

    @property
    def size(self):
        """The size of a head."""
        return self.width // self.heads

    def shapes(self):
        """Return the shape of each weight by its name; products are ``x @ weight.T``."""
        kv, square = self.kv_heads * self.size, (self.width, self.width)
        one = {
            "input_norm": (self.width,),
            "q": square,
            "k": (kv, self.width),
            "v": (kv, self.width),
            "o": square,
            "post_norm": (self.width,),
            "gate": (self.hidden, self.width),
            "up": (self.hidden, self.width),
            "down": (self.width, self.hidden),
        }
        layers = {f"{n}.{name}": shape for n in range(self.layers) for name, shape in one.items()}
        return {"embedding": (self.vocabulary, self.width), **layers, "norm": (self.width,)}

    def cache_names(self, prefix):
        """Return the names of the keys and values of all layers, in the order of the model."""
        return [f"{prefix}.{n}.{what}" for n in range(self.layers) for what in ("key", "value")]


TINY = Config(layers=2, width=64, hidden=96, heads=4, kv_heads=2, vocabulary=128)


def random_weights(config, seed=0):
    """Return random weights by name, with which activations keep their scale."""
    random = np.random.default_rng(seed)

    def draw(shape):
        if len(shape) == 1:
            return random.normal(1, 0.1, shape).astype("float32")
        return random.normal(0, 1 / math.sqrt(shape[1]), shape).astype("float32")

    return {name: draw(shape) for name, shape in config.shapes().items()}


def inputs(config, ids, cache=None):
    """Return the inputs of one call by name.

    Parameters
    ----------
    config : Config
        The sizes.
    ids : array_like of int
        The new tokens of one sequence.
    cache : list of numpy.ndarray, optional
        The keys and values of all layers, as the last call returned them. By default they are
        empty.
    """
    ids = np.asarray([ids], "int64")
    if cache is None:
        cache = [np.zeros((1, config.kv_heads, 0, config.size), "float32")] * 2 * config.layers
    past = cache[0].shape[2]
    positions = np.arange(past, past + ids.shape[1], dtype="int64")[None]
    return {
        "input_ids": ids,
        "attention_mask": np.ones((1, past + ids.shape[1]), "int64"),
        "position_ids": positions,
        **dict(zip(config.cache_names("past_key_values"), cache)),
    }


class _Builder:
    """Adds the nodes of a Llama to a graph; values are their names."""

    def __init__(self, config, weights, is_traced=False):
        self.config, self.weights, self.is_traced = config, weights, is_traced
        self.nodes, self.constants = [], {}

    def op(self, kind, *names, outputs=1, **attrs):
        """Add a node; return the name of its result, or the names of several."""
        number = len(self.nodes)
        results = [f"{kind}_{number}_{i}" for i in range(outputs)]
        name = f"{kind}_{number}"
        self.nodes.append(helper.make_node(kind, list(names), results, name=name, **attrs))
        return results[0] if outputs == 1 else results

    def const(self, value, dtype="int64"):
        """Return the name of a constant; equal ones are shared."""
        value = np.asarray(value, dtype)
        key = (value.dtype.str, value.shape, value.tobytes()) if value.size < 16 else len(value)
        if key not in self.constants:
            name = f"constant_{len(self.constants)}"
            self.constants[key] = numpy_helper.from_array(value, name)
        return self.constants[key].name

    def weight(self, name):
        """Return the name of a weight."""
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(self.weights[name], name)
        return name

    def linear(self, x, name):
        """Add a product with a weight, which is stored transposed as exporters do."""
        key = f"{name}.T"
        if key not in self.constants:
            value = np.ascontiguousarray(self.weights[name].T)
            self.constants[key] = numpy_helper.from_array(value, key)
        return self.op("MatMul", x, key)

    def size(self, x, axis):
        """Return a dimension of a tensor as a vector of one element."""
        shape = self.op("Shape", x)
        return self.op("Gather", shape, self.const([axis]), axis=0)

    def norm(self, x, name):
        """Add an RMS norm."""
        square = self.op("Pow", x, self.const(2, "float32"))
        mean = self.op("ReduceMean", square, axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.const(self.config.epsilon, "float32")))
        normal = self.op("Mul", x, self.op("Div", self.const(1, "float32"), root))
        return self.op("Mul", self.weight(name), normal)

    def angles(self):
        """Add the cosines and sines of the positions (batch, 1, sequence, head size)."""
        config = self.config
        powers = np.arange(0, config.size, 2) / config.size
        if self.is_traced:
            positions = self.op("Cast", "position_ids", to=TensorProto.FLOAT)
            columns = self.op("Unsqueeze", positions, self.const([2]))
            rates = self.const(config.theta ** -powers[None, None], "float32")
            angles = self.op("MatMul", columns, rates)
            angles = self.op("Concat", angles, angles, axis=-1)
            both = (self.op("Cos", angles), self.op("Sin", angles))
            return [self.op("Unsqueeze", each, self.const([1])) for each in both]
        rates = np.outer(np.arange(config.context), config.theta**-powers)
        if config.is_interleaved:
            rates = np.repeat(rates, 2, axis=1)
        else:
            rates = np.concatenate([rates, rates], axis=1)
        results = []
        for name, function in (("cos", np.cos), ("sin", np.sin)):
            self.constants[name] = numpy_helper.from_array(function(rates).astype("float32"), name)
            rows = self.op("Gather", name, "position_ids", axis=0)
            results.append(self.op("Unsqueeze", rows, self.const([1])))
        return results

    def swapped(self, x):
        """Add what the rotary embedding multiplies by the sines."""
        half, last = self.config.size // 2, self.const([3])

        def part(begin, end, step=1):
            ends = (self.const([begin]), self.const([end]))
            return self.op("Slice", x, *ends, last, self.const([step]))

        end = np.iinfo("int64").max
        if not self.config.is_interleaved:
            return self.op("Concat", self.op("Neg", part(half, end)), part(0, half), axis=-1)
        odd, even = self.op("Neg", part(1, end, 2)), part(0, end, 2)
        pair = [self.op("Unsqueeze", each, self.const([4])) for each in (odd, even)]
        pairs = self.op("Concat", *pair, axis=-1)
        return self.op("Reshape", pairs, self.const([0, 0, 0, self.config.size]))

    def rotated(self, x, cos, sin):
        """Add a rotary embedding."""
        product = self.op("Mul", x, cos)
        return self.op("Add", product, self.op("Mul", self.swapped(x), sin))

    def heads(self, x, count):
        """Split the last axis into heads: (batch, heads, sequence, head size)."""
        split = self.op("Reshape", x, self.const([0, 0, count, self.config.size]))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def repeated(self, x):
        """Repeat heads of keys or values for the queries that share them."""
        config = self.config
        times = config.heads // config.kv_heads
        if times == 1:
            return x
        dims = self.op("Shape", x)
        batch, length = (self.op("Gather", dims, self.const([axis]), axis=0) for axis in (0, 2))
        one = self.op("Unsqueeze", x, self.const([2]))
        groups, size = self.const([config.kv_heads, times]), self.const([config.size])
        shape = self.op("Concat", batch, groups, length, size, axis=0)
        many = self.op("Expand", one, shape)
        flat = self.op("Concat", batch, self.const([config.heads]), length, size, axis=0)
        return self.op("Reshape", many, flat)

    def mask(self):
        """Add what is added to the scores (batch, 1, sequence, past + sequence)."""
        total = self.size("attention_mask", 1)
        keys = self.op(
            "Range",
            self.const(0),
            self.op("Squeeze", total, self.const([0])),
            self.const(1),
        )
        queries = self.op("Unsqueeze", "position_ids", self.const([1, 3]))
        is_past = self.op("LessOrEqual", keys, queries)
        is_token = self.op("Cast", "attention_mask", to=TensorProto.BOOL)
        is_token = self.op("Unsqueeze", is_token, self.const([1, 2]))
        is_seen = self.op("And", is_past, is_token)
        return self.op("Where", is_seen, self.const(0, "float32"), self.const(MASKED, "float32"))

    def attention(self, x, layer, cos, sin, mask):
        """Add the attention of a layer; return the result, and the keys and values."""
        config = self.config
        query = self.rotated(self.heads(self.linear(x, f"{layer}.q"), config.heads), cos, sin)
        key = self.rotated(self.heads(self.linear(x, f"{layer}.k"), config.kv_heads), cos, sin)
        value = self.heads(self.linear(x, f"{layer}.v"), config.kv_heads)
        pasts = [f"past_key_values.{layer}.{what}" for what in ("key", "value")]
        if self.is_traced:
            pasts = [self.op("Concat", past, axis=-2) for past in pasts]
        key, value = (
            self.op("Concat", past, new, axis=-2) for past, new in zip(pasts, (key, value))
        )
        turned = self.op("Transpose", self.repeated(key), perm=[0, 1, 3, 2])
        scale = self.const(1 / math.sqrt(config.size), "float32")
        scores = self.op("Mul", self.op("MatMul", query, turned), scale)
        shares = self.op("Softmax", self.op("Add", scores, mask), axis=-1)
        mixed = self.op("MatMul", shares, self.repeated(value))
        joined = self.op("Transpose", mixed, perm=[0, 2, 1, 3])
        flat = self.op("Reshape", joined, self.const([0, 0, config.width]))
        return self.linear(flat, f"{layer}.o"), key, value

    def mlp(self, x, layer):
        """Add a SwiGLU."""
        gate = self.linear(x, f"{layer}.gate")
        silu = self.op("Mul", gate, self.op("Sigmoid", gate))
        return self.linear(self.op("Mul", silu, self.linear(x, f"{layer}.up")), f"{layer}.down")


def model(config, weights, last_only=False, is_traced=False):
    """Return a Llama as an ONNX model.

    Parameters
    ----------
    config : Config
        The sizes.
    weights : dict of str to numpy.ndarray
        The weights by the names of `Config.shapes`, float32. The output layer uses the embedding.
    last_only : bool
        Whether the logits are those of the last position, (batch, 1, vocabulary).
    is_traced : bool
        Whether it is as transformers 5 is traced: angles are computed from the positions, and each
        past is a concatenation of itself. Not for interleaved rotary embeddings.

    Returns
    -------
    onnx.ModelProto
        The model.
    """
    add = _Builder(config, weights, is_traced)
    x = add.op("Gather", add.weight("embedding"), "input_ids", axis=0)
    (cos, sin), mask, presents = add.angles(), add.mask(), []
    for layer in range(config.layers):
        normal = add.norm(x, f"{layer}.input_norm")
        y, *present = add.attention(normal, layer, cos, sin, mask)
        presents += present
        x = add.op("Add", x, y)
        x = add.op("Add", x, add.mlp(add.norm(x, f"{layer}.post_norm"), layer))
    if last_only:
        end = add.const([np.iinfo("int64").max])
        x = add.op("Slice", x, add.const([-1]), end, add.const([1]))
    head = add.op("Transpose", "embedding", perm=[1, 0])
    logits = add.op("MatMul", add.norm(x, "norm"), head)
    return finished(add, [logits, *presents], last_only)


def finished(add, values, last_only=False, is_checked=True):
    """Return the model of a builder, with the inputs and outputs that Optimum exports.

    Parameters
    ----------
    add : _Builder
        The builder.
    values : list of str
        The logits, and the keys and values of all layers.
    last_only : bool
        Whether the logits are those of the last position.
    is_checked : bool
        Whether onnx's checker is run.
    """
    config = add.config
    names = ["logits", *config.cache_names("present")]
    for name, value in zip(names, values):
        add.nodes.append(helper.make_node("Identity", [value], [name], name=name))

    def info(name, *shape, kind=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, kind, ["batch", *shape])

    length, total = "sequence", "past + sequence"
    given = [
        info("input_ids", length, kind=TensorProto.INT64),
        info("attention_mask", total, kind=TensorProto.INT64),
        info("position_ids", length, kind=TensorProto.INT64),
    ]
    heads, size = config.kv_heads, config.size
    given += [info(name, heads, "past", size) for name in config.cache_names("past_key_values")]
    results = [info(names[0], 1 if last_only else length, config.vocabulary)]
    results += [info(name, heads, total, size) for name in names[1:]]
    graph = helper.make_graph(add.nodes, "llama", given, results, list(add.constants.values()))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    if is_checked:
        onnx.checker.check_model(proto)
    return proto
