# SPDX-License-Identifier: Apache-2.0
"""Networks as ONNX models with random weights, decomposed as exporters write them.

Layer normalisation is a mean, a square and a square root; gelu is an erf; attention is products,
reshapes and transposes. A backend has to find in these what it has a kernel for.
"""

import math

from dnnl_tests.onnx_models import Graph


class Network(Graph):
    """A graph with parts of several networks."""

    def linear(self, x, size_in, size):
        """Add a product with a matrix, and a bias."""
        product = self.op("MatMul", x, self.weight(size_in, size, fan_in=size_in))
        return self.op("Add", product, self.vector(size))

    def layer_norm(self, x, size, epsilon):
        """Add a layer normalisation of the last axis."""
        mean = self.op("ReduceMean", x, axes=[-1], keepdims=1)
        centred = self.op("Sub", x, mean)
        square = self.op("Pow", centred, self.constant(2.0))
        variance = self.op("ReduceMean", square, axes=[-1], keepdims=1)
        deviation = self.op("Sqrt", self.op("Add", variance, self.constant(epsilon)))
        normal = self.op("Div", centred, deviation)
        scaled = self.op("Mul", normal, self.vector(size, 1.0))
        return self.op("Add", scaled, self.vector(size))

    def gelu(self, x):
        """Add a gelu with the error function."""
        erf = self.op("Erf", self.op("Div", x, self.constant(math.sqrt(2))))
        gated = self.op("Mul", x, self.op("Add", erf, self.constant(1.0)))
        return self.op("Mul", gated, self.constant(0.5))

    def attention(self, x, length, size, heads):
        """Add self-attention with several heads."""
        depth = size // heads

        def reshaped(value, *last):
            if isinstance(length, int):
                shape = self.constant([1, length, *last], "int64")
            else:
                # As exporters write a length that is open: in the shape of another tensor.
                begin, end = (self.constant([i], "int64") for i in (0, 2))
                known = self.op("Slice", self.op("Shape", x), begin, end)
                shape = self.op("Concat", known, self.constant(last, "int64"), axis=0)
            return self.op("Reshape", value, shape)

        def split(last):
            value = reshaped(self.linear(x, size, size), heads, depth)
            return self.op("Transpose", value, perm=last)

        query, key, value = (split(p) for p in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = self.op("MatMul", query, key)
        scores = self.op("Div", scores, self.constant(math.sqrt(depth)))
        context = self.op("MatMul", self.op("Softmax", scores, axis=-1), value)
        context = self.op("Transpose", context, perm=[0, 2, 1, 3])
        return self.linear(reshaped(context, size), size, size)

    def feed_forward(self, x, size):
        """Add the two layers of a transformer's block, four times as wide inside."""
        return self.linear(self.gelu(self.linear(x, size, 4 * size)), 4 * size, size)


def bert(layers=4, length=128, size=512, heads=8, batch=1):
    """Return BERT's encoder, of the published small size; its input is the embeddings.

    Batch and length may be names: then they stay open.
    """
    net = Network("bert", (batch, length, size))
    x = net.layer_norm("x", size, 1e-12)
    for _ in range(layers):
        x = net.layer_norm(net.op("Add", net.attention(x, length, size, heads), x), size, 1e-12)
        x = net.layer_norm(net.op("Add", net.feed_forward(x, size), x), size, 1e-12)
    return net.model(x, (batch, length, size))


def vit(layers=12, image=224, patch=16, size=192, heads=3, classes=1000):
    """Return the vision transformer of the size "tiny"."""
    net = Network("vit", (1, 3, image, image))
    count = (image // patch) ** 2
    x = net.op(
        "Conv",
        "x",
        net.weight(size, 3, patch, patch, fan_in=3 * patch * patch),
        net.vector(size),
        kernel_shape=[patch, patch],
        strides=[patch, patch],
    )
    x = net.op("Reshape", x, net.constant([1, size, count], "int64"))
    x = net.op("Transpose", x, perm=[0, 2, 1])
    x = net.op("Concat", net.vector((1, 1, size)), x, axis=1)
    length = count + 1
    x = net.op("Add", x, net.vector((1, length, size)))
    for _ in range(layers):
        inner = net.layer_norm(x, size, 1e-6)
        x = net.op("Add", x, net.attention(inner, length, size, heads))
        x = net.op("Add", x, net.feed_forward(net.layer_norm(x, size, 1e-6), size))
    first = net.op("Gather", net.layer_norm(x, size, 1e-6), net.constant(0, "int64"), axis=1)
    weight = net.weight(classes, size, fan_in=size)
    return net.model(net.op("Gemm", first, weight, net.vector(classes), transB=1), (1, classes))


# Expansion, channels, blocks and stride of each stage of MobileNet v2.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(image=224, classes=1000, batch=1, stages=None):
    """Return MobileNet v2 with its batch normalisations folded, as exporters leave it.

    It may have the first stages alone.
    """
    net = Network("mobilenet_v2", (batch, 3, image, image))

    def relu6(x):
        return net.op("Clip", x, net.constant(0.0), net.constant(6.0))

    x, channels = relu6(net.conv("x", 3, 32, 3, 2)), 32
    for expansion, wanted, blocks, first_stride in _STAGES[:stages]:
        for block in range(blocks):
            stride, inner, before = (first_stride if block == 0 else 1), channels * expansion, x
            if expansion > 1:
                x = relu6(net.conv(x, channels, inner, 1))
            x = relu6(net.conv(x, inner, inner, 3, stride, groups=inner))
            x = net.conv(x, inner, wanted, 1)
            if stride == 1 and channels == wanted:
                x = net.op("Add", before, x)
            channels = wanted
    x = relu6(net.conv(x, channels, 1280, 1))
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    weight = net.weight(classes, 1280, fan_in=1280)
    return net.model(net.op("Gemm", x, weight, net.vector(classes), transB=1), (batch, classes))
