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

from dataclasses import replace

from ..ir.op import register
from .attention import ATTRS as ATTENTION
from .attention import attention_flops, attention_reason
from .attrs import DType, Float, Int
from .binary import BINARY, COMPARISON, DIVIDE
from .conv import CONV, CONV_TRANSPOSE, conv_attributes, transposed_conv_attributes
from .copy import BROADCAST_TO, TAKE, broadcast_to_reason, take_reason, where_reason
from .eltwise import (
    CLIP,
    cast_reason,
    eltwise_reason,
    float32_reason,
    leaky_relu_reason,
    prelu_reason,
    virtual_reason,
)
from .infer import INFERENCES
from .matmul import BATCH_MATMUL, BLOCK_DENSE, DENSE, DYNAMIC_DENSE, MATMUL
from .pool import (
    ADAPTIVE,
    MAX_ADAPTIVE,
    MAX_POOL,
    POOL,
    adaptive_attributes,
    average_attributes,
    pool_attributes,
)
from .quantize import ATTRS as QUANTIZATION
from .quantize import dequantize_reason, quantize_reason
from .recurrent import GRU, LSTM, RNN, recurrent
from .reduce import (
    CHANNEL_NORM,
    GROUP_NORM,
    L2_NORMALIZE,
    LAYER_NORM,
    LRN,
    REDUCE,
    RMS_NORM,
    SOFTMAX,
    axis_reason,
    batch_norm_reason,
    group_norm_reason,
    l2_normalize_reason,
    lrn_reason,
    rms_norm_reason,
)
from .resize import RESIZE, UPSAMPLING, UPSAMPLING3D, resize_attributes
from .schema import (
    FUNCTION,
    OpSchema,
    always,
    binary,
    broadcast_type,
    copy,
    eltwise,
    function,
    light,
    no_flops,
    root,
    same_type,
    view,
)
from .tensors import data_elements
from .view import (
    CONCATENATE,
    EXPAND_DIMS,
    LAYOUT_TRANSFORM,
    NEWSHAPE,
    PAD,
    RESHAPE,
    SPLIT,
    SQUEEZE,
    STRIDED_SLICE,
    TRANSPOSE,
    concat_reason,
    layout_transform_reason,
    pad_reason,
    strided_slice_reason,
)

ALPHA = Float("alpha")
ALPHA_BETA = ALPHA, Float("beta")

# What quantizers write behind an op. MergeComposite looks for each pattern in the whole function,
# so there are no others.
_POSTS_INT8 = "relu_quantize clip_quantize"
_RESIDUAL_INT8 = (
    f"{_POSTS_INT8} quantize_relu_quantize quantize_clip_quantize sum_quantize sum_relu_quantize "
    "quantize_sum quantize_sum_quantize quantize_sum_relu_quantize quantize_sum_clip_quantize"
)

