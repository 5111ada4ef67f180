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
"""The table of what oneDNN runs: one row an op, with the rule that accepts or refuses a call."""

from __future__ import annotations

from .op_spec import (
    FUNCTION,
    OpSpec,
    always,
    binary,
    copy,
    eltwise,
    function,
    light,
    no_flops,
    root,
    view,
)
from .rules.attention import attention_flops, attention_reason
from .rules.binary import BINARY, COMPARISON, DIVIDE
from .rules.conv import CONV, CONV_TRANSPOSE
from .rules.copies import broadcast_to_reason, take_reason, where_reason
from .rules.eltwise import (
    CLIP,
    cast_reason,
    eltwise_reason,
    float32_reason,
    leaky_relu_reason,
    prelu_reason,
    virtual_reason,
)
from .rules.matmul import BATCH_MATMUL, BLOCK_DENSE, DENSE, DYNAMIC_DENSE, MATMUL
from .rules.pool import ADAPTIVE, MAX_ADAPTIVE, MAX_POOL, POOL
from .rules.quantize import dequantize_reason, quantize_reason
from .rules.recurrent import GRU, LSTM, RECURRENT, RNN
from .rules.reduce import (
    REDUCE,
    axis_reason,
    batch_norm_reason,
    group_norm_reason,
    l2_normalize_reason,
    lrn_reason,
    rms_norm_reason,
)
from .rules.resize import RESIZE
from .rules.view import (
    RESHAPE,
    SPLIT,
    TRANSPOSE,
    concat_reason,
    layout_transform_reason,
    pad_reason,
    strided_slice_reason,
)
from .tensors import data_elements

# What quantizers write behind an op. MergeComposite looks for each pattern in the whole function,
# so there are no others.
_POSTS_INT8 = "relu_quantize clip_quantize"
_RESIDUAL_INT8 = (
    f"{_POSTS_INT8} quantize_relu_quantize quantize_clip_quantize sum_quantize sum_relu_quantize "
    "quantize_sum quantize_sum_quantize quantize_sum_relu_quantize quantize_sum_clip_quantize"
)

