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
"""Pools of ONNX: windows that begin after the image, and results that TVM does not compute."""

from __future__ import annotations

from ... import expr as _expr
from ... import op as _op
from .incremental import infer_shape, infer_type
from .refusals import refuse, refuse_same_pads


def pool(name, convert, inputs, attrs, params):
    """Leave out windows of `ceil_mode` that begin in the padding at the end, and refuse indices."""
    strides, has_indices = attrs.get("strides"), attrs.get("tvm_custom", {}).get("num_outputs") == 2
    if has_indices and strides and set(strides) != {1}:
        refuse(name, attrs, "the output Indices with a stride above 1")
    if name != "MaxPool":
        refuse_same_pads(name, attrs, inputs[0])
    result = convert(inputs, attrs, params)
    if not attrs.get("ceil_mode", 0) or attrs.get("auto_pad", b"NOTSET") != b"NOTSET":
        return result
    sizes = infer_shape(inputs[0])[2:]
    rank = len(sizes)
    kernel, ones = attrs["kernel_shape"], [1] * rank
    strides, dilations = attrs.get("strides") or ones, attrs.get("dilations") or ones
    pads, ends = attrs.get("pads") or [0] * 2 * rank, []
    for k, size in enumerate(sizes):
        span = (kernel[k] - 1) * dilations[k] + 1
        # The distance after the image at which a window may begin is less than this.
        excess = pads[rank + k] + strides[k] - span
        if not isinstance(size, int):
            if excess > 0:
                refuse(name, attrs, "ceil_mode with a last window that may begin in the padding")
            continue
        count = -(-(size + pads[k] + pads[rank + k] - span) // strides[k]) + 1
        if (count - 1) * strides[k] >= size + pads[k]:
            ends.append((k + 2, count - 1))
    if not ends:
        return result
    axes, counts = map(list, zip(*ends))
    return _op.strided_slice(result, [0] * len(axes), counts, [1] * len(axes), axes)


def locations(name, convert, inputs, attrs, params):
    """Return the indices of a MaxPool as integers."""
    return _op.cast(convert(inputs, attrs, params), "int64")


def global_lp_pool(name, convert, inputs, attrs, params):
    """Convert GlobalLpPool of any sizes; TVM needs those of the window."""
    (data,), power = inputs, attrs.get("p", 2)
    dtype = infer_type(data).checked_type.dtype
    powers = _op.power(_op.abs(data), _expr.const(float(power), dtype))
    total = _op.sum(powers, list(range(2, len(infer_shape(data)))), keepdims=True)
    return _op.power(total, _expr.const(1 / power, dtype))
