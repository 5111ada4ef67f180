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
"""A node of ONNX, and the body that it is replaced by."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Optional

import numpy as np

from .protobuf import fixed_size

if TYPE_CHECKING:
    import onnx


class NodeInfo:
    """A node whose body is written.

    Parameters
    ----------
    node : onnx.NodeProto
        The node.
    types : Mapping[str, onnx.TypeProto]
        The types of values by name.
    opset : int
        The version of the standard ops.
    constants : Mapping[str, onnx.TensorProto]
        The weights by name.
    """

    def __init__(self, node, types, opset: int, constants):
        import onnx

        self._where = f"ONNX {node.op_type}, node {node.name or node.output[0]}"
        self.opset = opset
        self.attrs = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        self.names, self.outputs = [*node.input], len(node.output)
        self._types, self._constants = types, constants

    def require(self, condition, reason: str):
        """Raise the error of a node that cannot be imported, unless a condition holds."""
        if not condition:
            raise ValueError(f"{self._where}: {reason} cannot be imported")

    def require_neutral(self, neutral: dict[str, int]):
        """Raise the error of a node with an attribute that has another value than the given one."""
        for name, value in neutral.items():
            given = self.attrs.get(name, value)
            self.require(given == value, f"{name}={given}")

    def constant(self, number: int, name: str) -> np.ndarray:
        """Return an input that must be constant."""
        value = self.value(number)
        self.require(
            value is not None,
            f"{name} that is not constant (if it is an input of the model, pass its value in "
            "`constants`)",
        )
        assert value is not None
        return value

    def known(self, size: int | None, name: str) -> int:
        """Return a size that must be known."""
        self.require(size is not None, f"{name} of an open size (fix it with `shape`)")
        assert size is not None
        return size

    def has(self, number: int) -> bool:
        """Whether an input is given."""
        return number < len(self.names) and bool(self.names[number])

    def value(self, number: int) -> np.ndarray | None:
        """Return an input if it is constant."""
        import onnx

        tensor = self._constants.get(self.names[number]) if self.has(number) else None
        return None if tensor is None else onnx.numpy_helper.to_array(tensor)

    def shape(self, number: int) -> list[int | None]:
        """Return the sizes of an input, None for those that are open."""
        tensor = self._tensor(number)
        self.require(tensor is not None and tensor.HasField("shape"), "an input of unknown rank")
        return [fixed_size(dim) for dim in tensor.shape.dim]

    def dtype(self, number: int) -> np.dtype:
        """Return the type of an input."""
        import onnx

        self.require(self.has_type(number), "an input of unknown type")
        return onnx.helper.tensor_dtype_to_np_dtype(self._tensor(number).elem_type)

    def has_type(self, number: int) -> bool:
        """Whether the type of an input is known."""
        tensor = self._tensor(number)
        return tensor is not None and bool(tensor.elem_type)

    def _tensor(self, number):
        known = self._types.get(self.names[number]) if self.has(number) else None
        return None if known is None else known.tensor_type

    def text(self, name: str, default: str = "") -> str:
        """Return an attribute that is a string."""
        value = self.attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def reduced(self, op: str, value: str, axes: list[int], name: str, keepdims: int = 1) -> str:
        """Return the call of a reduction, with its axes as an attribute where the opset wants that.

        Parameters
        ----------
        op : str
            The op, such as "ReduceSum".
        value : str
            What it reads.
        axes : list[int]
            The axes.
        name : str
            The name of a constant that has them.
        keepdims : int
            Whether they are kept, with a size of 1.
        """
        if self.opset < (13 if op == "ReduceSum" else 18):
            return f"{op} <axes = {axes}, keepdims = {keepdims}> ({value})"
        return f"{op} <keepdims = {keepdims}> ({value}, {name})"

    def body(self, nodes: str, **constants) -> onnx.FunctionProto:
        """Return a body.

        Parameters
        ----------
        nodes : str
            Nodes in ONNX's text format. The inputs are x0, x1..., the outputs y0, y1...
        constants : np.ndarray
            What the nodes read, by name.
        """
        import onnx

        given = ", ".join(f"x{k}" for k in range(len(self.names)))
        results = ", ".join(f"y{k}" for k in range(self.outputs))
        head = f'<domain: "expanded", opset_import: ["": {self.opset}]>'
        function = onnx.parser.parse_function(f"{head} f ({given}) => ({results}) {{ {nodes} }}")
        for name, value in constants.items():
            tensor = onnx.numpy_helper.from_array(np.asarray(value), name)
            function.node.insert(0, onnx.helper.make_node("Constant", [], [name], value=tensor))
        return function


#: Returns the body of a node, None for a node that stays.
Decomposition = Callable[[NodeInfo], Optional["onnx.FunctionProto"]]
