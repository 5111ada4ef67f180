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
from tvm.contrib.onednn.ops.tensors import COMPILER

from .appends import append_in_place
from .composites import kernel_of_composite
from .kernels import KIND, graph_json


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
    mod = append_in_place(mod)
    attrs = mod.attrs or {}
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
    # It looks for partitions in entry functions only, and a private one may call some, too, such as
    # a branch that an importer made a function.
    entries, names = [], set()
    for var, func in mod.functions.items():
        if "Codegen" in func.attrs:
            names.add(str(func.attrs["Codegen"]))
        elif isinstance(func, relax.Function):
            entries.append(var.name_hint)
    if names <= {COMPILER}:
        return tvm.get_global_func("relax.transform.RunCodegen")(None, entries)(mod)
    return relax.transform.RunCodegen(entry_functions=entries)(mod)
