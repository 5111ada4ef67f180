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
"""Refuses ONNX models with tensors of types that TVM does not compile, before they are imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_SUPPORTED = (
    # Nor is something known about an undefined one.
    "UNDEFINED",
    *("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
    *("FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE"),
)


def unsupported_type(graph: onnx.GraphProto, readable: tuple[str, ...] = ()) -> str | None:
    """Return the message about a tensor of a type that TVM does not compile for a CPU.

    Parameters
    ----------
    graph : onnx.GraphProto
        A prepared graph; `value_info` has the types of its values.
    readable : tuple[str, ...]
        Further types that nodes may read, and not write.

    Returns
    -------
    message : str | None
        With the name of the node; None if there is no such tensor.
    """
    import onnx

    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for info in (*graph.input, *graph.value_info, *graph.output):
        types[info.name] = info.type.tensor_type.elem_type
    kinds = {name: onnx.TensorProto.DataType.Name(kind) for name, kind in types.items()}
    others = {name: kind for name, kind in kinds.items() if kind not in _SUPPORTED}
    if not others:
        return None
    for node in graph.node:
        for name in (*node.input, *node.output):
            is_read = name in node.input and others.get(name) in readable
            if name in others and not is_read:
                return (
                    f"ONNX {node.op_type}, node {node.name or node.output[0]}: {name} is a tensor "
                    f"of the type {others[name]}, which TVM does not support"
                )
    return None
