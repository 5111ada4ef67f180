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
