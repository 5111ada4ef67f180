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
from tvm.contrib.onednn import progress
from tvm.contrib.onednn.compiled_model import CompiledModel
from tvm.contrib.onednn.frontend import prepare
from tvm.contrib.onednn.options import precision_of
from tvm.contrib.onednn.verify.check import CannotRun, Source, check
from tvm.contrib.onednn.verify.onnx_source import OnnxSource
from tvm.contrib.onednn.verify.table import Verification, errors

from . import compiled
from .importers import from_onnx


def is_wanted(verify: bool | None, model) -> bool:
    """Tell whether to verify a model: by default a program of PyTorch.

    Raises
    ------
    TypeError
        `verify` is no bool, or the model is a module, whose source is not known.
    """
    if verify is not None and not isinstance(verify, bool):
        raise TypeError(f"verify must be True or False, not {verify!r}")
    if verify and isinstance(model, tvm.IRModule):
        raise TypeError("verify=True is for models of PyTorch and ONNX: a module has no source")
    return is_program(model) if verify is None else verify


def is_program(model) -> bool:
    """Tell whether a model is a program of `torch.export`, without importing PyTorch."""
    return type(model).__name__ == "ExportedProgram"


def verify(
    source,
    model: CompiledModel,
    partition: Callable,
    options: Mapping,
    target=None,
    shape: Mapping | None = None,
    constants: Mapping | None = None,
) -> str:
    """Compare a compiled model with its source.

    Parameters
    ----------
    source : torch.export.ExportedProgram | onnx.ModelProto | str | os.PathLike
        The program, with its example inputs, or the ONNX model, for which inputs are drawn.
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
            reference = source_of(source, partition, options, target, shape, constants)
            if len(reference.inputs) != len(model.input_names):
                return f"not compared: {len(reference.inputs)} inputs"
            precision = precision_of(options.get("precision"))
            return check(reference, lambda x: compiled.flat(model(*x)), precision, progress.note)
        except CannotRun as error:
            return f"not compared: {error}"


def source_of(
    source,
    partition: Callable,
    options: Mapping,
    target=None,
    shape=None,
    constants=None,
    inputs=None,
) -> Source:
    """Return a program or ONNX model as a source; parameters are those of `verify`.

    Raises
    ------
    CannotRun
        There are no inputs.
    """

    def run(mod, precision, arrays):
        if precision is not None:
            mod = partition(mod, **{**options, "precision": precision})
        return compiled.results(mod, arrays, target)

    if is_program(source):
        if inputs is None and not source.example_inputs:
            raise CannotRun("the program has no example inputs")
        from .torch.verify import ProgramSource  # requires the package torch

        return ProgramSource(source, run, inputs)
    onnx_model = prepare.with_inputs(source, shape, constants)
    return OnnxSource(onnx_model, lambda part, *args: run(from_onnx(part), *args), inputs)


def errors_of(
    source, inputs, partition: Callable, options: Mapping, target, shape, constants
) -> Verification:
    """Compare each op; parameters are those of `verify`."""
    with progress.step("verify"):
        try:
            reference = source_of(source, partition, options, target, shape, constants, inputs)
            return errors(reference, precision_of(options.get("precision")), progress.note)
        except CannotRun as error:
            raise ValueError(f"the model cannot be verified: {error}") from error
