# SPDX-License-Identifier: Apache-2.0
"""Ops of the QNN dialect in numpy, as the numbers that the integers stand for define them.

TVM computes the same in fixed point, which may be a step off.
"""

import numpy as np
from tvm.contrib.onednn.ir.numpy_types import along
from tvm.contrib.onednn.ops.quantize import dequantized

from dnnl_tests import reference


def _nearest(real, scale, zero, dtype, axis=-1):
    info = np.iinfo(dtype)
    rounded = np.rint(real / along(scale, axis, real.ndim)) + along(zero, axis, real.ndim)
    return np.clip(rounded, info.min, info.max)


def _requantize(attrs, result_type, data, scale, zero, out_scale, out_zero):
    real = dequantized(data, scale, zero, attrs.axis)
    return _nearest(real, out_scale, out_zero, result_type.dtype, attrs.axis)


def _conv(attrs, result_type, data, weight, data_zero, weight_zero, *_):
    # The padding stands for zero, and so it is one when the zero point is subtracted.
    data = data.astype("float64") - data_zero
    axis = attrs.kernel_layout.index("O")
    weight = weight.astype("float64") - along(weight_zero, axis, weight.ndim)
    return reference.conv(data, weight, {**vars(attrs), "out_layout": ""})


def _dense(attrs, result_type, data, weight, data_zero, weight_zero, *_):
    weight = weight.astype("float64") - along(weight_zero, 0, weight.ndim)
    return (data.astype("float64") - data_zero) @ weight.T


def _binary(function):
    def compute(
        attrs, result_type, lhs, rhs, lhs_scale, lhs_zero, rhs_scale, rhs_zero, out_scale, out_zero
    ):
        real = function(
            dequantized(lhs, lhs_scale, lhs_zero, attrs.lhs_axis),
            dequantized(rhs, rhs_scale, rhs_zero, attrs.rhs_axis),
        )
        return _nearest(real, out_scale, out_zero, result_type.dtype)

    return compute


# By op; as the definitions of `tvm.contrib.onednn.ops`, which has those of the table.
QNN_OPS = {
    "qnn.requantize": _requantize,
    "qnn.conv2d": _conv,
    "qnn.dense": _dense,
    "qnn.add": _binary(np.add),
    "qnn.subtract": _binary(np.subtract),
    "qnn.mul": _binary(np.multiply),
}
