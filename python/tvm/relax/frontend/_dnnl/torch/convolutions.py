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
"""Converter of convolutions: TVM's returns float32, whatever the operands are."""

from __future__ import annotations

from tvm import relax


def _convolution(node, importer):
    x, weight, bias, stride, padding, dilation, is_transposed, output_padding, groups = node.args
    emit, rank = importer.block_builder.emit, len(node.meta["val"].shape) - 2
    windows = {"strides": stride, "padding": padding, "dilation": dilation}
    if is_transposed:
        windows["output_padding"] = output_padding
    # One value stands for all axes.
    windows = {name: list(sizes) * (rank // len(sizes)) for name, sizes in windows.items()}
    convolve = getattr(relax.op.nn, f"conv{rank}d{'_transpose' if is_transposed else ''}")
    result = emit(convolve(importer.env[x], importer.env[weight], groups=groups, **windows))
    if bias is None:
        return result
    bias = emit(relax.op.reshape(importer.env[bias], (1, -1, *[1] * rank)))
    return emit(relax.op.add(result, bias))


CONVERTERS = {"convolution.default": _convolution}
