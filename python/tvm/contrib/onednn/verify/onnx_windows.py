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
"""Windows of convolutions and pools of ONNX models, and the images that they need."""

from __future__ import annotations

#: Ops of windows over images.
WINDOWED = ("AveragePool", "Conv", "ConvInteger", "LpPool", "MaxPool", "QLinearConv")


def has_window(node, shape) -> bool:
    """Whether an image is as large as the window of an op, where that is known."""
    import onnx

    attrs = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    if attrs.get("auto_pad", b"NOTSET") != b"NOTSET":
        return True
    kernel = attrs.get("kernel_shape", ())
    rank = len(kernel)
    pads, dilations = attrs.get("pads", [0] * 2 * rank), attrs.get("dilations", [1] * rank)
    padded = map(sum, zip(shape[2:], pads[:rank], pads[rank:]))
    return all(size > (k - 1) * by for size, k, by in zip(padded, kernel, dilations))
