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
"""Creates the nodes of a decomposition."""

from __future__ import annotations

import numpy as np

from .. import cpu
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.op_view import Tensor, tensor_of
from ..ops.reshape import codes_by_groups, codes_by_position
from ..ops.tensors import VIEWED


class UnsupportedOp(Exception):
    """An op that cannot be decomposed; the message is the reason for the report."""


class Maker:
    """Creates the nodes that replace an op.

    Parameters
    ----------
    graph : Graph
        The graph.
    node : Node
        The node.
    """

    def __init__(self, graph: Graph, node: Node):
        self.graph, self.node = graph, node

    def __call__(self, op: str, *operands: Node, **attrs) -> Node:
        return self.graph.call(op, operands, self.node, **attrs)

    def scalar(self, value: float, dtype: str) -> Node:
        """Create a scalar constant."""
        return self.graph.constant(np.array(value), dtype)

    def transpose(self, data: Node, axes: list[int]) -> Node:
        """Create a transpose."""
        return self("transpose", data, axes=axes)

    def reshape(self, data: Node, dims) -> Node:
        """Create a reshape; dimensions may be open."""
        source = data.tensor.dims
        codes = codes_by_position(source, dims)
        if codes is None:
            codes = codes_by_groups(source, dims)
        if codes is None:
            raise UnsupportedOp(f"more than one open dimension of {list(dims)} is computed")
        type_ = Tensor(tuple(dims), data.tensor.dtype)
        return self.graph.call("reshape", [data], self.node, type_, newshape=codes, allowzero=False)

    def squeeze(self, data: Node, axes: list[int]) -> Node:
        """Create a squeeze."""
        new = self("squeeze", data, axis=axes)
        is_by_position = codes_by_position(data.tensor.dims, new.tensor.dims) is not None
        return self.reshape(data, new.tensor.dims) if is_by_position else new

    def expand_dims(self, data: Node, axis: int) -> Node:
        """Create an expand_dims."""
        new = self("expand_dims", data, axis=axis, num_newaxis=1)
        is_by_position = codes_by_position(data.tensor.dims, new.tensor.dims) is not None
        return self.reshape(data, new.tensor.dims) if is_by_position else new


def check_floats(node: Node, name: str = "data") -> str:
    """Return the type of the data if oneDNN computes with it."""
    dtype = tensor_of(node.args[0]).dtype
    if not cpu.computes(dtype):
        raise UnsupportedOp(f"{name} is {dtype}, which oneDNN does not support on this CPU")
    return dtype


def check_moved(node: Node) -> None:
    """Raise UnsupportedOp for data of a type that oneDNN cannot copy."""
    dtype = tensor_of(node.args[0]).dtype
    if dtype not in VIEWED or cpu.lacks(dtype):
        raise UnsupportedOp(f"data is {dtype}")
