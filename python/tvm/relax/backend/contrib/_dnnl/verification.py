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
from tvm.contrib.onednn.options import precision_of
from tvm.contrib.onednn.verify.check import check

from . import compiled


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
    program, model: CompiledModel, partition: Callable, options: Mapping, target=None
) -> str:
    """Compare a compiled program of PyTorch with PyTorch, on its example inputs.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program.
    model : CompiledModel
        What it was compiled to.
    partition : Callable
        `partition_for_dnnl`.
    options : Mapping
        The options that it was called with.
    target : tvm.target.Target | str | None
        What TVM compiles for.

    Returns
    -------
    note : str
        What was compared.

    Raises
    ------
    VerificationError
        The results differ by more than rounding explains.
    """
    if not program.example_inputs:
        return "not compared: the program has no example inputs"
    from .torch.verify import ProgramSource  # requires the package torch

    def run(mod, precision, arrays):
        if precision is not None:
            mod = partition(mod, **{**options, "precision": precision})
        return compiled.results(mod, arrays, target)

    with progress.step("compare with PyTorch"):
        source = ProgramSource(program, run)
        if len(source.inputs) != len(model.input_names):
            return f"not compared: {len(source.inputs)} example inputs"
        precision = precision_of(options.get("precision"))
        return check(source, lambda arrays: compiled.flat(model(*arrays)), precision, progress.note)
