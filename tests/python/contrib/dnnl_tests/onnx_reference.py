# SPDX-License-Identifier: Apache-2.0
"""Results of quantized ONNX models in numpy: those of `onnx.reference`, and of ops of onnxruntime.

Not of onnxruntime: on CPUs without VNNI instructions, its matmuls of uint8 and int8 saturate in 16
bits, and in 1.23 those on AMX are wrong, too.
"""

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


def reference_results(model, inputs):
    """Return what a model computes of a dict of arrays.

    Parameters
    ----------
    model : onnx.ModelProto
        The model, of ops of the standard and of those below.
    inputs : dict of str to numpy.ndarray
        The inputs.
    """
    return ReferenceEvaluator(model, new_ops=_OPS).run(None, inputs)


def is_quantized(model):
    """Whether a model has quantized matmuls or convolutions, and `reference_results` its ops."""
    nodes = [(node.domain, node.op_type) for node in model.graph.node]
    own = {(op.op_domain, op.__name__) for op in _OPS}
    is_known = all(node in own or node[0] in ("", "ai.onnx") for node in nodes)
    return is_known and bool(own.intersection(nodes))


def _centered(data, zero, axis=-1):
    """Return a quantized tensor minus its zero point, or those of the items of an axis."""
    zero = np.asarray(0 if zero is None else zero, "int64")
    if zero.ndim == 1 and zero.size > 1:
        zero = zero.reshape([-1 if k == axis % data.ndim else 1 for k in range(data.ndim)])
    return data.astype("int64") - zero


def _products(a, b, a_zero, b_zero):
    """Return the exact matmul of two quantized tensors."""
    return np.matmul(_centered(a, a_zero, -2), _centered(b, b_zero))


def _quantized(steps, zero):
    """Return steps as integers of the type of a zero point."""
    limits = np.iinfo(zero.dtype)
    return np.clip(np.rint(steps) + zero, limits.min, limits.max).astype(zero.dtype)


def _convolution(x, w, auto_pad, dilations, group, kernel_shape, pads, strides):
    """Return the exact convolution of two tensors of integers."""
    sizes, kernel = x.shape[2:], kernel_shape or w.shape[2:]
    rank = len(sizes)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    spans = [(k - 1) * dilation + 1 for k, dilation in zip(kernel, dilations)]
    pads = list(pads or [0] * 2 * rank)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max((-(-size // stride) - 1) * stride + span - size, 0)
            for size, stride, span in zip(sizes, strides, spans)
        ]
        halves = [total // 2 for total in totals], [total - total // 2 for total in totals]
        pads = sum(halves if auto_pad == "SAME_UPPER" else halves[::-1], [])
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:])])
    windows = np.lib.stride_tricks.sliding_window_view(x, spans, axis=tuple(range(2, 2 + rank)))
    steps = [slice(None, None, step) for step in (*strides, *dilations)]
    windows = windows[(slice(None), slice(None), *steps)]
    axes = [1, *range(2 + rank, 2 + 2 * rank)], [1, *range(2, 2 + rank)]
    parts = zip(np.split(windows, group, 1), np.split(w, group, 0))
    return np.concatenate([np.moveaxis(np.tensordot(*each, axes), -1, 1) for each in parts], 1)


class ConvInteger(OpRun):
    """A convolution of quantized tensors, in int32."""

    def _run(self, x, w, x_zero=None, w_zero=None, **attrs):
        return (_convolution(_centered(x, x_zero), _centered(w, w_zero), **attrs).astype("int32"),)


class QLinearConv(OpRun):
    """A quantized convolution."""

    def _run(
        self, x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias=None, **attrs
    ):  # fmt: skip
        sums = _convolution(_centered(x, x_zero), _centered(w, w_zero, 0), **attrs)
        channels = (-1, *[1] * (sums.ndim - 2))
        sums = sums if bias is None else sums + bias.reshape(channels)
        scale = np.reshape(np.float64(x_scale) * w_scale / y_scale, channels)
        return (_quantized(sums * scale, y_zero),)


class MatMulInteger(OpRun):
    """A matmul of quantized operands, in int32."""

    def _run(self, a, b, a_zero=None, b_zero=None):
        return (_products(a, b, a_zero, b_zero).astype("int32"),)


class QLinearMatMul(OpRun):
    """A quantized matmul."""

    def _run(self, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero):
        scale = np.float64(a_scale) * b_scale / y_scale
        return (_quantized(_products(a, b, a_zero, b_zero) * scale, y_zero),)


class MatMulIntegerToFloat(OpRun):
    """A matmul of quantized operands, in float32."""

    op_domain = "com.microsoft"

    def _run(self, a, b, a_scale, b_scale, a_zero=None, b_zero=None, bias=None):
        result = _products(a, b, a_zero, b_zero) * (np.float64(a_scale) * b_scale)
        return ((result if bias is None else result + bias).astype("float32"),)


class DynamicQuantizeMatMul(OpRun):
    """A matmul of data that is quantized when the model runs."""

    op_domain = "com.microsoft"

    def _run(self, a, b, b_scale, b_zero=None, bias=None):
        low, high = min(a.min(), np.float32(0)), max(a.max(), np.float32(0))
        scale = np.float32((high - low) / np.float32(255)) or np.float32(1)
        zero = _quantized(-low / scale, np.uint8(0))
        result = _products(_quantized(a / scale, zero), b, zero, b_zero)
        result = result * (np.float64(scale) * b_scale)
        return ((result if bias is None else result + bias).astype("float32"),)


class QGemm(OpRun):
    """A quantized Gemm; its result is float32 without a scale."""

    op_domain = "com.microsoft"

    def _run(self, *operands, alpha=1.0, transA=0, transB=0):  # pylint: disable=invalid-name
        operands += (None,) * (9 - len(operands))
        a, a_scale, a_zero, b, b_scale, b_zero, bias, y_scale, y_zero = operands
        result = _products(a.T if transA else a, b.T if transB else b, a_zero, b_zero)
        result = result if bias is None else result + bias
        result = result * (np.float64(alpha) * a_scale * b_scale)
        if y_scale is None:
            return (result.astype("float32"),)
        return (_quantized(result / y_scale, y_zero),)


_OPS = [
    *(ConvInteger, DynamicQuantizeMatMul, MatMulInteger, MatMulIntegerToFloat),
    *(QGemm, QLinearConv, QLinearMatMul),
]
