# SPDX-License-Identifier: Apache-2.0
"""ONNX models of one node for each op of the table, with the sizes of real models.

Sizes and attributes are drawn with a fixed seed, so that each run measures the same.
"""

import dataclasses
import random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tvm.contrib.onednn.ops.table import BINARY, COMPARISONS, ELTWISE, PLAIN

# The first with RMSNormalization and Attention.
OPSET = 23
# Of the inputs: they are the same in float32 and in 8 bits, and less than 2.
SCALE, ZERO = np.float32(1 / 128), np.uint8(0)
# Batch, channels, and the length of a side.
IMAGES = [(1, 64, 112), (1, 128, 56), (1, 256, 28), (1, 512, 14), (8, 64, 56), (1, 3, 224)]
# Batch, length and width; the width is a multiple of the 64 elements of a head.
TEXTS = [(1, 128, 768), (1, 512, 1024), (8, 64, 512), (1, 1500, 384), (4, 197, 192)]
# Kernel, stride and padding of a side; 0 is a window over the whole image.
WINDOWS = [(2, 2, 0), (3, 2, 1), (3, 1, 1), (7, 1, 3), (0, 1, 0)]
# Kernel, stride, and whether each channel is a group of its own.
CONVS = [(1, 1, False), (3, 1, False), (3, 2, False), (3, 1, True), (5, 2, True), (7, 1, True)]
# Steps, inputs and hidden units.
LAYERS = [(50, 40, 64), (20, 256, 256), (20, 512, 512)]
# Rows, inner dimension and columns.
MATRICES = [(1, 768, 768), (1, 512, 2048), (16, 64, 64), (32, 100, 10)]


@dataclasses.dataclass
class OpModel:
    """A node. An operand is the shape of an input, a tuple, or the value of a constant, an array.

    `has_int8`: whether it is also measured between dequantize and quantize.
    """

    op: str
    operands: list
    attrs: dict = dataclasses.field(default_factory=dict)
    has_int8: bool = True

    @property
    def title(self):
        """The shapes and attributes, for a table."""
        words = []
        for each in self.operands:
            if not isinstance(each, tuple) and each.dtype.kind == "i" and 0 < each.size <= 8:
                words.append(str(each.tolist()).replace(" ", ""))
            elif shape := np.shape(each) if isinstance(each, np.ndarray) else each:
                words.append("x".join(map(str, shape)))
        names = ("kernel_shape", "strides", "group", "axis", "num_groups", "perm", "keepdims")
        words += [f"{name}={self.attrs[name]}" for name in names if name in self.attrs]
        return " ".join(words).replace(", ", ",")

    def shapes(self):
        """Return the shapes of the inputs by name."""
        operands = enumerate(self.operands)
        return {f"x{i}": shape for i, shape in operands if isinstance(shape, tuple)}

    def values(self, is_int8=False):
        """Return random inputs by name, which are positive."""
        numbers, values = np.random.default_rng(0), {}
        for name, shape in self.shapes().items():
            data = numbers.integers(16, 255, shape).astype("uint8")
            values[name] = data if is_int8 else data * SCALE
        return values

    def proto(self, largest=None):
        """Return the model; with the largest magnitude of its result, that of 8 bits.

        Inputs and result of the latter are uint8, and its weights int8.
        """
        is_int8, graph, names = largest is not None, _Graph(), []
        for i, value in enumerate(self.operands):
            if isinstance(value, tuple):
                names.append(f"x{i}")
                if is_int8:
                    names[-1] = graph.node("DequantizeLinear", [names[-1], *graph.scale(SCALE)])
            elif is_int8 and value.ndim > 1 and value.dtype == "float32":
                scale = np.abs(value).max() / 127
                weight = graph.constant(np.round(value / scale).astype("int8"))
                scale = graph.scale(scale, np.int8(0))
                names.append(graph.node("DequantizeLinear", [weight, *scale]))
            else:
                names.append(graph.constant(value))
        result = graph.node(self.op, names, **self.attrs)
        dtype = TensorProto.UINT8 if is_int8 else TensorProto.FLOAT
        result_dtype = TensorProto.UINT8 if self.op == "QuantizeLinear" else dtype
        if self.op in _TRUTHS:
            result_dtype = TensorProto.BOOL
        elif is_int8:
            scale = graph.scale(largest / 127, np.uint8(128))
            result = graph.node("QuantizeLinear", [result, *scale])
        inputs = [
            helper.make_tensor_value_info(name, dtype, shape)
            for name, shape in self.shapes().items()
        ]
        outputs = [helper.make_tensor_value_info(result, result_dtype, None)]
        proto = helper.make_graph(graph.nodes, self.op, inputs, outputs, graph.constants)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(proto, opset_imports=opsets, ir_version=10)


