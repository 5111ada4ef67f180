# SPDX-License-Identifier: Apache-2.0
"""Composites: a root op with what is fused to it."""

from tvm import relay

from ..graph import Tensor
from .drawn import row

NAMES = (
    *("dnnl.conv2d_bias_sum_relu", "dnnl.conv2d_bias_sum", "dnnl.conv2d_bias_relu"),
    *("dnnl.conv2d_bias", "dnnl.conv2d_bias_sigmoid", "dnnl.conv2d_relu", "dnnl.conv2d_sigmoid"),
    *("dnnl.dense_bias_relu", "dnnl.dense_bias", "dnnl.dense_relu"),
)


def _chain(name):
    """Make the row of a composite, whose name tells what a root has after it."""
    root, *parts = name.removeprefix("dnnl.").split("_")

    def build(b, expr):
        shape = Tensor.of(expr).shape
        axis = len(shape) - 1 if root == "dense" else str(expr.attrs.data_layout).index("C")
        if "bias" in parts:
            expr = relay.nn.bias_add(expr, b.param([shape[axis]]), axis)
        if "sum" in parts:
            expr = expr + b.param(shape)
        if "sigmoid" in parts:
            return relay.sigmoid(expr)
        return relay.nn.relu(expr) if "relu" in parts else expr

    return row(name, f"nn.{root}", build)


ROWS = tuple(map(_chain, NAMES))
