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
"""The description of a kernel: a root op, what is fused to it, and how it reads its operands."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..ir.graph import Graph
from ..ir.match import is_field, only_user
from ..ir.node import CALL, FIELD, TUPLE, Node
from ..ir.op_view import tensor_of
from ..ops.quantize import DEQUANTIZE, QUANTIZE
from ..ops.rules import Rules
from ..ops.tensors import COMPILER
from ..rewrites.fuse_formulas import fuse_formulas
from .fuse import Fused
from .units import Units


class PostOp(NamedTuple):
    """An op that a kernel applies to the result so far.

    Parameters
    ----------
    name : str
        The op.
    attrs : Mapping[str, Any]
        Its attributes.
    operand : int | None
        Which input of the kernel the other operand is; None for a unary op.
    operand_first : bool
        Whether that operand is the first one, as in `operand - result`.
    is_bias : bool
        Whether it adds the bias argument of the primitive.
    parameters : tuple[int, int] | None
        For a quantize or dequantize: which inputs are its scale and its zero point.
    """

    name: str
    attrs: Mapping[str, Any]
    operand: int | None = None
    operand_first: bool = False
    is_bias: bool = False
    parameters: tuple[int, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the object that describes it in the JSON graph."""
        own = {"op": self.name, **self.attrs, **_named(self.parameters)}
        if self.operand is not None:
            own["operand"] = self.operand
        if self.operand_first:
            own["operand_first"] = True
        if self.is_bias:
            own["is_bias"] = True
        return own


class Dequantized(NamedTuple):
    """An input in 8 bits that the kernel reads as scale * (input - zero_point).

    Parameters
    ----------
    attrs : Mapping[str, Any]
        The attributes of the dequantize.
    parameters : tuple[int, int]
        Which inputs are the scale and the zero point.
    """

    attrs: Mapping[str, Any]
    parameters: tuple[int, int]


class Kernel(NamedTuple):
    """A kernel, as both TVMs write it to the JSON graph.

    Parameters
    ----------
    name : str
        The composite, or the op if nothing is fused to it.
    root : str
        The op that the others are fused to.
    attrs : Mapping[str, Any]
        The attributes of the root.
    inputs : list[Node]
        The operands of the root, those of the post-ops, then scales and zero points.
    post_ops : list[PostOp]
        In the order in which they are applied.
    dequantized : dict[int, Dequantized]
        By input.
    """

    name: str
    root: str
    attrs: Mapping[str, Any]
    inputs: list[Node]
    post_ops: list[PostOp]
    dequantized: dict[int, Dequantized]

    def node(self, inputs: Sequence[Any]) -> KernelNode:
        """Return its node in the JSON graph, whose inputs are given in an IR."""
        attrs = dict(self.attrs)
        if self.name != self.root:
            attrs["root_op"] = self.root
        if self.post_ops:
            attrs["post_ops"] = [post_op.to_dict() for post_op in self.post_ops]
        if self.dequantized:
            attrs["dequantize"] = [
                {"input": i, **each.attrs, **_named(each.parameters)}
                for i, each in self.dequantized.items()
            ]
        return KernelNode(self.name, _json_value(attrs), list(inputs))


class KernelNode(NamedTuple):
    """A node of the JSON graph, but for the numbers of its inputs and the types of its results.

    Parameters
    ----------
    name : str
        The op, or the composite.
    attrs : dict[str, Any]
        By name: values of JSON.
    inputs : list[Any]
        What it reads: expressions of an IR.
    """

    name: str
    attrs: dict[str, Any]
    inputs: list[Any]

    def to_json(self) -> str:
        """Return all but the inputs as JSON text."""
        return json.dumps({"name": self.name, "attrs": self.attrs})

    @classmethod
    def from_json(cls, text: str, inputs: Sequence[Any]) -> KernelNode:
        """Return the node that `to_json` wrote."""
        return cls(**json.loads(text), inputs=list(inputs))


