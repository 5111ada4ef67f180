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
"""TVM's ONNX importer without its output: it prints each node that it cannot convert."""

from __future__ import annotations

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from .attributes import refuse


class _ConversionError(BaseException):
    """Carries the error of a converter past TVM's handler of exceptions, which prints."""


class QuietImporter(onnx_frontend.ONNXGraphImporter):
    """Imports a graph, and prints nothing. Subclasses override `_convert`."""

    def _convert(self, op_name, inputs, attrs, opset):
        """Convert a node to an expression."""
        return super()._convert_operator(op_name, inputs, attrs, opset)

    def _convert_operator(self, op_name, inputs, attrs, opset):
        try:
            result = self._convert(op_name, inputs, attrs, opset)
            count, wanted = _count(result), attrs["tvm_custom"]["num_outputs"]
            if count < wanted:
                refuse(op_name, attrs, f"more than {count} of {wanted} results")
            return result
        except Exception as error:
            raise _ConversionError(error) from None

    def _construct_nodes(self, graph):
        try:
            return super()._construct_nodes(graph)
        except _ConversionError as carrier:
            error = carrier.args[0]
        raise error


def _count(result) -> int:
    """Return the number of results that a converter returned."""
    if isinstance(result, relax.Tuple):
        return len(result)
    type_ = getattr(result, "ty", None)
    return len(type_.fields) if isinstance(type_, relax.TupleType) else 1
