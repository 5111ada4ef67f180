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
"""Evaluates graphs and ops in numpy by the definitions of the rows, without a TVM.

They are the reference of the tests and of rewrites, and fold constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Union

import numpy as np

from ..ir.dim import substituted, symbol_of
from ..ir.graph import Graph
from ..ir.node import CALL, CONSTANT, FIELD, INPUT, TUPLE, Node
from ..ir.numpy_types import Array, UndefinedResult, rounded
from ..ir.op import has_row, infer
from ..ir.op_view import Tensor
from .others import OTHERS
from .schema import Definition
from .table import TABLE

# The type of a result: a tuple for an op that returns one.
ResultType = Union[Tensor, tuple[Tensor, ...]]

# The value of a node: a list for a tuple.
Result = Union[np.ndarray, list[Any]]


def evaluate(
    graph: Graph, inputs: Mapping[Node, np.ndarray] | Sequence[np.ndarray]
) -> list[Result]:
    """Compute what a function returns: the values of the operands of the last node.

    Each call is computed in float64 and rounded once to its type.

    Parameters
    ----------
    graph : Graph
        The function. Nodes that the last one does not need are not evaluated.
    inputs : Mapping[Node, numpy.ndarray] | Sequence[numpy.ndarray]
        The values of the inputs, by node or in the order of the nodes. Those of open dimensions may
        have any size that fits.

    Returns
    -------
    values : list
        One for each operand of the last node: an array, or a list for a tuple.

    Raises
    ------
    ValueError
        A node that is needed is native, or has no definition, or an input has no value or another
        shape; the message names it.
    """
    if not isinstance(inputs, Mapping):
        nodes = [node for node in graph.nodes if node.kind == INPUT]
        if len(nodes) != len(inputs):
            raise ValueError(f"{len(inputs)} values for {len(nodes)} inputs")
        inputs = dict(zip(nodes, inputs))
    sizes = sizes_of(inputs)
    values: dict[Node, Result] = {}
    for node in _needed(graph):
        values[node] = value_of(node, values, inputs, sizes)
    return [values[operand] for operand in graph.nodes[-1].operands]


def constant_value(node: Node) -> Result | None:
    """Return the value of a constant, or of a node whose operands are constants.

    Parameters
    ----------
    node : Node
        The node; one of its operands may be a tuple of constants. The field of a tuple has a value
        if the op that computes the tuple has.

    Returns
    -------
    value : numpy.ndarray | list[numpy.ndarray] | None
        None if an operand is not constant, if the op has no numpy definition, or if that gives no
        value for these operands.
    """
    if node.kind == CONSTANT:
        return node.value
    if node.kind not in (FIELD, TUPLE) and not is_defined(node):
        return None
    values: dict[Node, Result] = {}
    for operand in node.operands:
        is_inner = node.kind == FIELD or operand.kind in (CONSTANT, TUPLE)
        value = constant_value(operand) if is_inner else None
        if value is None:
            return None
        values[operand] = value
    try:
        return value_of(node, values, {}, {})
    except UndefinedResult:
        return None


# Ops of an IR with the name of one of the table and other attributes.
_OTHERS = ("relax.layout_transform",)


def is_defined(node: Node) -> bool:
    """Whether a node is the call of an op with a numpy definition."""
    return node.kind == CALL and node.name not in _OTHERS and has_definition(_name(node))


def _name(node: Node) -> str:
    """Return the name of an op, also of one that has a row and was not read as the row has it."""
    return node.name.removeprefix("relax.")


def _needed(graph: Graph) -> list[Node]:
    """Return what the last node is computed from, operands first."""
    needed, order = set(graph.nodes[-1].operands), []
    for node in reversed(graph.nodes[:-1]):
        if node in needed:
            needed.update(node.operands)
            order.append(node)
    return order[::-1]


def sizes_of(inputs: Mapping[Node, np.ndarray]) -> dict[object, int]:
    """Return the sizes that symbols stand for, given the values of the inputs."""
    sizes: dict[object, int] = {}
    for node, value in inputs.items():
        for dim, size in zip(node.tensor.dims, np.shape(value)):
            symbol = symbol_of(dim)
            if symbol is not None:
                sizes.setdefault(symbol.key, size)
    return sizes


def value_of(
    node: Node,
    values: Mapping[Node, Result],
    inputs: Mapping[Node, np.ndarray],
    sizes: Mapping[object, int],
) -> Result:
    """Compute one node; the errors are those of `evaluate`.

    Parameters
    ----------
    node : Node
        The node.
    values : Mapping[Node, numpy.ndarray | list]
        The values of its operands.
    inputs : Mapping[Node, numpy.ndarray]
        The values of the inputs.
    sizes : Mapping
        What `sizes_of` tells of these.
    """
    if node.kind == CONSTANT:
        return node.value
    if node.kind == INPUT:
        return _input(node, inputs, sizes)
    operands = [values[operand] for operand in node.operands]
    if node.kind == TUPLE:
        return operands
    if node.kind == FIELD:
        return operands[0][node.attrs.index]
    if not is_defined(node):
        raise ValueError(f"{node}: a {node.kind} node that has no numpy definition")
    try:
        return evaluate_op(_name(node), node.attrs, _known(node.type, sizes), operands)
    except UndefinedResult as error:
        raise UndefinedResult(f"{node}: {error}") from error


def _input(node: Node, inputs, sizes) -> np.ndarray:
    if node not in inputs:
        raise ValueError(f"{node}: no value")
    value, wanted = np.asarray(inputs[node]), _known(node.type, sizes).shape
    is_same = len(wanted) == value.ndim and all(
        size in (None, given) for size, given in zip(wanted, value.shape)
    )
    if not is_same:
        raise ValueError(f"{node}: a value of the shape {value.shape} for {node.tensor.dims}")
    if str(value.dtype) != node.tensor.dtype:
        raise ValueError(f"{node}: a value of {value.dtype} for {node.tensor.dtype}")
    return value


def _known(type_, sizes: Mapping[object, int]):
    """Return the type of a result with numbers for the symbols that are known."""
    if isinstance(type_, tuple):
        return tuple(_known(field, sizes) for field in type_)
    return Tensor(tuple(substituted(dim, sizes) for dim in type_.dims), type_.dtype)


def define(name: str) -> Definition:
    """Return the definition of an op.

    Parameters
    ----------
    name : str
        The op in the table, or another one that has a definition.

    Returns
    -------
    definition : Callable
        ``definition(attrs, result_type, *values)`` computes the result, in the type that numpy
        computes in; `evaluate_op` rounds it.

    Raises
    ------
    KeyError
        The op has no definition.
    """
    row = TABLE.get(name) or OTHERS[name]
    return lambda attrs, *others: row.definition(row.attributes(attrs), *others)


def has_definition(name: str | None) -> bool:
    """Whether `define` knows an op."""
    return name in TABLE or name in OTHERS


def evaluate_op(
    name: str,
    attrs: SimpleNamespace,
    result_type: ResultType,
    values: Sequence[Array | Sequence[Array]],
    definition: Definition | None = None,
) -> Array | list[Array]:
    """Compute an op in float64, integers as they are, and round once to the type of the result.

    Parameters
    ----------
    name : str
        The op.
    attrs : SimpleNamespace
        The attributes; those that have a default may be missing.
    result_type : Tensor | tuple[Tensor, ...]
        The type of the result. Open dimensions are inferred from the values.
    values : Sequence
        The operands, each an array, or a list of arrays for a tuple.
    definition : Callable | None
        That of an op of which `define` has none.

    Returns
    -------
    result : numpy.ndarray | list[numpy.ndarray]
        A list for an op that returns a tuple.

    Raises
    ------
    KeyError
        The op has no definition.
    UndefinedResult
        The op has no result for these values, or the definition does not cover its attributes.
    """
    definition = definition or define(name)
    result_type = _static(name, attrs, result_type, values)
    with np.errstate(all="ignore"):
        result = definition(attrs, result_type, *map(_widened, values))
        if not isinstance(result_type, tuple):
            return _as_type(name, result, result_type)
        return [_as_type(name, *pair) for pair in zip(result, result_type, strict=True)]


def _static(name, attrs, result_type, values) -> ResultType:
    """Return the type of a result without open dimensions, if those of the operands tell them."""
    types = result_type if isinstance(result_type, tuple) else (result_type,)
    if all(None not in type_.shape for type_ in types) or not has_row(name):
        return result_type
    return infer(name, [_type_of(value) for value in values], attrs)


def _type_of(value):
    if isinstance(value, (list, tuple)):
        return tuple(map(_type_of, value))
    return Tensor(value.shape, str(value.dtype), value)


def _widened(value):
    if isinstance(value, (list, tuple)):
        return [_widened(field) for field in value]
    value = np.asarray(value)
    return value if value.dtype.kind in "iub" else value.astype("float64")


def _as_type(name: str, value: Array, type_: Tensor) -> Array:
    value = rounded(np.asarray(value), type_.dtype)
    if any(size not in (None, got) for size, got in zip(type_.shape, value.shape)) or len(
        type_.shape
    ) != len(value.shape):
        raise UndefinedResult(f"{name} gives the shape {value.shape}, not {type_.shape}")
    return value
