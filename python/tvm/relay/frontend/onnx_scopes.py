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
"""Repairs of ONNX ops with subgraphs."""

from __future__ import annotations

from .. import analysis
from .. import expr as _expr


def in_scope(name, convert, inputs, attrs, params):
    """Let a subgraph read the values of the graph around it.

    TVM infers types of a subgraph in a copy, with variables of its own, and puts these in place of
    those of the graph around it: two branches that read one input leave one that nobody declares.
    """
    from .onnx import GraphProto  # pylint: disable=import-outside-toplevel

    scope = GraphProto.current
    known = {
        value.name_hint: value for value in scope._nodes.values() if isinstance(value, _expr.Var)
    }
    nodes, own_inputs = dict(scope._nodes), dict(scope._inputs)
    result = convert(inputs, attrs, params)
    scope._nodes.update(nodes)
    scope._inputs.update(own_inputs)
    is_tuple = isinstance(result, _expr.TupleWrapper)
    body = result.tuple_value if is_tuple else result
    others = {
        var: known[var.name_hint]
        for var in analysis.free_vars(body)
        if var.name_hint in known and not var.same_as(known[var.name_hint])
    }
    body = _expr.bind(body, others) if others else body
    return _expr.TupleWrapper(body, result.size) if is_tuple else body
