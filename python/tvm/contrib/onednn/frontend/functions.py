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
"""ONNX ops that an importer refuses, replaced by the ops that they are defined as.

The standard defines many ops as functions of others, such as Attention and LinearAttention;
`decompositions` does so for others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from .decompositions import CORRECTIONS, DECOMPOSITIONS
from .fold import fold
from .inference import check_shapes
from .messages import explained
from .node_info import Decomposition, NodeInfo

if TYPE_CHECKING:
    import onnx

T = TypeVar("T")

#: Ops of com.microsoft that the standard has since opset 27, and attributes that it lacks with the
#: values that make no difference.
_STANDARDIZED = {
    "CausalConvWithState": {"ndim": 1, "dilation": 1, "channels_last": 0, "state_window": 0},
    "LinearAttention": {"state_window": 0},
}


def import_expanded(model: onnx.ModelProto, convert: Callable[[onnx.ModelProto], T]) -> T:
    """Import a model; expand the ops that the importer refuses if they are functions of others.

    Parameters
    ----------
    model : onnx.ModelProto
        A model that was prepared. It is modified.
    convert : Callable
        Imports a model.

    Raises
    ------
    ValueError
        An op cannot be expanded with its operands.
    Exception
        The first error of the importer, if it names no op that can be expanded.
    """
    expand(model, {op for _, op in CORRECTIONS}, CORRECTIONS)
    try:
        return convert(model)
    except Exception as first:  # of whatever kind: TVM raises errors of all types
        error = first
        # An error names each op that it is about.
        while expand(model, _words(error)):
            try:
                return convert(model)
            except Exception as other:
                error = other
        message = _without_converter(model, first)
        if message is None:
            explained(first, model, check_shapes)
            raise
        raise explained(type(first)(message), model, check_shapes) from first


def _words(error) -> set[str]:
    return set(re.findall(r"\w+", str(error)))


def _without_converter(model, error) -> str | None:
    """Return a message that names a node that an importer has no converter for, None for others."""
    if "not supported for frontend ONNX" not in str(error):
        return None
    words = _words(error)
    for node in model.graph.node:
        if node.op_type in words:
            message = f"ONNX {node.op_type}, node {node.name or node.output[0]}: {error}"
            if node.domain == "ai.onnx.ml":
                message += (
                    ". Export the network without its trees and scalers; onnxruntime has these"
                )
            return message
    return None


def expand(
    model: onnx.ModelProto,
    ops: set[str],
    decompositions: Mapping[tuple[str, str], Decomposition] = DECOMPOSITIONS,
) -> bool:
    """Replace nodes by what they are defined as, in place, and fold what is constant then.

    Parameters
    ----------
    model : onnx.ModelProto
        A model that was prepared.
    ops : set[str]
        The ops to replace. Nodes in subgraphs stay.
    decompositions : Mapping[tuple[str, str], Decomposition]
        Bodies by domain and op, of ops that are no functions of the standard.

    Returns
    -------
    is_changed : bool
        Whether a node was replaced.
    """
    nodes = [node for node in model.graph.node if node.op_type in ops]
    if not nodes:
        return False
    count, types = 0, _types(model.graph)
    opsets = {each.domain: each.version for each in model.opset_import}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in nodes:
        body = _body(node, types, opsets, constants, decompositions)
        if body is None:
            continue
        body.domain, body.name = "expanded", f"{node.op_type}_{count}"
        del body.opset_import[:]
        body.opset_import.extend(model.opset_import)
        node.domain, node.op_type = body.domain, body.name
        model.functions.append(body)
        count += 1
    if count:
        model.opset_import.add(domain="expanded", version=1)
        fold(model)
        del model.functions[:], model.opset_import[-1]
    return bool(count)


def _types(graph) -> dict[str, onnx.TypeProto]:
    """Return the types of values by name."""
    import onnx

    types = {
        tensor.name: onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        for tensor in graph.initializer
    }
    types.update((info.name, info.type) for info in (*graph.input, *graph.value_info))
    return types


def _body(node, types, opsets, constants, decompositions) -> onnx.FunctionProto | None:
    """Return what a node is defined as, None if that is not known."""
    import onnx

    domain = "" if node.domain == "ai.onnx" else node.domain
    opset = max(opsets.get(each, 1) for each in ("", "ai.onnx"))
    decompose = decompositions.get((domain, node.op_type))
    if decompose is not None:
        return decompose(NodeInfo(node, types, opset, constants))
    version = opsets.get(domain, 1) if domain else opset
    if domain == "com.microsoft" and node.op_type in _STANDARDIZED and opset >= 21:
        domain, version = "", max(27, onnx.defs.onnx_opset_version())
        NodeInfo(node, types, opset, constants).require_neutral(_STANDARDIZED[node.op_type])
        opset = version
    try:
        schema = onnx.defs.get_schema(node.op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    versions = [each for each in schema.function_opset_versions if each <= opset]
    others = [each for each in schema.context_dependent_function_opset_versions if each <= opset]
    if not versions and not others:
        return None
    given = {each.name for each in node.attribute}
    if not given <= set(schema.attributes) or len(node.input) > schema.max_input:
        return None  # it is no valid node
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            node.attribute.append(attribute.default_value)
    if versions:
        text = schema.get_function_with_opset_version(max(versions))
    else:
        inputs = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
        text = schema.get_context_dependent_function_with_opset_version(
            max(others), node.SerializeToString(), inputs
        )
    body = onnx.FunctionProto()
    body.ParseFromString(text)
    return body if body.node else None
