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
"""The branches of an ONNX `If`, as functions that `relax.If` calls.

TVM's importer adds most ops of both branches to the function around the `If`, so both are computed
in each run. The functions are public, because `RunCodegen` skips partitions in private ones. They
are not inlined, because `StaticPlanBlockMemory` of TVM 0.27 lets one branch use memory that the
other allocates.
"""

from __future__ import annotations

import re

import tvm
from tvm import relax, tirx
from tvm.contrib.onednn.frontend.protobuf import captured

from ..backend import is_constant
from .least_sizes import LeastSizes
from .quiet import QuietImporter
from .shape_values import ShapeValue

_ADVICE = "if the condition is the same in each run, pass its inputs in `constants`"


class BranchImporter(QuietImporter):
    """Imports an `If` as a call of the function of the branch that its condition selects."""

    def _if(self, node) -> None:
        """Import an `If`."""
        graphs = {each.name: each.g for each in node.attribute}
        calls = [self._call(node, name, graphs[name]) for name in ("then_branch", "else_branch")]
        types = [_dtypes(call.ty) for call in calls]
        if types[0] != types[1]:
            raise ValueError(f"its branches return {types[0]} and {types[1]}")
        condition = self._tensor(self._nodes[node.input[0]])
        if condition.ty.ndim != 0:
            condition = self.bb.emit(relax.op.reshape(condition, []))
        branches = [relax.SeqExpr([], call) for call in calls]
        result = self.bb.emit(relax.If(condition, *branches))
        for number, name in enumerate(node.output):
            is_single = len(node.output) == 1
            value = result if is_single else self.bb.emit(relax.TupleGetItem(result, number))
            self._nodes[name] = value

    def _call(self, node, kind, graph) -> relax.Call:
        """Return a call of a new function that computes a branch."""
        names = captured(graph)
        inner = type(self)({}, self._dtype)
        inner.bb, inner.opset, inner._input_sizes = self.bb, self.opset, self._input_sizes
        inner._least = LeastSizes()
        args, params, symbols = [], [], {}
        for name in names:
            value = self._tensor(self._nodes[name])
            if is_constant(value):
                inner._nodes[name] = value
                continue
            if not isinstance(value, relax.Var):
                # Computed here once, rather than in each branch that reads it.
                value = self._nodes[name] = self.bb.emit(value)
            args.append(value)
            params.append(relax.Var(_identifier(name), _with_own_symbols(value.ty, symbols)))
            inner._nodes[name] = params[-1]
        title = _identifier(f"{node.name or node.output[0]}_{kind}")
        try:
            inner._check_for_unsupported_ops(graph)
            with self.bb.function(title, params):
                inner._parse_graph_initializers(graph)
                inner._construct_nodes(graph)
                results = [inner._nodes[output.name] for output in graph.output]
                result = results[0] if len(results) == 1 else relax.Tuple(results)
                function = self.bb.emit_func_output(result)
        except tvm.error.OpNotImplemented:
            raise
        except Exception as error:
            error.args = (f"{kind}: {error}; {_ADVICE}",)
            raise
        return self.bb.normalize(relax.Call(function, args))

    def _tensor(self, value):
        return value.tensor(self.bb) if isinstance(value, ShapeValue) else value


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _dtypes(type_) -> list[str]:
    """Return the dtypes of a tensor or of a tuple of tensors."""
    fields = type_.fields if isinstance(type_, relax.TupleType) else [type_]
    return [str(getattr(each, "dtype", type(each).__name__)) for each in fields]


def _with_own_symbols(type_, symbols: dict) -> relax.TensorType:
    """Return a tensor type with symbols of the function's own for open sizes."""
    if not isinstance(type_, relax.TensorType):
        raise ValueError(f"it reads a value of the type {type_}")
    if type_.shape is None:
        return type_
    sizes = [
        (
            size
            if isinstance(size, tirx.IntImm)
            else symbols.setdefault(size, tirx.Var(getattr(size, "name", "size"), "int64"))
        )
        for size in type_.shape
    ]
    return relax.TensorType(sizes, type_.dtype)
