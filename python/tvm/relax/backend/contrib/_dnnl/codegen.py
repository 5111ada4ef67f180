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
"""The code generator: partitions become modules of the DNNL JSON runtime."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.contrib.onednn.policy.tensors import COMPILER

from .composites import kernel_of_composite
from .kernels import graph_json

# What a partition's module says that it is.
KIND = "dnnl_json"
# The attribute of a module whose partitions append to their inputs in place.
_APPENDS = "dnnl_append_in_place"


def compile_partitions(functions, _options, const_names) -> list:
    """Return a module for each partition; TVM's RunCodegen asks for them."""
    create = tvm.get_global_func("runtime.DNNLJSONRuntimeCreate")
    modules = []
    for func in functions:
        text, names = graph_json(func, const_names, kernel_of_composite)
        modules.append(create(str(func.attrs["global_symbol"]), text, names))
    return modules


def generate(mod: tvm.IRModule) -> tvm.IRModule:
    """Run TVM's RunCodegen, and drop the constants that no partition reads.

    RunCodegen keeps all constants of a partition, also those that only the definition of a
    composite reads, such as a weight in the layout that the model has it in.
    """
    mod = _run_codegen(mod)
    attrs = mod.attrs or {}
    if attrs.get(_APPENDS):
        mod = _append_in_place(mod)
    modules, constants = (attrs.get(name) for name in ("external_mods", "const_name_to_constant"))
    if not modules or not constants or any(each.kind != KIND for each in modules):
        return mod
    read = {str(name) for each in modules for name in each["get_const_vars"]()}
    kept = {name: value for name, value in constants.items() if str(name) in read}
    return mod.with_attr("const_name_to_constant", kept)


def _run_codegen(mod: tvm.IRModule) -> tvm.IRModule:
    """Run TVM's RunCodegen, in Python only if there is another code generator.

    It imports that of CUTLASS, which takes longer than the rest.
    """
    names = {
        str(func.attrs["Codegen"]) for func in mod.functions.values() if "Codegen" in func.attrs
    }
    if names <= {COMPILER}:
        return tvm.get_global_func("relax.transform.RunCodegen")(None, [])(mod)
    return relax.transform.RunCodegen()(mod)


def mark_appends(mod: tvm.IRModule, append_in_place: bool) -> tvm.IRModule:
    """Return a module whose partitions append to their inputs in place, or not."""
    if not isinstance(append_in_place, bool):
        raise TypeError(f"append_in_place must be a bool, not {append_in_place!r}")
    return mod.with_attr(_APPENDS, True) if append_in_place else mod


def _append_in_place(mod: tvm.IRModule) -> tvm.IRModule:
    """Let partitions return what they append to an input in the memory of that.

    They allocate all their results then: the virtual machine passes shapes, and no tensors.
    """
    modules = mod.attrs.get("external_mods") or []
    symbols = {str(m["get_symbol"]()) for m in modules if m.kind == KIND and m["appends"]()}
    for var, func in list(mod.functions_items()):
        if isinstance(func, relax.Function):
            mod.update_func(var, _Appender(mod, symbols).visit_expr(func))
    return mod


@relax.expr_functor.mutator
class _Appender(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, symbols: set[str]):
        super().__init__(mod)
        self._symbols = symbols

    def visit_call_(self, call):
        call = super().visit_call_(call)
        if call.op != tvm.ir.Op.get("relax.call_dps_packed"):
            return call
        func, args = call.args
        if str(func.global_symbol) not in self._symbols:
            return call
        (result,) = call.ty_args
        shapes = [each.shape for each in getattr(result, "fields", [result])]
        if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
            return call
        return relax.call_pure_packed(func, *args.fields, *shapes, ty_args=result)
