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
"""Names the replacements of functions that only TVM's own module for DNNL has."""

from __future__ import annotations

import dis
from types import FrameType

_PATTERNS = "the policy's rows say what is fused; `pattern_table()` has the patterns of them"
_CHECKS = "the policy's rules check each call; `offload_report(mod)` shows what they say"
_LAYOUTS = "nothing: oneDNN chooses the layouts when it prepares the model"
_READERS = "read the `relay.Call` itself"
_QNN = "`pattern_table()` has the patterns of what `legalize_qnn_for_dnnl(mod)` returns"
_LEGAL = (
    "`legalize_qnn_for_dnnl(mod)`, right before MergeComposite; `partition_for_dnnl` needs neither"
)
_PRUNE = "`partition_for_dnnl` does it, unless it is called with `prune=False`"
_NORM = "`partition_for_dnnl` recognizes layer normalizations that are written out"
_GELU = "`partition_for_dnnl` recognizes gelu and fuses it, with a reshape in between too"
_STRIDES = "`partition_for_dnnl` computes only what strided 1x1 convolutions read"

# By name. docs/coming_from_tvm.md has the same table.
REPLACED = {
    "_register_external_op_helper": "a row of the policy in `onednn/policy/table.py`",
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
    "legalize_group_conv": "nothing: grouped convolutions run as they are",
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
    """Return the error for a name that a module does not have.

    Parameters
    ----------
    module, name : str
        What was asked for.
    caller : FrameType
        The code that asked. Python makes an ImportError with a text of its own of an
        AttributeError, so that `from module import name` gets an ImportError of ours.
    """
    text = f"module {module!r} has no attribute {name!r}"
    if name not in REPLACED:
        return AttributeError(text)
    text += (
        f", which TVM's own module has: call `partition_for_dnnl(mod, params)` instead of its "
        f"passes. In place of {name!r}: {REPLACED[name]}"
    )
    is_import = caller.f_code.co_code[caller.f_lasti] == dis.opmap["IMPORT_FROM"]
    return ImportError(text, name=name) if is_import else AttributeError(text)
