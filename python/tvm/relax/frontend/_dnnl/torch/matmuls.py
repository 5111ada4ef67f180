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
"""Converters of matmuls: TVM's return float32, whatever the operands are."""

from __future__ import annotations

from tvm import relax

from .graphs import argument


def _matmul(node, importer):
    x, y = (importer.env[each] for each in node.args[:2])
    return importer.block_builder.emit(relax.op.matmul(x, y))


def _add_matmul(node, importer):
    emit = importer.block_builder.emit
    bias, x, y = (importer.env[each] for each in node.args[:3])
    alpha, beta = argument(node, "alpha"), argument(node, "beta")
    dtype = x.ty.dtype.dtype
    result = emit(relax.op.matmul(x, y))
    if alpha != 1:
        result = emit(relax.op.multiply(result, relax.const(alpha, dtype)))
    if beta == 0:
        return result
    if beta != 1:
        bias = emit(relax.op.multiply(bias, relax.const(beta, dtype)))
    return emit(relax.op.add(result, bias))


CONVERTERS = {
    "mm.default": _matmul,
    "bmm.default": _matmul,
    "addmm.default": _add_matmul,
    "baddbmm.default": _add_matmul,
}