class _Graph:
    """Nodes and constants of an ONNX graph, named by their numbers."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, value):
        """Add a constant; return its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def scale(self, scale, zero=ZERO):
        """Add a scale and a zero point; return their names."""
        return [self.constant(np.float32(scale)), self.constant(zero)]

    def node(self, op, inputs, **attrs):
        """Add a node; return the name of its result."""
        name = f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        return name


# Ops whose ONNX node has another name than theirs in CamelCase.
_ONNX = {
    "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max", "minimum": "Min",
    "less_equal": "LessOrEqual", "greater_equal": "GreaterOrEqual", "negative": "Neg",
    "dnnl.gelu_erf": "Gelu", "dnnl.gelu_tanh": "Gelu",
}  # fmt: skip


def onnx_name(op):
    """Return the name of an op's ONNX node."""
    words = op.rpartition(".")[2].split("_")
    return _ONNX.get(op) or "".join(word.title() for word in words)


_TRUTHS = [onnx_name(op) for op in COMPARISONS]


def _weights(*shape):
    return np.random.default_rng(1).uniform(-0.1, 0.1, shape).astype("float32")


def _image(draw, spatial=2):
    batch, channels, side = draw.choice(IMAGES)
    if spatial == 3:
        return 1, min(channels, 32), 16, 28, 28
    return (batch, channels, side * 8) if spatial == 1 else (batch, channels, side, side)


def _image_or_text(draw):
    return draw.choice([_image(draw), draw.choice(TEXTS)])


