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
"""Folds what a program computes from its weights and constants only, such as masks and positions.

PyTorch computes it: TVM compiles each such op, and leaves some that it cannot fold.
"""

from __future__ import annotations

import operator

import torch
from torch.fx import Node

from . import packed_weights, quantized
from .graphs import add_constant, constants

#: A result that is larger than this and than its operands, such as a broadcast, is not folded, nor
#: one without elements: TVM refuses the strides of such a constant.
_MAX_ELEMENTS = 1 << 20


def fold(program) -> dict[Node, torch.Tensor]:
    """Fold constants in place; return the values of the constants that are left."""
    values = dict(constants(program))
    for node in program.graph.nodes:
        if node.op == "call_function" and _is_foldable(node, values):
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
            with torch.no_grad():
                result = node.target(*args, **kwargs)
            if _is_worth(node, result, values):
                values[node] = result
    for node in list(program.graph.nodes):
        is_read = any(user not in values for user in node.users)
        if node.op == "call_function" and is_read and isinstance(values.get(node), torch.Tensor):
            values[add_constant(program, node, values[node])] = values[node]
    program.graph.eliminate_dead_code()
    return {node: values[node] for node in program.graph.nodes if node in values}


def _is_foldable(node: Node, values: dict) -> bool:
    if node.target is operator.getitem:
        return node.args[0] in values
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if quantized.is_kept(node) or packed_weights.is_kept(node):
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags or node.target._schema.is_mutable:
        return False
    return bool(node.users) and all(each in values for each in node.all_input_nodes)


def _is_worth(node: Node, result, values: dict) -> bool:
    operands = [values[each] for each in node.all_input_nodes]
    sizes = [each.numel() for each in operands if isinstance(each, torch.Tensor)]
    results = [result] if isinstance(result, torch.Tensor) else result
    if not isinstance(results, (list, tuple)):
        return False
    return all(
        isinstance(each, torch.Tensor) and 0 < each.numel() <= max([_MAX_ELEMENTS, *sizes])
        for each in results
    )
