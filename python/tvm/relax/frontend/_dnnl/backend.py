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
"""All that the importers use of the backend: reading Relax, sizes, and ops of the table."""

from tvm.contrib.onednn.compiled_model import bfloat16_array
from tvm.contrib.onednn.ir.dim import Dim, Size, divided, product, substituted, symbols_in
from tvm.contrib.onednn.ops.recurrent import GATES
from tvm.contrib.onednn.report.record import ATTR, Record
from tvm.contrib.onednn.verify.check import Step
from tvm.contrib.onednn.verify.compare import EPSILON, coarsest, rounded_at_random
from tvm_dnnl._dnnl.reader import constant_results
from tvm_dnnl._dnnl.reading import (
    Analyzer,
    Constant,
    UnsupportedOp,
    constant_of,
    dims,
    is_constant,
    is_same,
    number,
    sizes,
    value_of,
)
from tvm_dnnl._dnnl.recurrent_tir import call_layer
from tvm_dnnl._dnnl.tir_ops import named_op_attrs
from tvm_dnnl._dnnl.types import dim_from, size_from

__all__ = [
    "ATTR",
    "EPSILON",
    "GATES",
    "Analyzer",
    "Constant",
    "Dim",
    "Record",
    "Size",
    "Step",
    "UnsupportedOp",
    "bfloat16_array",
    "call_layer",
    "coarsest",
    "constant_of",
    "constant_results",
    "dim_from",
    "dims",
    "divided",
    "is_constant",
    "is_same",
    "named_op_attrs",
    "number",
    "product",
    "rounded_at_random",
    "size_from",
    "sizes",
    "substituted",
    "symbols_in",
    "value_of",
]