TABLE: dict[str, OpSchema] = {
    row.name: replace(row, infer=INFERENCES.get(row.name, row.infer))
    for row in [
        root("nn.conv1d", **CONV, attrs=conv_attributes(1)),
        root(
            "nn.conv2d",
            **CONV,
            attrs=conv_attributes(2),
            patterns="bias_sum_relu bias_sum bias_relu bias bias_sigmoid relu sigmoid",
            patterns_int8=_RESIDUAL_INT8,
        ),
        root("nn.conv3d", **CONV, attrs=conv_attributes(3)),
        root("nn.conv1d_transpose", **CONV_TRANSPOSE, attrs=transposed_conv_attributes(1)),
        root("nn.conv2d_transpose", **CONV_TRANSPOSE, attrs=transposed_conv_attributes(2)),
        root("nn.conv3d_transpose", **CONV_TRANSPOSE, attrs=transposed_conv_attributes(3)),
        root(
            "nn.dense",
            **DENSE,
            relax="matmul",
            patterns="bias_relu bias relu",
            patterns_int8=_RESIDUAL_INT8,
        ),
        root("nn.matmul", **MATMUL, relax="matmul"),
        root("nn.batch_matmul", **BATCH_MATMUL, relax="matmul"),
        *(OpSchema(name, **recurrent(name)) for name in (LSTM, GRU, RNN)),
        OpSchema(
            "dnnl.attention",
            attention_reason,
            attrs=ATTENTION,
            heavy=True,
            flops=attention_flops,
            typed_operands=3,
            relax="",
        ),
        OpSchema("dnnl.block_quantized_dense", **BLOCK_DENSE, heavy=True, relax=""),
        OpSchema("dnnl.dynamic_fake_quantize", float32_reason, relax=""),
        OpSchema("dnnl.dynamic_quantize_scale", float32_reason, flops=no_flops, relax=""),
        OpSchema("dnnl.dynamic_quantized_dense", **DYNAMIC_DENSE, heavy=True, relax=""),
        light("nn.max_pool1d", **MAX_POOL, attrs=pool_attributes(1), padding="lowest"),
        light("nn.max_pool2d", **MAX_POOL, attrs=pool_attributes(2), padding="lowest"),
        light("nn.max_pool3d", **MAX_POOL, attrs=pool_attributes(3), padding="lowest"),
        light("nn.avg_pool1d", **POOL, attrs=average_attributes(1), padding="average"),
        light("nn.avg_pool2d", **POOL, attrs=average_attributes(2), padding="average"),
        light("nn.avg_pool3d", **POOL, attrs=average_attributes(3), padding="average"),
        light(
            "nn.global_max_pool2d", **MAX_ADAPTIVE, attrs=adaptive_attributes(2)[1:], relax="max"
        ),
        light("nn.global_avg_pool2d", **ADAPTIVE, attrs=adaptive_attributes(2)[1:], relax="mean"),
        light("nn.adaptive_max_pool1d", **MAX_ADAPTIVE, attrs=adaptive_attributes(1), relax=""),
        light("nn.adaptive_max_pool2d", **MAX_ADAPTIVE, attrs=adaptive_attributes(2), relax=""),
        light("nn.adaptive_max_pool3d", **MAX_ADAPTIVE, attrs=adaptive_attributes(3), relax=""),
        light("nn.adaptive_avg_pool1d", **ADAPTIVE, attrs=adaptive_attributes(1)),
        light("nn.adaptive_avg_pool2d", **ADAPTIVE, attrs=adaptive_attributes(2)),
        light("nn.adaptive_avg_pool3d", **ADAPTIVE, attrs=adaptive_attributes(3)),
        OpSchema(
            "nn.batch_norm",
            batch_norm_reason,
            attrs=CHANNEL_NORM,
            fuses=("nn.relu",),
            flops=data_elements,
        ),
        function("nn.group_norm", group_norm_reason, attrs=GROUP_NORM),
        function("nn.instance_norm", axis_reason, attrs=CHANNEL_NORM),
        function("nn.l2_normalize", l2_normalize_reason, attrs=L2_NORMALIZE, relax=""),
        function("nn.layer_norm", axis_reason, attrs=LAYER_NORM, normalizes=True),
        function("nn.lrn", lrn_reason, attrs=LRN, relax=""),
        function(
            "dnnl.rms_norm", rms_norm_reason, attrs=RMS_NORM, relax="nn.rms_norm", normalizes=True
        ),
        function(
            "dnnl.masked_softmax",
            virtual_reason,
            attrs=SOFTMAX,
            relax="",
            is_not_negative=always,
        ),
        function(
            "dnnl.nan_safe_softmax",
            virtual_reason,
            attrs=SOFTMAX,
            relax="",
            is_not_negative=always,
        ),
        function("nn.fast_softmax", axis_reason, attrs=SOFTMAX, relax=""),
        function("nn.log_softmax", axis_reason, attrs=SOFTMAX),
        function("nn.softmax", axis_reason, attrs=SOFTMAX, is_not_negative=always),
        light("max", **REDUCE),
        light("mean", **REDUCE),
        light("min", **REDUCE),
        light("prod", **REDUCE, grows=True),
        light("sum", **REDUCE, grows=True),
        light("image.resize1d", **RESIZE, attrs=resize_attributes(1), relax=""),
        light("image.resize2d", **RESIZE, attrs=resize_attributes(2)),
        light("image.resize3d", **RESIZE, attrs=resize_attributes(3)),
        light("nn.upsampling", **RESIZE, attrs=UPSAMPLING, relax=""),
        light("nn.upsampling3d", **RESIZE, attrs=UPSAMPLING3D, relax=""),
        OpSchema("cast", cast_reason, attrs=(DType("dtype"),), flops=no_flops, relax="astype"),
        OpSchema(
            "qnn.quantize", quantize_reason, attrs=QUANTIZATION, post="quantize", relax="quantize"
        ),
        OpSchema(
            "qnn.dequantize",
            dequantize_reason,
            attrs=QUANTIZATION,
            reads_int8="data",
            fuses=("quantize",),
            relax="dequantize",
        ),
        copy("concatenate", concat_reason, attrs=CONCATENATE, relax="concat"),
        copy("stack", concat_reason, attrs=CONCATENATE),
        copy("nn.pad", pad_reason, attrs=PAD),
        copy("broadcast_to", broadcast_to_reason, attrs=BROADCAST_TO),
        copy("take", take_reason, attrs=TAKE, relax=""),
        view("split", **SPLIT),
        view("strided_slice", strided_slice_reason, attrs=STRIDED_SLICE),
        view("layout_transform", layout_transform_reason, attrs=LAYOUT_TRANSFORM, relax=""),
        view("transpose", **TRANSPOSE, relax="permute_dims"),
        view("contrib_reverse_reshape", **RESHAPE, attrs=NEWSHAPE, relax=""),
        view("expand_dims", **RESHAPE, attrs=EXPAND_DIMS, relax="expand_dims reshape"),
        view("nn.batch_flatten", **RESHAPE, relax=""),
        view(
            "reshape",
            **RESHAPE,
            attrs=NEWSHAPE,
            relax="reshape expand_dims squeeze flatten nn.batch_flatten",
        ),
        view("squeeze", **RESHAPE, attrs=SQUEEZE, relax="squeeze reshape"),
        eltwise("nn.relu", eltwise_reason, is_not_negative=always),
        eltwise("nn.leaky_relu", leaky_relu_reason, attrs=(ALPHA,), relax="nn.leakyrelu nn.prelu"),
        OpSchema("nn.prelu", prelu_reason, attrs=(Int("axis", 1),), post="prelu"),
        eltwise("abs", eltwise_reason, is_not_negative=always),
        eltwise("clip", **CLIP, relax="clip nn.relu6"),
        eltwise("exp", eltwise_reason, cost_weight=FUNCTION, grows=True, is_not_negative=always),
        eltwise("log", eltwise_reason, cost_weight=FUNCTION),
        eltwise("negative", eltwise_reason),
        eltwise("rsqrt", eltwise_reason, grows=True),
        eltwise("sigmoid", eltwise_reason, cost_weight=FUNCTION, is_not_negative=always),
        eltwise("sqrt", eltwise_reason, is_not_negative=always),
        eltwise("tanh", eltwise_reason, cost_weight=FUNCTION),
        OpSchema("ceil", eltwise_reason),
        OpSchema("cos", eltwise_reason, cost_weight=FUNCTION),
        OpSchema("floor", eltwise_reason),
        OpSchema("sign", eltwise_reason),
        OpSchema("sin", eltwise_reason, cost_weight=FUNCTION),
        OpSchema("trunc", eltwise_reason),
        eltwise("dnnl.elu", virtual_reason, attrs=(ALPHA,), cost_weight=FUNCTION, relax=""),
        eltwise("dnnl.gelu_erf", virtual_reason, cost_weight=FUNCTION, relax="nn.gelu"),
        eltwise("dnnl.gelu_tanh", virtual_reason, cost_weight=FUNCTION, relax="nn.gelu_tanh"),
        eltwise("dnnl.hard_sigmoid", virtual_reason, attrs=ALPHA_BETA, relax=""),
        eltwise("dnnl.hard_swish", virtual_reason, attrs=ALPHA_BETA, relax=""),
        eltwise("dnnl.linear", virtual_reason, attrs=ALPHA_BETA, relax=""),
        eltwise("dnnl.mish", virtual_reason, cost_weight=FUNCTION, relax=""),
        eltwise(
            "dnnl.pow",
            virtual_reason,
            attrs=ALPHA_BETA,
            cost_weight=FUNCTION,
            grows=True,
            relax="square",
        ),
        OpSchema("dnnl.round", virtual_reason, relax="round"),
        eltwise("dnnl.rsqrt", virtual_reason, grows=True, relax=""),
        eltwise("dnnl.softplus", virtual_reason, cost_weight=FUNCTION, relax="nn.softplus"),
        eltwise(
            "dnnl.swish", virtual_reason, attrs=(ALPHA,), cost_weight=FUNCTION, relax="nn.silu"
        ),
        binary("nn.bias_add", axis_reason, attrs=(Int("axis", 1),), infer=same_type, relax=""),
        binary("add", **BINARY, patterns_int8=_POSTS_INT8),
        binary("subtract", **BINARY),
        binary("multiply", **BINARY),
        binary("divide", **DIVIDE),
        binary("maximum", **BINARY),
        binary("minimum", **BINARY),
        OpSchema("equal", **COMPARISON),
        OpSchema("not_equal", **COMPARISON),
        OpSchema("less", **COMPARISON),
        OpSchema("less_equal", **COMPARISON),
        OpSchema("greater", **COMPARISON),
        OpSchema("greater_equal", **COMPARISON),
        OpSchema("where", where_reason, cost_weight=0),
    ]
}

register(TABLE)

ELTWISE = [name for name, row in TABLE.items() if row.post == "eltwise"]
# Ops whose result is of the shape and type of the first operand.
UNARY = [name for name, row in TABLE.items() if row.infer is same_type]
BINARY = [name for name, row in TABLE.items() if row.infer is broadcast_type]
COMPARISONS = [name for name, row in TABLE.items() if row.reason is COMPARISON["reason"]]
