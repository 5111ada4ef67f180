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
"""Whether and how `compile` compares a model with the source that it was compiled from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm
from tvm import relax
from tvm.contrib.onednn import progress
from tvm.contrib.onednn.compiled_model import CompiledModel, flat
from tvm.contrib.onednn.frontend import prepare
from tvm.contrib.onednn.ir.node import INPUT
from tvm.contrib.onednn.options import precision_of
from tvm.contrib.onednn.verify.check import CannotRun, Source, check, check_reference, is_flag_set
from tvm.contrib.onednn.verify.graph_source import GraphSource, results_of
from tvm.contrib.onednn.verify.kernels import Kernel, kernels_of, primitives_of
from tvm.contrib.onednn.verify.onnx_source import OnnxSource
from tvm.contrib.onednn.verify.table import Verification, errors

from . import compiled
from .importers import check_arguments, from_onnx, imported, is_program, program_source
from .reader import RelaxGraph


def is_wanted(verify: bool | None, model) -> bool:
    """Tell whether to verify a model: by default a program of PyTorch.

    Raises
    ------
    TypeError
        `verify` is no bool.
    """
    return is_flag_set(verify, default=is_program(model))


def referenced(model, reference: str | None, shape, constants):
    """Return what to compare a model with: itself, or the module that it is imported to.

    Raises
    ------
    TypeError, ValueError
        A module has no source, or there is no such reference.
    """
    check_reference(reference, isinstance(model, tvm.IRModule))
    if reference == "numpy":
        return imported(model, shape, constants)
    check_arguments(model, shape, constants)
    return model


def verify(
    source,
    model: CompiledModel,
    partition: Callable,
    options: Mapping,
    target=None,
    shape: Mapping | None = None,
    constants: Mapping | None = None,
    params: Mapping | None = None,
) -> str:
    """Compare a compiled model with its source.

    Parameters
    ----------
    source : torch.export.ExportedProgram | onnx.ModelProto | str | os.PathLike | tvm.IRModule
        The program, with its example inputs, or the ONNX model or module, for which inputs are
        drawn.
    model : CompiledModel
        What it was compiled to.
    partition : Callable
        `partition_for_dnnl`.
    options : Mapping
        The options that it was called with.
    target : tvm.target.Target | str | None
        What TVM compiles for.
    shape, constants : Mapping | None
        Those of an ONNX model.
    params : Mapping | None
        Values of parameters of a module.

    Returns
    -------
    note : str
        What was compared, or why nothing was.

    Raises
    ------
    VerificationError
        The results differ by more than rounding explains.
    """
    with progress.step("verify"):
        try:
            given = (partition, options, target, shape, constants, params)
            reference = source_of(source, *given)
            if len(reference.inputs) != len(model.input_names):
                return f"not compared: {len(reference.inputs)} inputs"
            precision = precision_of(options.get("precision"))
            return check(reference, lambda x: flat(model(*x)), precision, progress.note)
        except CannotRun as error:
            return f"not compared: {error}"


def source_of(
    source,
    partition: Callable,
    options: Mapping,
    target=None,
    shape=None,
    constants=None,
    params=None,
    inputs=None,
    kernels: list[Kernel] | None = None,
) -> Source:
    """Return a model as a source; parameters are those of `verify`.

    Parameters
    ----------
    kernels : list[Kernel] | None
        Is filled with the kernels of the results of each run.

    Raises
    ------
    CannotRun
        There are no inputs, or the source cannot be run.
    """

    def run(mod, precision, arrays):
        offloaded = mod
        if precision is not None:
            offloaded = partition(mod, **{**options, "precision": precision})
        results, plans = compiled.results(offloaded, arrays, target)
        if kernels is not None:
            mod = _normalized(mod)
            graph = RelaxGraph(mod, mod["main"])
            kernels[:] = kernels_of(graph, results_of(graph), primitives_of(plans))
        return results

    if isinstance(source, tvm.IRModule):
        return _module_source(source, params, run, inputs)
    if is_program(source):
        if inputs is None and not source.example_inputs:
            raise CannotRun("the program has no example inputs")
        return program_source(source, run, inputs)
    onnx_model = prepare.with_inputs(source, shape, constants)
    return OnnxSource(onnx_model, lambda part, *args: run(from_onnx(part), *args), inputs)


def _module_source(mod: tvm.IRModule, params, run: Callable, inputs) -> GraphSource:
    if compiled.is_partitioned(mod):
        raise CannotRun("the module is partitioned already")
    if "main" not in {var.name_hint for var in mod.get_global_vars()}:
        raise CannotRun("the module has no function main")
    mod = relax.transform.BindParams("main", dict(params))(mod) if params else mod
    mod = _normalized(mod)
    graph = RelaxGraph(mod, mod["main"])
    parameters = {graph.title(node): node for node in graph.nodes if node.kind == INPUT}
    return GraphSource(
        graph,
        parameters,
        lambda node: getattr(_var_of(node), "name", None),
        lambda nodes, *args: run(_with_results(mod, list(map(_var_of, nodes))), *args),
        inputs,
    )


def _normalized(mod: tvm.IRModule) -> tvm.IRModule:
    return relax.transform.ConvertToDataflow()(relax.transform.Normalize()(mod))


def _var_of(node) -> relax.Var | None:
    """Return the variable that a node is bound to."""
    native = node.origin.native if node.origin is not None else None
    return native.binding.var if native is not None and native.binding is not None else None


def _with_results(mod: tvm.IRModule, variables: list[relax.Var]) -> tvm.IRModule:
    """Return a module whose main returns other variables of its blocks."""
    func, known, blocks = mod["main"], {}, []
    for block in func.body.blocks:
        bindings = list(block.bindings)
        for var in [each.var for each in bindings]:
            if isinstance(var, relax.DataflowVar) and any(var.same_as(x) for x in variables):
                known[var] = relax.Var(var.name, var.ty)
                bindings.append(relax.VarBinding(known[var], var))
        blocks.append(type(block)(bindings))
    values = relax.Tuple([known.get(var, var) for var in variables])
    builder = relax.BlockBuilder(mod)
    type_ = relax.TupleType([var.ty for var in variables])
    attrs = {key: value for key, value in (func.attrs or {}).items()}
    new = relax.Function(func.params, relax.SeqExpr(blocks, values), type_, func.is_pure)
    builder.update_func(mod.get_global_var("main"), builder.normalize(new.with_attrs(attrs)))
    return builder.get()


def errors_of(
    source, inputs, partition: Callable, options: Mapping, target, shape, constants, params
) -> Verification:
    """Compare each op; parameters are those of `verify`."""
    with progress.step("verify"):
        kernels: list[Kernel] = []
        given = (partition, options, target, shape, constants, params, inputs, kernels)
        precision = precision_of(options.get("precision"))
        try:
            return errors(source_of(source, *given), precision, progress.note, kernels)
        except CannotRun as error:
            raise ValueError(f"the model cannot be verified: {error}") from error
