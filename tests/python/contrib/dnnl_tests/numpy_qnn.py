# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""The QNN dialect in numpy, as the numbers that the integers stand for define it.

TVM computes the same in fixed point, which may be a step off.
"""

import numpy as np

from dnnl_tests import reference


def _along(values, data, axis):
    """Shape a scale or zero point so that it lies along an axis of the data."""
    if values.ndim == 0 or values.size == 1:
        return values.reshape(())
    shape = [1] * data.ndim
    shape[axis] = -1
    return values.reshape(shape)


def _real(data, scale, zero, axis=-1):
    """Return what integers stand for; the zero point is subtracted in float64."""
    return _along(scale, data, axis) * (data.astype("float64") - _along(zero, data, axis))


def _nearest(real, scale, zero, dtype, axis=-1):
    info = np.iinfo(dtype)
    rounded = np.rint(real / _along(scale, real, axis)) + _along(zero, real, axis)
    return np.clip(rounded, info.min, info.max)


def _dequantize(call, data, scale, zero):
    return _real(data, scale, zero, call.attrs.axis)


def _quantize(call, data, scale, zero):
    return _nearest(data, scale, zero, call.checked_type.dtype, call.attrs.axis)


def _requantize(call, data, scale, zero, out_scale, out_zero):
    real = _real(data, scale, zero, call.attrs.axis)
    return _nearest(real, out_scale, out_zero, call.checked_type.dtype, call.attrs.axis)


def _conv(call, data, weight, data_zero, weight_zero, *_):
    attrs = {key: call.attrs[key] for key in ("data_layout", "kernel_layout")}
    attrs = {key: str(value) for key, value in attrs.items()}
    for key in ("strides", "padding", "dilation"):
        attrs[key] = [int(value) for value in call.attrs[key]]
    attrs["groups"] = int(call.attrs.groups)
    if call.attrs.channels is not None:
        attrs["channels"] = int(call.attrs.channels)
    # The padding stands for zero, and so it is one when the zero point is subtracted.
    data = data.astype("float64") - data_zero
    axis = attrs["kernel_layout"].index("O")
    weight = weight.astype("float64") - _along(weight_zero, weight, axis)
    return reference.conv(data, weight, attrs)


def _dense(call, data, weight, data_zero, weight_zero, *_):
    weight = weight.astype("float64") - _along(weight_zero, weight, 0)
    return (data.astype("float64") - data_zero) @ weight.T


def _binary(function):
    def compute(call, lhs, rhs, lhs_scale, lhs_zero, rhs_scale, rhs_zero, out_scale, out_zero):
        lhs_axis, rhs_axis = call.attrs.lhs_axis, call.attrs.rhs_axis
        real = function(
            _real(lhs, lhs_scale, lhs_zero, lhs_axis), _real(rhs, rhs_scale, rhs_zero, rhs_axis)
        )
        return _nearest(real, out_scale, out_zero, call.checked_type.dtype)

    return compute


# By op; a function gets the call, for its attributes, and the values of its arguments.
QNN_OPS = {
    "qnn.dequantize": _dequantize,
    "qnn.quantize": _quantize,
    "qnn.requantize": _requantize,
    "qnn.conv2d": _conv,
    "qnn.dense": _dense,
    "qnn.add": _binary(np.add),
    "qnn.subtract": _binary(np.subtract),
    "qnn.mul": _binary(np.multiply),
}