def whole_kernel(graph: Graph, rules: Rules, name: str) -> tuple[Units, Node]:
    """Return the one kernel that computes a function, such as a composite of someone's pattern.

    Parameters
    ----------
    graph : Graph
        The function; its last node reads the result.
    rules : Rules
        The rules.
    name : str
        What the error calls the function.

    Returns
    -------
    units, node : tuple[Units, Node]
        What is fused, and the node of the kernel, for `kernel_of`.

    Raises
    ------
    ValueError
        If oneDNN does not compute it by one kernel; it tells why.
    """
    fuse_formulas(graph, rules)
    graph.sort()
    units = Units(graph, rules)
    is_supported = dict(zip(graph.nodes, map(units.is_supported, graph.nodes)))
    (last,) = graph.nodes[-1].operands
    # Of an op with several results, the kernel computes the first.
    last = last.operands[0] if is_field(last, 0) else last
    inside = units.members(last) if is_supported[last] else ()
    others = [node for node in graph.nodes[:-1] if node.kind == CALL and node not in inside]
    if inside and not others:
        return units, last
    fused = _as_written(graph, last, rules)
    if fused is not None:
        units.fused = {last: fused}
        return units, last
    refused = {node: node.unsupported or rules.refusal(node) for node in others}
    why = [f"{node.name}: {reason}" for node, reason in refused.items() if reason]
    why += [f"{node.name}: not fused with the other ops" for node in others] or ["no op"]
    raise ValueError(
        f"{name} is not a oneDNN kernel: {why[0]}; partition with partition_for_dnnl or compile, "
        "which leave such ops to TVM"
    )


def _as_written(graph: Graph, last: Node, rules: Rules) -> Fused | None:
    """Return a chain of ops that the partitioner would not fuse; None if it is not a chain.

    Where oneDNN has no code for what is fused, the runtime makes steps of their own.
    """
    chain = [node for node in graph.nodes[:-1] if node.kind in (CALL, FIELD)]
    chain = chain[: chain.index(last) + 1] if last in chain else []
    if not chain or any(only_user(one) is not other for one, other in zip(chain, chain[1:])):
        return None
    root, *others = chain
    for node in others:
        spec = rules.ops.get(node.name) if node.is_call else None
        is_post_op = spec is not None and (
            spec.reshapes or spec.post in ("eltwise", "binary", "prelu")
        )
        if not (is_post_op or is_field(node, 0)):
            return None
    calls = [node for node in chain if node.kind == CALL]
    if any(node.name not in rules.ops or rules.refusal(node) is not None for node in calls):
        return None
    fused = Fused(root, rules)
    fused.extend(others)
    return fused


def composite_name(kernel: str) -> str:
    """Return the name of a composite that is a kernel, perhaps of a single op."""
    return kernel if kernel.startswith(f"{COMPILER}.") else f"{COMPILER}.{kernel.split('.')[-1]}"


def kernel_of(units: Units, node: Node) -> Kernel:
    """Describe the kernel of a node: an op, or the last op of what is fused."""
    fused, chain = units.fused.get(node), units.chain(node)
    read_in_8_bits = set(fused.dequantized) if fused is not None else ()
    in_float32 = units.float32_operands(node)
    inputs: list[Node] = []
    dequantizes: dict[int, Node] = {}

    def add(operand: Node) -> int:
        position = len(inputs)
        if operand in read_in_8_bits:
            dequantizes[position] = operand
            operand = operand.operands[0]
        inputs.append(operand)
        return position

    def parameters(call: Node) -> tuple[int, int]:
        return add(call.operands[1]), add(call.operands[2])

    def post_op(call: Node, part: str | None) -> PostOp:
        attrs = dict(vars(call.attrs))
        if call.name == "nn.bias_add":
            # Counted from the end, which a reshape of the rows does not change.
            rank = len(tensor_of(call.type).dims)
            attrs["axis"] = attrs["axis"] % rank - rank
        others = [k for k, operand in enumerate(call.operands) if operand not in chain]
        if call.name in (QUANTIZE, DEQUANTIZE) or not others:
            return PostOp(call.name, attrs)
        (k,) = others
        operand = in_float32.get(call.operands[k], call.operands[k])
        return PostOp(call.name, attrs, add(operand), k == 0, part == "bias")

    # The first of several results is no op.
    root, *calls = (each for each in chain if each.kind != FIELD)
    for operand in root.operands:
        for tensor in operand.operands if operand.kind == TUPLE else [operand]:
            add(tensor)
    parts = dict(zip(chain, fused.parts)) if fused is not None else {}
    post_ops = [post_op(call, parts[call]) for call in calls]
    # Appended last so that the order of the other inputs does not change.
    dequantized = {
        position: Dequantized(vars(call.attrs), parameters(call))
        for position, call in list(dequantizes.items())
    }
    post_ops = [
        (
            each._replace(parameters=parameters(call))
            if call.name in (QUANTIZE, DEQUANTIZE)
            else each
        )
        for call, each in zip(calls, post_ops)
    ]
    name = root.name if fused is None else fused.name
    return Kernel(name, root.name, vars(root.attrs), inputs, post_ops, dequantized)


def _named(parameters: tuple[int, int] | None) -> dict[str, int]:
    return dict(zip(("scale", "zero_point"), parameters or ()))


def _json_value(value: Any) -> Any:
    """Return an attribute as JSON has it, in which infinities and NaN are strings."""
    if isinstance(value, dict):
        return {name: _json_value(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value
