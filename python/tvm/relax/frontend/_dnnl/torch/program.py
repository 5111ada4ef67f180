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
"""The import of exported programs: decomposition, passes, and TVM's importer."""

from __future__ import annotations

import torch
import tvm
from torch.export.graph_signature import ConstantArgument, OutputKind
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from tvm.relax.frontend import torch as frontend

from . import (
    decompositions,
    experts,
    fold,
    fourier,
    masks,
    packed_weights,
    quantized,
    recurrent,
    registration,
    resizes,
    results,
    simplify,
    sizes,
)
from .graphs import argument, aten, drop_inputs

#: Ops that are converted as they are: this backend runs them as one kernel, or as fewer ops than
#: PyTorch's decomposition has.
_KEPT = (
    aten.scaled_dot_product_attention.default,
    aten.linear.default,
    aten.silu.default,
    aten.hardswish.default,
    aten.roll.default,
)
_USER = OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT


def import_program(program: torch.export.ExportedProgram) -> tvm.IRModule:
    """Import a program. See :py:func:`tvm.relax.backend.contrib.dnnl.from_exported_program`."""
    try:
        return translated(*prepared(program))
    except GuardOnDataDependentSymNode as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"a size depends on the values of tensors: {reason}") from error


def prepared(program) -> tuple[torch.export.ExportedProgram, dict]:
    """Return a program that is decomposed and rewritten, and the values of its constants."""
    program = experts.rewrite(program)
    table = {**torch.export.default_decompositions(), **decompositions.table()}
    table.update(results.table(program))
    for op in (*_KEPT, *resizes.RESIZES, *recurrent.kept(program), *packed_weights.kept_ops()):
        table.pop(op, None)
    program = program.run_decompositions(table)
    # The passes add constants, and this dict is still that of the caller's program.
    program._constants = dict(program.constants)
    _check(program)
    _drop_plain_inputs(program)
    _drop_plain_outputs(program)
    fourier.split_complex(program)
    packed_weights.rewrite(program)
    quantized.rewrite(program)
    simplify.rewrite(program, fold.fold(program))
    masks.rewrite(program, fold.fold(program))
    return program, fold.fold(program)


def translated(program, values: dict) -> tvm.IRModule:
    """Return the module of a prepared program."""
    converters = registration.convert_map(values)
    _check_converters(program, converters)
    mod = frontend.from_exported_program(
        program,
        unwrap_unit_return_tuple=True,
        custom_convert_map=converters,
        run_ep_decomposition=False,
    )
    return sizes.solve(mod)


def _drop_plain_inputs(program) -> None:
    """Leave out inputs that are no tensors, such as None or True: their values are in the graph."""
    specs = program.graph_signature.input_specs
    drop_inputs(
        program, {spec.arg.name for spec in specs if isinstance(spec.arg, ConstantArgument)}
    )


def _drop_plain_outputs(program) -> None:
    """Leave out results that are no tensors, such as None: a function of Relax returns tensors."""
    output, signature = program.graph.output_node(), program.graph_signature
    is_tensor = [isinstance(each, torch.fx.Node) for each in output.args[0]]
    if not any(is_tensor):
        raise ValueError("the model returns no tensor")
    output.args = (tuple(each for each, kept in zip(output.args[0], is_tensor) if kept),)
    signature.output_specs[:] = [
        each for each, kept in zip(signature.output_specs, is_tensor) if kept
    ]


def _check_converters(program, converters) -> None:
    """Refuse ops that neither TVM's importer nor this folder can read."""
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target.__name__ not in converters:
            is_complex = any(map(fourier.is_complex, (node, *node.all_input_nodes)))
            reason = "TVM has no complex types" if is_complex else "this op has no converter"
            raise registration.refusal(node, reason)
    for node in program.graph.find_nodes(op="placeholder"):
        if fourier.is_complex(node):
            raise ValueError(
                f"the input {node.name} is complex, and TVM has no complex types. Pass "
                "torch.view_as_real of it, and call torch.view_as_complex in the model"
            )


def _check(program) -> None:
    """Refuse what the importer reads as something else."""
    for node in program.graph.find_nodes(op="call_function", target=aten.native_dropout.default):
        if argument(node, "train") is not False:
            raise ValueError(f"{node.name}: dropout in training mode; {_EVAL}")
    for node in program.graph.nodes:
        if node.target in (aten._native_batch_norm_legit_functional.default,):
            raise ValueError(f"{node.name}: a batch norm in training mode; {_EVAL}")
    for spec in program.graph_signature.output_specs:
        if spec.kind not in _USER:
            raise ValueError(f"the model changes {spec.target}, which a function of Relax cannot")


_EVAL = "call model.eval() before torch.export.export"
