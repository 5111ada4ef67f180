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
"""Has TVM compute what depends on constants alone, where numpy does not know an op of it.

TVM compiles a function for each expression that it folds; `fold_constants` evaluates the others.
"""

from __future__ import annotations

import tvm
from tvm import relay
from tvm.contrib.onednn.graph.numpy_ops import has_definition
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.relay import transform

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from ..ir.relay_view import op_name


def fold_other_constants(function: TypedFunction, rules: Rules) -> Rewritten:
    """Fold constants as TVM does, unless it cannot: it has no code for some ops of bfloat16."""
    if not _has_other(function.graph):
        return Rewritten(function.func)
    try:
        return Rewritten(transform.FoldConstantExpr(function.func, function.mod))
    except tvm.TVMError:
        return Rewritten(function.func)


def _has_other(graph: DataflowGraph) -> bool:
    """Whether an op of constants has no definition in numpy."""
    is_known: list[bool] = []
    for i, expr in enumerate(graph.nodes):
        name, operands = op_name(expr), graph.operands[i]
        is_constant = isinstance(expr, relay.Constant)
        is_structure = isinstance(expr, (relay.Tuple, relay.TupleGetItem))
        is_computed = name is not None and not name.startswith("qnn.")
        is_of_known = bool(operands) and all(is_known[k] for k in operands)
        is_known.append(is_constant or ((is_structure or is_computed) and is_of_known))
        if is_known[i] and is_computed and not has_definition(name):
            return True
    return False
