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

import math

from ... import analysis
from ... import expr as _expr
from ... import op as _op
from ..common import set_span


def in_scope(name, convert, inputs, attrs, params):
    """Let a subgraph read the values of the graph around it.

    TVM infers types of a subgraph in a copy, with variables of its own, and puts these in place of
    those of the graph around it: two branches that read one input leave one that nobody declares.
    """
    from ..onnx import GraphProto  # pylint: disable=import-outside-toplevel

    scope = GraphProto.current
    _set_spans(scope)
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


def _set_spans(scope):
    """Give variables that no node has read the span that TVM gives them then.

    A variable with another span is another variable.
    """
    for name, value in scope._nodes.items():
        if isinstance(value, _expr.Var) and not value.span:
            scope._nodes[name] = set_span(value, name)
            if name in scope._inputs:
                scope._inputs[name] = scope._nodes[name]


def loop(name, convert, inputs, attrs, params):
    """Convert Loop without a limit or a condition, of which TVM expects both."""
    import onnx  # pylint: disable=import-outside-toplevel

    limit, condition, *carried = inputs
    body = onnx.GraphProto()
    body.CopyFrom(attrs["body"])
    if limit is None:
        limit = _expr.const(2**63 - 1, "int64")
    if condition is None:
        # The condition that the body computes is ignored.
        condition = _expr.const(True)
        body.output[0].name = body.input[1].name
    limit, condition = (_op.reshape(each, []) for each in (limit, condition))
    given = type(inputs)([limit, condition, *carried])
    result = in_scope(name, convert, given, {**attrs, "body": body}, params)
    is_tuple = isinstance(result, _expr.TupleWrapper)
    results = [*result] if is_tuple else [result]
    for k, value in enumerate(body.output[1 + len(carried) :], len(carried)):
        # Of no iterations, the items are vectors of one element for TVM.
        sizes = _sizes(value)
        if sizes and math.prod(sizes):
            results[k] = _op.reshape(results[k], [-1, *sizes])
    return _expr.TupleWrapper(_expr.Tuple(results), len(results)) if is_tuple else results[0]


def _sizes(value):
    """Return the shape of a value of a subgraph if it is known, else an empty list."""
    sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    return sizes if all(size > 0 for size in sizes) else []
