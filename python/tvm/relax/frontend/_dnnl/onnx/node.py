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
"""An ONNX node that is converted."""

from __future__ import annotations

from tvm import relax

from ..attention_parts import Emitter
from .attributes import refuse


class Node(Emitter):
    """Emits the ops that an ONNX node is converted to, and reads shapes and attributes.

    Parameters
    ----------
    op : str
        The ONNX op.
    bb : relax.BlockBuilder
        Where ops are emitted.
    attr : dict
        The attributes, as the importer passes these.
    """

    def __init__(self, op: str, bb: relax.BlockBuilder, attr: dict):
        super().__init__(op, bb)
        self.attr = attr

    @property
    def num_outputs(self) -> int:
        """Outputs of the node, including unnamed ones before a named one."""
        return self.attr["tvm_custom"]["num_outputs"]

    def refuse(self, reason: str):
        """Raise the error of a node that cannot be imported."""
        refuse(self.op, self.attr, reason)

    def refuse_attrs(self, **neutral):
        """Refuse attributes with another value than the neutral one."""
        for name, value in neutral.items():
            if self.attr.get(name, value) != value:
                self.refuse(f"{name}={self.attr[name]}")

    def refuse_inputs(self, inputs, **positions: int):
        """Refuse inputs that are given."""
        for name, position in positions.items():
            if inputs[position] is not None:
                self.refuse(f"the input {name}")

    def outputs(self, *values):
        """Return as many outputs as the node has."""
        return values[0] if self.num_outputs == 1 else relax.Tuple(values[: self.num_outputs])
