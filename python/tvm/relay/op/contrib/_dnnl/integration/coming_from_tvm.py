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
"""Replacements for names that exist only in TVM's own `dnnl` module."""

from __future__ import annotations

import dis
from types import FrameType

_PATTERNS = "the rows in `onednn/ops/` define what is fused; `pattern_table()` returns the patterns"
_CHECKS = "the rules in `onednn/ops/` check each op; `offload_report(mod)` lists their reasons"
_LAYOUTS = "none needed: oneDNN chooses the layouts when the runtime prepares the model"
_READERS = "read it from the `relay.Call` directly"
_QNN = "`pattern_table()` has patterns for the modules that `legalize_qnn_for_dnnl(mod)` returns"
_LEGAL = (
    "`legalize_qnn_for_dnnl(mod)`, immediately before `MergeComposite`; "
    "`partition_for_dnnl` requires neither"
)
_PRUNE = "`partition_for_dnnl` prunes small partitions, unless `prune=False` is set"
_NORM = "`partition_for_dnnl` recognizes layer normalizations composed of elementary ops"
_GELU = "`partition_for_dnnl` recognizes GELU and fuses it, also across a reshape"
_STRIDES = "`partition_for_dnnl` skips spatial positions that strided 1x1 convolutions do not read"

# docs/coming_from_tvm.md contains the same table.
REPLACED = {
    "_register_external_op_helper": "a row in `onednn/ops/`",
    "append_eltwise_ops": _PATTERNS,
    "make_conv_pattern": _PATTERNS,
    "make_conv_bias_sum_relu_pattern": _PATTERNS,
    "make_dense_bias_sum_pattern": _PATTERNS,
    "make_dense_pattern": _PATTERNS,
    "make_dnnl_pattern": _PATTERNS,
    "make_sum_pattren_predicate": _CHECKS,
    "make_bias_add_pattren_predicate": _CHECKS,
    "add_checker": _CHECKS,
    "get_op_name": _READERS,
    "get_args": _READERS,
    "get_attrs": _READERS,
    "get_shape": _READERS,
    "get_dtype": _READERS,
    "get_optimal_layout_for_conv": _LAYOUTS,
    "get_optimal_layout_for_conv_transpose": _LAYOUTS,
    "tag2layout": _LAYOUTS,
    "alter_conv": _LAYOUTS,
    "alter_conv_transpose": _LAYOUTS,
    "legalize_pad_avg_pool": "`partition_for_dnnl` folds a pad into the pool where that is exact",
    "legalize_group_conv": "none needed: grouped convolutions are supported",
    "IsComputeIntensiveGraph": _PRUNE,
    "is_valid_subgraph": _PRUNE,
    "prune_dnnl_subgraphs": _PRUNE,
    "LayerNormRewrite": _NORM,
    "rewrite_layer_norm": _NORM,
    "DenseReshapeBiasGeluRewrite": _GELU,
    "rewrite_dense_bias_gelu_reshape_last": _GELU,
    "ResNetV1Rewrite": _STRIDES,
    "rewrite_resnetv1": _STRIDES,
    "make_qnn_conv2d_pattern": _QNN,
    "make_qnn_dense_pattern": _QNN,
    "LegalizeQnnOpForDnnl": _LEGAL,
}


def missing(module: str, name: str, caller: FrameType) -> Exception:
    """Return the exception for an attribute that a module does not have.

    Parameters
    ----------
    module, name : str
        The module and the missing attribute.
    caller : FrameType
        The frame that accessed it. For `from module import name`, Python replaces the message of
        an AttributeError, so an ImportError is returned instead.
    """
    text = f"module {module!r} has no attribute {name!r}"
    if name not in REPLACED:
        return AttributeError(text)
    text += (
        f", which is part of TVM's own dnnl module: call `partition_for_dnnl(mod, params)` instead "
        f"of its passes. Replacement for {name!r}: {REPLACED[name]}"
    )
    is_import = caller.f_code.co_code[caller.f_lasti] == dis.opmap["IMPORT_FROM"]
    return ImportError(text, name=name) if is_import else AttributeError(text)