def _conv(spatial, is_transposed=False):
    def make(draw):
        shape = _image(draw, spatial)
        if is_transposed:
            shape = (shape[0], min(shape[1], 128), *(max(size // 2, 7) for size in shape[2:]))
        kernel, stride, is_depthwise = draw.choice(CONVS[: 3 if is_transposed else None])
        groups = shape[1] if is_depthwise else 1
        outputs = shape[1] if is_depthwise else draw.choice([32, 64, 128])
        ends = (shape[1], outputs) if is_transposed else (outputs, shape[1] // groups)
        attrs = dict(kernel_shape=[kernel] * spatial, strides=[stride] * spatial, group=groups)
        attrs.update(pads=[kernel // 2] * 2 * spatial)
        weight = _weights(*ends, *[kernel] * spatial)
        return OpModel("ConvTranspose" if is_transposed else "Conv", [shape, weight], attrs)

    return make


def _pool(op, spatial):
    def make(draw):
        shape, (kernel, stride, pad) = _image(draw, spatial), draw.choice(WINDOWS)
        sizes = [kernel] * spatial if kernel else list(shape[2:])
        attrs = dict(kernel_shape=sizes, strides=[stride] * spatial, pads=[pad] * 2 * spatial)
        return OpModel(op, [shape], attrs)

    return make


def _dense(draw):
    if draw.random() < 0.4:
        rows, inner, columns = draw.choice(MATRICES)
        return OpModel("MatMul", [(rows, inner), _weights(inner, columns)])
    batch, length, width = draw.choice(TEXTS)
    outputs = draw.choice([width, 4 * width, 1000])
    return OpModel("MatMul", [(batch, length, width), _weights(width, outputs)])


def _matmul(draw):
    batch, length, width = draw.choice(TEXTS)
    heads = width // 64
    return OpModel("MatMul", [(batch, heads, length, 64), (batch, heads, 64, length)])


def _attention(draw):
    batch, length, width = draw.choice(TEXTS)
    return OpModel("Attention", [(batch, width // 64, length, 64)] * 3)


def _unary(op, *constants, **attrs):
    return lambda draw: OpModel(op, [_image_or_text(draw), *map(np.asarray, constants)], attrs)


def _along_axis(op, **attrs):
    def make(draw):
        shape = _image_or_text(draw)
        axis = draw.choice([-1, -1, 1] if len(shape) == 4 else [-1])
        return OpModel(op, [shape], dict(attrs, axis=axis))

    return make


def _binary(op):
    def make(draw):
        batch, channels, side = draw.choice(IMAGES)
        shape = (batch, channels, side, side)
        others = [(channels, 1, 1), (batch, 1, side, side), (batch, channels, 1, side), (side,)]
        # Also broadcast from both sides.
        pairs = [(shape, shape), *((shape, other) for other in others)]
        return OpModel(op, list(draw.choice([*pairs, ((channels, side, 1), (channels, 1, side))])))

    return make


def _reduction(op):
    def make(draw):
        shape = draw.choice([_image(draw), draw.choice(TEXTS), (3, 80, 960), (960, 80, 3)])
        rank = len(shape)
        axes = draw.choice([[rank - 1], [0], [1], list(range(2, rank))])
        return OpModel(op, [shape, np.array(axes)], dict(keepdims=draw.choice([0, 1])))

    return make


def _norm(op, count, is_text=False, groups=(), **attrs):
    def make(draw):
        shape = draw.choice(TEXTS) if is_text else _image(draw)
        size, given = shape[-1 if is_text else 1], dict(attrs)
        if groups:
            given["num_groups"] = draw.choice([n for n in groups if size % n == 0])
        factors = [np.linspace(0.5, 1.5, size, dtype="float32") for _ in range(count)]
        return OpModel(op, [shape, *factors], given)

    return make


def _resize(**attrs):
    def make(draw):
        shape = _image(draw)
        if shape[-1] > 56:
            shape = (*shape[:2], 56, 56)
        scales = np.array([1, 1, 2, 2], "float32")
        return OpModel("Resize", [shape, np.zeros(0, "float32"), scales], attrs)

    return make


def _concat(draw):
    batch, channels, side = draw.choice(IMAGES)
    parts = [(batch, draw.choice([channels, channels // 2 or 1]), side, side) for _ in range(3)]
    return OpModel("Concat", parts, dict(axis=1))


def _expand(draw):
    batch, length, width = draw.choice(TEXTS)
    return OpModel("Expand", [(batch, 1, width), np.array([batch, length, width])])


def _gather(draw):
    _, length, width = draw.choice(TEXTS)
    shape = draw.choice([(5000, width), (length, width), (width, length)])
    axis = int(shape[0] == width)
    indices = np.random.default_rng(3).integers(0, shape[axis], (length,))
    return OpModel("Gather", [shape, indices], dict(axis=axis))


def _pad(draw):
    width = draw.choice([[0, 0, 1, 1, 0, 0, 1, 1], [0, 0, 0, 0, 0, 1, 0, 0]])
    return OpModel("Pad", [_image(draw), np.array(width)], dict(mode="constant"))


def _slice(draw):
    axis, shape = draw.choice([1, 2, 3]), _image(draw)
    bounds = [1, shape[axis] - 1, axis, draw.choice([1, 2])]
    return OpModel("Slice", [shape, *(np.array([value]) for value in bounds)])


def _transpose(draw):
    batch, length, width = draw.choice(TEXTS)
    shape = draw.choice([(batch, length, width // 64, 64), _image(draw)])
    perm = draw.choice([[0, 2, 1, 3], [0, 3, 1, 2], [0, 2, 3, 1]])
    return OpModel("Transpose", [shape], dict(perm=perm))


def _where(draw):
    batch, length, width = draw.choice(TEXTS)
    mask = _weights(length, length) < 0
    return OpModel("Where", [mask, np.float32([-1]), (batch, width // 64, length, length)])


def _prelu(draw):
    shape = _image(draw)
    return OpModel("PRelu", [shape, _weights(shape[1], 1, 1)])


def _recurrent(op, gates):
    def make(draw):
        steps, inputs, hidden = draw.choice(LAYERS)
        weights = [_weights(1, gates * hidden, size) for size in (inputs, hidden)]
        attrs = dict(hidden_size=hidden)
        return OpModel(op, [(steps, 1, inputs), *weights], attrs, has_int8=False)

    return make


def _quantize(draw):
    operands = [_image_or_text(draw), np.asarray(SCALE), np.asarray(ZERO)]
    return OpModel("QuantizeLinear", operands, has_int8=False)


def _is_standard(op):
    """Whether ONNX has a node of an op's name in the opset of the models."""
    name = onnx_name(op)
    return onnx.defs.has(name, max_inclusive_version=OPSET)


# Of one operand, as ONNX's node of the same name. The exponent of dnnl.pow is an attribute.
_UNARY = [op for op in dict.fromkeys((*ELTWISE, *PLAIN)) if _is_standard(op) and op != "dnnl.pow"]
# By op of the table: draws a model. Others have no node, compute nothing, or run the code of one of
# these; those of language models are measured by `./dev.py bench --text`.
DRAWS = {
    **{op: _unary(onnx_name(op)) for op in _UNARY},
    **{op: _binary(onnx_name(op)) for op in (*BINARY, *COMPARISONS) if _is_standard(op)},
    "clip": _unary("Clip", np.float32(0), np.float32(0.5)),
    "dnnl.gelu_tanh": _unary("Gelu", approximate="tanh"),
    **{f"nn.conv{n}d": _conv(n) for n in (1, 2, 3)},
    **{f"nn.conv{n}d_transpose": _conv(n, True) for n in (1, 2, 3)},
    **{f"nn.max_pool{n}d": _pool("MaxPool", n) for n in (1, 2, 3)},
    **{f"nn.avg_pool{n}d": _pool("AveragePool", n) for n in (1, 2, 3)},
    **{
        f"nn.global_{kind}_pool2d": lambda draw, op=op: OpModel(op, [_image(draw)])
        for kind, op in (("max", "GlobalMaxPool"), ("avg", "GlobalAveragePool"))
    },
    **{op: _reduction(f"Reduce{op.title()}") for op in ("max", "mean", "min", "prod", "sum")},
    **{op: _along_axis(name) for op, name in (("nn.softmax", "Softmax"),
                                              ("nn.log_softmax", "LogSoftmax"))},
    "nn.lrn": lambda draw: OpModel("LRN", [_image(draw)], dict(size=5)),
    "nn.batch_norm": _norm("BatchNormalization", 4),
    "nn.group_norm": _norm("GroupNormalization", 2, groups=(1, 8, 32)),
    "nn.instance_norm": _norm("InstanceNormalization", 2),
    "nn.layer_norm": _norm("LayerNormalization", 2, is_text=True, axis=-1),
    "dnnl.rms_norm": _norm("RMSNormalization", 1, is_text=True, axis=-1),
    "nn.dense": _dense,
    "nn.batch_matmul": _matmul,
    "nn.prelu": _prelu,
    "nn.pad": _pad,
    "image.resize2d": _resize(mode="linear", coordinate_transformation_mode="half_pixel"),
    "nn.upsampling": _resize(
        mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    ),
    "dnnl.attention": _attention,
    "dnnl.lstm": _recurrent("LSTM", 4),
    "dnnl.gru": _recurrent("GRU", 3),
    "dnnl.rnn": _recurrent("RNN", 1),
    "qnn.quantize": _quantize,
    "concatenate": _concat,
    "broadcast_to": _expand,
    "take": _gather,
    "strided_slice": _slice,
    "transpose": _transpose,
    "where": _where,
}  # fmt: skip


def models(op, count):
    """Return up to `count` models of an op, which differ."""
    draw, by_title = random.Random(op), {}
    for _ in range(8 * count):
        model = DRAWS[op](draw)
        by_title.setdefault(model.title, model)
    return list(by_title.values())[:count]
