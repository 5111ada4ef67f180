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
"""Composites that are not the partitioner's, such as those of FuseOpsByPattern."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.contrib.onednn.failures import note_failure
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.ops.tensors import COMPILER
from tvm.contrib.onednn.partition.kernel import KernelNode, kernel_of, whole_kernel

from .body import substituted
from .kernels import KERNEL
from .reader import RelaxGraph
from .reading import ExprDict, own_functions


def kernel_of_composite(func: relax.Function) -> KernelNode:
    """Return the one kernel that computes what a composite does.

    Its inputs are expressions: parameters of the composite, and constants in it.

    Raises
    ------
    ValueError
        If oneDNN does not compute it by one kernel; it tells why.
    """
    graph = RelaxGraph(tvm.IRModule(), func)
    kernel = kernel_of(*whole_kernel(graph, Rules(TABLE), str(func.attrs["Composite"])))
    return kernel.node([node.origin.native.value for node in kernel.inputs])


def without_unwritable(
    mod: tvm.IRModule, failures: dict[str, str], strict: bool = False
) -> tvm.IRModule:
    """Return a module without the partitions of others that have composites of no kernel.

    Their ops are where the partition was called, and may be partitioned again.

    Parameters
    ----------
    mod : tvm.IRModule
        The module.
    failures : dict[str, str]
        By function: what failed. There is a warning for each.
    strict : bool
        Whether it is an error.

    Raises
    ------
    PartitionError
        With `strict`.
    """
    inlined = {}
    for var, func in mod.functions_items():
        if not isinstance(func, relax.Function) or func.attrs.get("Codegen") != COMPILER:
            continue
        for composite in _others(func).values():
            try:
                kernel_of_composite(composite)
            # Whatever it is, RunCodegen would raise it.
            except Exception as error:  # pylint: disable=broad-except
                name, what = var.name_hint, f"writing {composite.attrs['Composite']}"
                note_failure(failures, name, what, error, stacklevel=5, strict=strict)
                inlined[var] = _without_composites(func)
    if not inlined:
        return mod
    builder = relax.BlockBuilder(mod)
    for var, func in own_functions(mod):
        builder.update_func(var, builder.normalize(func.inline_functions(inlined)))
    left = builder.finalize()
    kept = {var: func for var, func in left.functions_items() if var not in inlined}
    return tvm.IRModule(kept, left.attrs, left.global_infos)


def _others(partition: relax.Function) -> dict:
    """Return the composites of a partition that are not the partitioner's, by variable."""
    bindings = (binding for block in partition.body.blocks for binding in block.bindings)
    return {
        binding.var: binding.value
        for binding in bindings
        if isinstance(binding.value, relax.Function) and KERNEL not in binding.value.attrs
    }


def _without_composites(partition: relax.Function) -> relax.Function:
    """Return a partition as a function of ops."""
    builder, names, functions, blocks = relax.BlockBuilder(), ExprDict(), {}, []
    for block in partition.body.blocks:
        bindings = []
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Function):
                func = value.without_attr("Composite")
                names[binding.var] = builder.add_func(func, "composite")
                functions[names[binding.var]] = func
            else:
                bindings.append(relax.VarBinding(binding.var, substituted(value, names)))
        blocks.append(type(block)(bindings))
    body = relax.SeqExpr(blocks, partition.body.body)
    func = relax.Function(partition.params, body, partition.ret_ty)
    return func.inline_functions(functions)
