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
"""Compares a model that is compiled with Relay with its source, or with its numpy definitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import tvm
from tvm import relay
from tvm.contrib.onednn import compiler_lock, progress
from tvm.contrib.onednn.arguments import check_onnx_only, check_options
from tvm.contrib.onednn.compiled_model import CompiledModel, flat
from tvm.contrib.onednn.frontend import prepare
from tvm.contrib.onednn.ir.node import INPUT
from tvm.contrib.onednn.options import precision_of
from tvm.contrib.onednn.verify.check import CannotRun, Source, check, check_reference
from tvm.contrib.onednn.verify.graph_source import GraphSource, results_of
from tvm.contrib.onednn.verify.kernels import Kernel, kernels_of, primitives_of
from tvm.contrib.onednn.verify.onnx_source import OnnxSource
from tvm.contrib.onednn.verify.table import Verification, errors

from ..body import span_of
from ..ir.relay_view import value_of
from ..params import bind_params
from ..pass_context import options_of_pass_context
from ..reader import RelayGraph, RelayNode
from . import compiled
from .c_source import export_options
from .onnx_models import from_onnx


def check_compiled(
    source,
    model: CompiledModel,
    partition: Callable,
    options: Mapping,
    target=None,
    shape: Mapping | None = None,
    constants: Mapping | None = None,
    params: Mapping | None = None,
) -> str:
    """Compare a compiled model with its source; parameters are those of `compile`.

    Returns
    -------
    note : str
        What was compared, or why nothing was.

    Raises
    ------
    VerificationError
        The results differ by more than rounding explains.
    """

    def run(arrays):
        return flat(model(**_by_name(reference, arrays, model)))

    with progress.step("verify"):
        try:
            given = (partition, options, target, shape, constants, params)
            reference = _source_of(source, *given)
            return check(reference, run, _precision(options), progress.note)
        except CannotRun as error:
            return f"not compared: {error}"


@compiler_lock.entry("verify")
def verify(
    model,
    inputs: Mapping | Sequence | None = None,
    *,
    params: dict[str, tvm.nd.NDArray] | None = None,
    reference: str | None = None,
    shape: Mapping | None = None,
    constants: Mapping[str, object] | None = None,
    target: tvm.target.Target | str | None = None,
    **options,
) -> Verification:
    """Compare each op of a compiled model with its source, or with its numpy definition.

    The model is compiled with its intermediate results as results, so little is fused. Each op is
    compared for the operands that the compiled model computed, and with its accumulated error.

    Parameters
    ----------
    model : str | os.PathLike | onnx.ModelProto | tvm.IRModule
        An ONNX model or its file, or a module with a function `main`.
    inputs : Mapping[str, numpy.ndarray] | Sequence | None
        Inputs by name or in order. Those without a value are drawn.
    params : dict[str, tvm.nd.NDArray] | None
        Values of parameters of a module, as for `partition_for_dnnl`.
    reference : str | None
        "source" for onnxruntime or onnx's reference evaluator, or "numpy" for the definition of
        each op of the imported module, in float64. Default: "numpy" for a module, else "source".
    shape, constants, target, options
        As for `compile`.

    Returns
    -------
    verification : Verification
        The errors of all ops. Its text is a table of the largest.

    Raises
    ------
    TypeError, ValueError
        As for `compile`; there is no such input, or a value does not fit it; or the source cannot
        be run.
    """
    from ... import dnnl

    check_options(options, dnnl.partition_for_dnnl)
    is_module = isinstance(model, tvm.IRModule)
    check_reference(reference, is_module)
    if is_module:
        check_onnx_only(shape, constants)
    with progress.step("verify"):
        kernels: list[Kernel] = []
        if reference == "numpy" and not is_module:
            model, weights = from_onnx(model, shape, constants)
            params, shape, constants = {**weights, **(params or {})}, None, None
        given = (dnnl.partition_for_dnnl, options, target, shape, constants, params)
        try:
            source = _source_of(model, *given, inputs, kernels)
            return errors(source, _precision(options), progress.note, kernels)
        except CannotRun as error:
            raise ValueError(f"the model cannot be verified: {error}") from error


def _precision(options: Mapping) -> str:
    given = {**options_of_pass_context(), **options}
    return precision_of("bfloat16" if given.get("bf16") else given.get("precision"))


def _source_of(
    source,
    partition: Callable,
    options: Mapping,
    target,
    shape,
    constants,
    params,
    inputs=None,
    kernels: list[Kernel] | None = None,
) -> Source:
    """Return a model as a source; fill `kernels` with those of the results of each run."""

    def run(mod, weights, precision, arrays):
        mod = relay.transform.InferType()(bind_params(_copied(mod), weights))
        offloaded = mod
        if precision is not None:
            given = {name: value for name, value in options.items() if name != "bf16"}
            offloaded = partition(mod, **{**given, "precision": precision})
        model = compiled.compile_partitioned(offloaded, target, None, export_options())
        results = flat(model(**_by_name(reference, arrays, model)))
        if kernels is not None:
            graph = RelayGraph(mod["main"])
            kernels[:] = kernels_of(graph, results_of(graph), primitives_of(compiled.plans(model)))
        return results

    def run_onnx(part, precision, arrays):
        mod, weights = from_onnx(part)
        return run(mod, weights, precision, arrays)

    if not isinstance(source, tvm.IRModule):
        reference = OnnxSource(prepare.with_inputs(source, shape, constants), run_onnx, inputs)
        return reference
    if compiled.is_partitioned(source):
        raise CannotRun("the module is partitioned already")
    if "main" not in {var.name_hint for var in source.functions}:
        raise CannotRun("the module has no function main")
    mod = bind_params(_copied(source), params)
    passes = [relay.transform.InferType(), relay.transform.ToGraphNormalForm()]
    mod = tvm.transform.Sequential([*passes, relay.transform.InferType()])(mod)
    graph = RelayGraph(mod["main"])
    scope = results_of(graph)[0].scope

    def name_of(node):
        if node.scope != scope or not isinstance(node.origin.native, relay.Expr):
            return None
        span = span_of(node)
        name = getattr(getattr(span, "source_name", None), "name", "").rpartition("@@")[2]
        return name or f"%{node.index}"

    def run_results(nodes, precision, arrays):
        results = relay.Tuple([node.origin.native for node in nodes])
        part = tvm.IRModule(mod.functions, mod.type_definitions)
        part["main"] = relay.Function(mod["main"].params, results)
        return run(part, None, precision, arrays)

    read = {graph.title(node): node for node in graph.nodes if node.kind == INPUT}
    parameters = {
        name: read[name] if name in read else RelayNode(INPUT, None, [], value_of(var))
        for name, var in ((var.name_hint, var) for var in mod["main"].params)
    }
    reference = GraphSource(graph, parameters, name_of, run_results, inputs)
    return reference


def _copied(mod: tvm.IRModule) -> tvm.IRModule:
    return tvm.IRModule(mod.functions, mod.type_definitions, attrs=mod.attrs)


def _by_name(source: Source, arrays, model: CompiledModel) -> dict:
    """Return the inputs that a compiled model has, by name."""
    values = {}
    for name, array in zip(source.input_names, arrays):
        # TVM's importer may replace dots.
        values[name] = values[re.sub(r"\W", "_", name)] = array
    # Inputs that nothing reads are no parameters.
    return {name: values[name] for name in model.input_names}
