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
"""The table of what oneDNN runs: the rows of all families."""

from __future__ import annotations

from ..ir.op import register
from . import (
    attention,
    binary,
    conv,
    copy,
    eltwise,
    experts,
    grid_sample,
    matmul,
    norm,
    pool,
    quantize,
    quantized_dense,
    recurrent,
    reduce,
    reshape,
    resize,
    softmax,
    view,
)
from .schema import OpSchema, broadcast_type, same_type

_FAMILIES = (
    *(conv, matmul, experts, recurrent, attention, quantized_dense, pool, norm, softmax),
    *(reduce, resize, grid_sample, quantize, copy, view, reshape, eltwise, binary),
)

TABLE: dict[str, OpSchema] = {row.name: row for family in _FAMILIES for row in family.ROWS}

register(TABLE)

ELTWISE = [name for name, row in TABLE.items() if row.post == "eltwise"]
# Ops whose result is of the shape and type of the first operand.
UNARY = [name for name, row in TABLE.items() if row.infer is same_type]
# Those that are known by their name alone.
PLAIN = [name for name in UNARY if not TABLE[name].attrs]
# Without those that several ops are read as.
BINARY = [name for name, row in TABLE.items() if row.infer is broadcast_type and row.relax_ops]
COMPARISONS = [row.name for row in binary.ROWS if row.reason is binary.comparison_reason]
