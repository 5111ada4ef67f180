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
"""What is wrong with an ONNX model that does not import: checks before, and the text of errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

#: The section of the documentation that has the remedies.
REMEDIES = "docs/import.md#if-a-model-does-not-import"

_NODE = re.compile(r"ONNX (\w+), node ([^\s:]+)")

# How TVM prints numbers, ops, shapes and constants, and what it stands for.
_PLAIN = (
    (re.compile(r"T\.int64\((-?\d+)\)"), r"\1"),
    (re.compile(r'ir\.Op\(span=.*?name="([\w.]+)".*?support_level=\d+\)'), r"\1"),
    (re.compile(r"R\.shape\((\[.*?\])\)"), r"\1"),
    (
        re.compile(r'metadata\["ir\.\w+"\]\[\d+\](\s*# Metadata omitted\. .*?to show it\.)?'),
        "a constant",
    ),
)


def check_model(model: onnx.ModelProto) -> None:
    """Raise an error for a model that is invalid, which an importer might read as another one.

    Parameters
    ----------
    model : onnx.ModelProto
        The model.

    Raises
    ------
    ValueError
        The model has a newer opset than the package `onnx`; a node reads a value that is not there,
        or has an attribute of another type than the standard has. The message names the node.
    """
    import onnx

    opset, newest = _opset(model), onnx.defs.onnx_opset_version()
    if opset > newest:
        raise ValueError(
            f"the model has opset {opset}, but the package onnx {onnx.__version__} knows opsets up "
            f"to {newest}: export the model with one of these, or install a later onnx"
        )
    graph = model.graph
    known = {"", *(each.name for each in (*graph.input, *graph.initializer))}
    known.update(each.values.name for each in graph.sparse_initializer)
    known.update(name for node in graph.node for name in node.output)
    for node in graph.node:
        missing = [name for name in node.input if name not in known]
        if missing:
            raise ValueError(
                f"{_where(node)}: its input {missing[0]} is neither an input of the model nor a "
                "weight, and no node computes it: the file is damaged, or was cut out of another"
            )
        for attribute in node.attribute:
            kind = _kind(node, attribute, opset)
            if kind is not None:
                given = onnx.AttributeProto.AttributeType.Name(attribute.type)
                raise ValueError(
                    f"{_where(node)}: the attribute {attribute.name} has the type {given}, but the "
                    f"standard requires {kind}"
                )


def _opset(model) -> int:
    opsets = {each.domain or "ai.onnx": each.version for each in model.opset_import}
    return opsets.get("ai.onnx", 1)


def _where(node) -> str:
    return f"ONNX {node.op_type}, node {node.name or node.output[0]}"


def _kind(node, attribute, opset: int) -> str | None:
    """Return the type that an attribute must have; None if it has it, or nothing is known of it."""
    from onnx import defs

    if not attribute.type or node.domain not in ("", "ai.onnx"):
        return None
    try:
        known = defs.get_schema(node.op_type, opset, "").attributes.get(attribute.name)
    except defs.SchemaError:
        return None
    if known is None or known.type.value == attribute.type:
        return None
    return str(known.type.name)


def explained(error: Exception, model: onnx.ModelProto, infer: Callable) -> Exception:
    """Return an error of an importer with the operands of the node, and where the remedies are.

    Parameters
    ----------
    error : Exception
        The error, which names the node.
    model : onnx.ModelProto
        The prepared model, whose `value_info` has the types of its values.
    infer : Callable
        Infers the types in a model and raises an error where they are inconsistent.

    Returns
    -------
    error : Exception
        The same object. An exception that cannot have another message is returned as it is.
    """
    text = str(error).strip()
    for pattern, plain in _PLAIN:
        text = pattern.sub(plain, text)
    match = _NODE.search(text)
    node = next((each for each in model.graph.node if match and _where(each) == match[0]), None)
    lines = [text]
    if node is not None:
        if node.input:
            lines.append(f"Its operands: {', '.join(_operands(node, model.graph))}")
        reason = _inconsistency(model, node, infer)
        if reason:
            lines.append(f"The inference of types says: {reason}")
    lines.append(f"Remedies: {REMEDIES}")
    if len(error.args) == 1 and str(error).strip() == str(error.args[0]).strip():
        error.args = ("\n".join(lines),)
    return error


def _operands(node, graph) -> list[str]:
    """Return the name, type and shape of each operand of a node."""
    import onnx

    def name_of(kind):
        return onnx.TensorProto.DataType.Name(kind).lower() if kind else "of unknown type"

    texts = {each.name: f"{name_of(each.data_type)} {[*each.dims]}" for each in graph.initializer}
    for value in (*graph.input, *graph.value_info):
        tensor = value.type.tensor_type
        sizes = [dim.dim_param or dim.dim_value for dim in tensor.shape.dim]
        shape = f"[{', '.join(map(str, sizes))}]" if tensor.HasField("shape") else "of unknown rank"
        texts.setdefault(value.name, f"{name_of(tensor.elem_type)} {shape}")
    return [f"{name} {texts.get(name, 'of unknown type')}" for name in node.input if name]


def _inconsistency(model, node, infer: Callable) -> str | None:
    """Return why the types of a node are inconsistent, None if the inference accepts them."""
    try:
        infer(model)
    except Exception as error:  # of whatever kind: it has several for inconsistent models
        for line in str(error).splitlines():
            if f"(op_type:{node.op_type}" in line and (
                not node.name or f"name: {node.name})" in line
            ):
                return line.rpartition("): ")[2].strip()
    return None
