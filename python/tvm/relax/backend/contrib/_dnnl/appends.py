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
"""Partitions that append to their inputs in place: the option `append_in_place`."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import tvm
from tvm import relax

from .kernels import KIND

# The attribute of a module with the option.
_APPENDS = "dnnl_append_in_place"


def mark_appends(mod: tvm.IRModule, append_in_place: bool) -> tvm.IRModule:
    """Return a module whose partitions append to their inputs in place, or not."""
    if not isinstance(append_in_place, bool):
        raise TypeError(f"append_in_place must be True or False, not {append_in_place!r}")
    return mod.with_attr(_APPENDS, True) if append_in_place else mod


def append_in_place(mod: tvm.IRModule) -> tvm.IRModule:
    """Let partitions return what they append to an input in the memory of that.

    They allocate all their results then: the virtual machine passes shapes, and no tensors. Nothing
    changes in a module without the attribute. A partition copies if anything else reads its tensors
    with gaps: TVM's ops and other partitions require dense ones. A warning names the parameter.
    """
    attrs = mod.attrs or {}
    if not attrs.get(_APPENDS):
        return mod
    modules = attrs.get("external_mods") or []
    appends = {str(m["get_symbol"]()): list(m["appends"]()) for m in modules if m.kind == KIND}
    for var, func in list(mod.functions_items()):
        if isinstance(func, relax.Function):
            calls = _appending_calls(func, appends)
            mod.update_func(var, _Appender(mod, calls).visit_expr(func))
    return mod


def _appending_calls(func: relax.Function, appends: dict[str, list[int]]) -> set[relax.Call]:
    """Return the calls of partitions that may append in place.

    Parameters
    ----------
    func : relax.Function
        The function that calls them.
    appends : dict[str, list[int]]
        By name of a partition: the input that each result begins with, or -1.
    """
    values, calls = _Values(func), set()
    for call, branches in values.calls:
        func_, args = call.args
        inputs = appends.get(str(func_.global_symbol), [])
        pairs = [(args.fields[i], result) for result, i in enumerate(inputs) if i >= 0]
        copied = []
        for past, result in pairs:
            readers = values.readers_of(past)
            is_shared = (
                any(each.expr != call and not each.excludes(branches) for each in readers)
                or sum(each.expr == call for each in readers) != 1
            )
            is_kept = values.is_param(past) and not is_shared
            if not (is_kept and values.is_returned(call, result, len(inputs))):
                copied.append(getattr(values.source(past), "name", "a constant"))
        if copied:
            warnings.warn(
                f"append_in_place: {', '.join(copied)} is copied in each run, because something "
                "other than the partition that appends to it reads it or the result",
                stacklevel=2,
            )
        elif pairs:
            calls.add(call)
    return calls


_Branches = dict[relax.If, int]


class _Reader(NamedTuple):
    """An expression that reads a variable, and which branch of each If it is in."""

    expr: relax.Expr
    branches: _Branches

    def excludes(self, branches: _Branches) -> bool:
        """Whether it does not run if others of the same Ifs do."""
        return any(branches.get(each, which) != which for each, which in self.branches.items())


class _Values:
    """What reads each variable of a function. Variables that are another name are that one."""

    def __init__(self, func: relax.Function):
        #: The calls of external functions, and the branches that they are in.
        self.calls: list[tuple[relax.Call, _Branches]] = []
        self._readers: dict[relax.Var, list[_Reader]] = {}
        self._var_of: dict[relax.Expr, relax.Var] = {}
        self._source: dict[relax.Var, relax.Var] = {}
        self._branches: _Branches = {}
        self._params = set(func.params)
        self._visit(func.body)

    def _visit(self, body: relax.SeqExpr) -> None:
        for block in body.blocks:
            for binding in block.bindings:
                self._visit_binding(binding)

    def _visit_binding(self, binding: relax.Binding) -> None:
        value = binding.value
        if isinstance(value, relax.Var):  # Or a MatchCast of one.
            self._source[binding.var] = self.source(value)
            return
        self._var_of[value] = binding.var
        if isinstance(value, relax.If):
            self._read(value, [value.cond])
            outside = self._branches
            for which, branch in enumerate((value.true_branch, value.false_branch)):
                self._branches = {**outside, value: which}
                self._visit(branch)
                self._read(value, [branch.body])
            self._branches = outside
        elif isinstance(value, relax.Call):
            is_external = value.op == tvm.ir.Op.get("relax.call_dps_packed")
            if is_external:
                self.calls.append((value, self._branches))
            self._read(value, value.args)
        elif isinstance(value, relax.Tuple):
            self._read(value, value.fields)
        elif isinstance(value, relax.TupleGetItem):
            self._read(value, [value.tuple_value])

    def _read(self, reader: relax.Expr, values) -> None:
        for value in values:
            if isinstance(value, relax.Tuple):
                self._read(reader, value.fields)
            elif isinstance(value, relax.Var):
                readers = self._readers.setdefault(self.source(value), [])
                readers.append(_Reader(reader, self._branches))

    def source(self, var: relax.Var) -> relax.Var:
        """Return the variable that one is another name of."""
        return self._source.get(var, var)

    def readers_of(self, var: relax.Var) -> list[_Reader]:
        """Return the expressions that read a variable, one for each time."""
        return self._readers.get(self.source(var), [])

    def is_param(self, var: relax.Var) -> bool:
        """Whether a variable is a parameter of the function."""
        return self.source(var) in self._params

    def is_returned(self, call: relax.Call, result: int, count: int) -> bool:
        """Whether nothing but the function's caller reads a result of a call with so many."""
        var = self._var_of[call]
        if count == 1:
            return self._is_only_returned(var)
        return all(
            isinstance(item, relax.TupleGetItem)
            and (item.index != result or self._is_only_returned(self._var_of[item]))
            for item, _ in self.readers_of(var)
        )

    def _is_only_returned(self, var: relax.Var) -> bool:
        return all(
            isinstance(reader, (relax.If, relax.Tuple, relax.TupleGetItem))
            and self._is_only_returned(self._var_of[reader])
            for reader, _ in self.readers_of(var)
        )


@relax.expr_functor.mutator
class _Appender(relax.PyExprMutator):
    """Passes the shapes of their results to calls, and not memory for these."""

    def __init__(self, mod: tvm.IRModule, calls: set[relax.Call]):
        super().__init__(mod)
        self._calls = calls

    def visit_call_(self, call):
        visited = super().visit_call_(call)
        if call not in self._calls:
            return visited
        func, args = visited.args
        (result,) = visited.ty_args
        shapes = [each.shape for each in getattr(result, "fields", [result])]
        if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
            return visited
        return relax.call_pure_packed(func, *args.fields, *shapes, ty_args=result)
