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
"""Converters of ops that detection models end in."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from ..backend import is_constant
from .quantized_node import QuantizedNode


class NonMaxSuppression(onnx_frontend.NonMaxSuppression):
    """Convert NonMaxSuppression with constant thresholds; TVM takes others for their defaults."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        node = QuantizedNode("NonMaxSuppression", bb, attr)
        names = ("max_output_boxes_per_class", "iou_threshold", "score_threshold")
        for name, value in zip(names, inputs[2:5]):
            node.require(
                value is None or is_constant(value),
                f"{name} that is not constant cannot be imported; if it is an input of the model, "
                "pass its value in `constants`",
            )
        return super()._impl_v10(bb, inputs, attr, params)


class RoiAlign(onnx_frontend.RoiAlign):
    """Convert RoiAlign, which averages; ONNX takes the maximum of other values than TVM.

    TVM also shifts the regions of a scaled image by too little.
    """

    @classmethod
    def _impl(cls, bb, inputs, attr, params, default_coordinate_transformation_mode):
        node = QuantizedNode("RoiAlign", bb, attr)
        node.require(attr.get("mode", b"avg") == b"avg", "mode=max is not supported")
        default = default_coordinate_transformation_mode
        scale = attr.get("spatial_scale", 1.0)
        if attr.get("coordinate_transformation_mode", default) == b"half_pixel" and scale != 1:
            # TVM subtracts half a pixel of the image, not of the data.
            data, rois, batch = inputs[:3]
            shift = relax.const(np.array(0.5 - 0.5 / scale), str(rois.ty.dtype))
            rois = bb.emit(relax.op.add(rois, shift))
            inputs = onnx_frontend.onnx_input([data, rois, batch])
        return super()._impl(bb, inputs, attr, params, default)


REPLACEMENTS = {"NonMaxSuppression": NonMaxSuppression, "RoiAlign": RoiAlign}