TABLE: dict[str, OpSpec] = {
    row.name: row
    for row in [
        root("nn.conv1d", **CONV),
        root(
            "nn.conv2d",
            **CONV,
            patterns="bias_sum_relu bias_sum bias_relu bias bias_sigmoid relu sigmoid",
            patterns_int8=_RESIDUAL_INT8,
        ),
        root("nn.conv3d", **CONV),
        root("nn.conv1d_transpose", **CONV_TRANSPOSE),
        root("nn.conv2d_transpose", **CONV_TRANSPOSE),
        root("nn.conv3d_transpose", **CONV_TRANSPOSE),
        root(
            "nn.dense",
            **DENSE,
            relax="matmul",
            patterns="bias_relu bias relu",
            patterns_int8=_RESIDUAL_INT8,
        ),
        root("nn.matmul", **MATMUL, relax="matmul"),
        root("nn.batch_matmul", **BATCH_MATMUL, relax="matmul"),
        *(OpSpec(name, **RECURRENT) for name in (LSTM, GRU, RNN)),
        OpSpec(
            "dnnl.attention",
            attention_reason,
            heavy=True,
            flops=attention_flops,
            typed_operands=3,
            relax="",
        ),
        OpSpec("dnnl.block_quantized_dense", **BLOCK_DENSE, heavy=True, relax=""),
        OpSpec("dnnl.dynamic_fake_quantize", float32_reason, relax=""),
        OpSpec("dnnl.dynamic_quantize_scale", float32_reason, flops=no_flops, relax=""),
        OpSpec("dnnl.dynamic_quantized_dense", **DYNAMIC_DENSE, heavy=True, relax=""),
        light("nn.max_pool1d", **MAX_POOL, padding="lowest"),
        light("nn.max_pool2d", **MAX_POOL, padding="lowest"),
        light("nn.max_pool3d", **MAX_POOL, padding="lowest"),
        light("nn.avg_pool1d", **POOL, padding="average"),
        light("nn.avg_pool2d", **POOL, padding="average"),
        light("nn.avg_pool3d", **POOL, padding="average"),
        light("nn.global_max_pool2d", **MAX_ADAPTIVE, relax="max"),
        light("nn.global_avg_pool2d", **ADAPTIVE, relax="mean"),
        light("nn.adaptive_max_pool1d", **MAX_ADAPTIVE, relax=""),
        light("nn.adaptive_max_pool2d", **MAX_ADAPTIVE, relax=""),
        light("nn.adaptive_max_pool3d", **MAX_ADAPTIVE, relax=""),
        light("nn.adaptive_avg_pool1d", **ADAPTIVE),
        light("nn.adaptive_avg_pool2d", **ADAPTIVE),
        light("nn.adaptive_avg_pool3d", **ADAPTIVE),
        OpSpec(
            "nn.batch_norm",
            batch_norm_reason,
            fuses=("nn.relu",),
            flops=data_elements,
        ),
        function("nn.group_norm", group_norm_reason),
        function("nn.instance_norm", axis_reason),
        function("nn.l2_normalize", l2_normalize_reason, relax=""),
        function("nn.layer_norm", axis_reason, normalizes=True),
        function("nn.lrn", lrn_reason, relax=""),
        function("dnnl.rms_norm", rms_norm_reason, relax="nn.rms_norm", normalizes=True),
        function("dnnl.masked_softmax", virtual_reason, relax="", is_not_negative=always),
        function("dnnl.nan_safe_softmax", virtual_reason, relax="", is_not_negative=always),
        function("nn.fast_softmax", axis_reason, relax=""),
        function("nn.log_softmax", axis_reason),
        function("nn.softmax", axis_reason, is_not_negative=always),
        light("max", **REDUCE),
        light("mean", **REDUCE),
        light("min", **REDUCE),
        light("prod", **REDUCE, grows=True),
        light("sum", **REDUCE, grows=True),
        light("image.resize1d", **RESIZE, relax=""),
        light("image.resize2d", **RESIZE),
        light("image.resize3d", **RESIZE),
        light("nn.upsampling", **RESIZE, relax=""),
        light("nn.upsampling3d", **RESIZE, relax=""),
        OpSpec("cast", cast_reason, flops=no_flops, relax="astype"),
        OpSpec("qnn.quantize", quantize_reason, post="quantize", relax="quantize"),
        OpSpec(
            "qnn.dequantize",
            dequantize_reason,
            reads_int8="data",
            fuses=("quantize",),
            relax="dequantize",
        ),
        copy("concatenate", concat_reason, relax="concat"),
        copy("stack", concat_reason),
        copy("nn.pad", pad_reason),
        copy("broadcast_to", broadcast_to_reason),
        copy("take", take_reason, relax=""),
        view("split", **SPLIT),
        view("strided_slice", strided_slice_reason),
        view("layout_transform", layout_transform_reason, relax=""),
        view("transpose", **TRANSPOSE, relax="permute_dims"),
        view("contrib_reverse_reshape", **RESHAPE, relax=""),
        view("expand_dims", **RESHAPE, relax="expand_dims reshape"),
        view("nn.batch_flatten", **RESHAPE, relax=""),
        view(
            "reshape",
            **RESHAPE,
            relax="reshape expand_dims squeeze flatten nn.batch_flatten",
        ),
        view("squeeze", **RESHAPE, relax="squeeze reshape"),
        eltwise("nn.relu", eltwise_reason, is_not_negative=always),
        eltwise("nn.leaky_relu", leaky_relu_reason, relax="nn.leakyrelu nn.prelu"),
        OpSpec("nn.prelu", prelu_reason, post="prelu"),
        eltwise("abs", eltwise_reason, is_not_negative=always),
        eltwise("clip", **CLIP, relax="clip nn.relu6"),
        eltwise("exp", eltwise_reason, cost_weight=FUNCTION, grows=True, is_not_negative=always),
        eltwise("log", eltwise_reason, cost_weight=FUNCTION),
        eltwise("negative", eltwise_reason),
        eltwise("rsqrt", eltwise_reason, grows=True),
        eltwise("sigmoid", eltwise_reason, cost_weight=FUNCTION, is_not_negative=always),
        eltwise("sqrt", eltwise_reason, is_not_negative=always),
        eltwise("tanh", eltwise_reason, cost_weight=FUNCTION),
        OpSpec("ceil", eltwise_reason),
        OpSpec("cos", eltwise_reason, cost_weight=FUNCTION),
        OpSpec("floor", eltwise_reason),
        OpSpec("sign", eltwise_reason),
        OpSpec("sin", eltwise_reason, cost_weight=FUNCTION),
        OpSpec("trunc", eltwise_reason),
        eltwise("dnnl.elu", virtual_reason, cost_weight=FUNCTION, relax=""),
        eltwise("dnnl.gelu_erf", virtual_reason, cost_weight=FUNCTION, relax="nn.gelu"),
        eltwise("dnnl.gelu_tanh", virtual_reason, cost_weight=FUNCTION, relax="nn.gelu_tanh"),
        eltwise("dnnl.hard_sigmoid", virtual_reason, relax=""),
        eltwise("dnnl.hard_swish", virtual_reason, relax=""),
        eltwise("dnnl.linear", virtual_reason, relax=""),
        eltwise("dnnl.mish", virtual_reason, cost_weight=FUNCTION, relax=""),
        eltwise("dnnl.pow", virtual_reason, cost_weight=FUNCTION, grows=True, relax="square"),
        OpSpec("dnnl.round", virtual_reason, relax="round"),
        eltwise("dnnl.rsqrt", virtual_reason, grows=True, relax=""),
        eltwise("dnnl.softplus", virtual_reason, cost_weight=FUNCTION, relax="nn.softplus"),
        eltwise("dnnl.swish", virtual_reason, cost_weight=FUNCTION, relax="nn.silu"),
        binary("nn.bias_add", axis_reason, relax=""),
        binary("add", **BINARY, patterns_int8=_POSTS_INT8),
        binary("subtract", **BINARY),
        binary("multiply", **BINARY),
        binary("divide", **DIVIDE),
        binary("maximum", **BINARY),
        binary("minimum", **BINARY),
        OpSpec("equal", **COMPARISON),
        OpSpec("not_equal", **COMPARISON),
        OpSpec("less", **COMPARISON),
        OpSpec("less_equal", **COMPARISON),
        OpSpec("greater", **COMPARISON),
        OpSpec("greater_equal", **COMPARISON),
        OpSpec("where", where_reason, cost_weight=0),
    ]
}
