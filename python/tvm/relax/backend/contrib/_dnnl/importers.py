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
"""The importers of ONNX models and programs of PyTorch: all that the backend uses of them."""

from __future__ import annotations

import contextlib
import importlib
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import tvm
from tvm.contrib.onednn import compiler_lock
from tvm.contrib.onednn.arguments import check_mapping, check_onnx_only, model_error, path_of
from tvm.contrib.onednn.frontend.functions import import_expanded
from tvm.contrib.onednn.frontend.prepare import Shape, prepare
from tvm.contrib.onednn.verify.check import Source

if TYPE_CHECKING:
    import onnx


@compiler_lock.entry("import")
def from_onnx(
    model: onnx.ModelProto | str | os.PathLike,
    shape: Mapping[str, Shape] | None = None,
    constants: Mapping[str, object] | None = None,
) -> tvm.IRModule:
    """Import an ONNX model, also with ops and shapes that TVM's importer does not support.

    The model is prepared by `tvm.contrib.onednn.frontend.prepare`: its dimensions are fixed as
    given, shapes are inferred, and constants and dead branches are folded.

    Parameters
    ----------
    model : onnx.ModelProto | str | os.PathLike
        The model, or its file. It is not modified.
    shape : Mapping[str, Sequence[int | str | None] | int] | None
        Shapes of inputs by name, such as ``{"x": (1, 3, 48, "width")}``: a number fixes a
        dimension, a name leaves it open, and None leaves it as it is in the model. Also sizes of
        named dimensions, such as ``{"batch": 1}``. Other dimensions stay as they are.
    constants : Mapping[str, object] | None
        Values of inputs by name, such as ``{"sr": 16000}``, which the model then no longer has: an
        array, or a number for every element.

    Returns
    -------
    mod : tvm.IRModule
        The module, whose weights are constants. Open dimensions are symbols.

    Raises
    ------
    ImportError
        The package `onnx` is not installed.
    OSError
        The file cannot be read.
    ValueError
        The file is not an ONNX model; or `shape` or `constants` names an input or dimension that
        the model does not have, or does not fit the input.
    tvm.error.OpNotImplemented
        An op of the model is not supported. TVM's importer has more errors, of various types.
    """
    prepared = prepare(model, shape, constants)
    from tvm_dnnl.frontend._dnnl.onnx import open_shapes, registration  # require the package onnx

    registration.register()
    return import_expanded(prepared, open_shapes.import_model)


@compiler_lock.entry("import a program of torch.export")
def from_exported_program(program) -> tvm.IRModule:
    """Import a program of `torch.export`.

    PyTorch decomposes it, and computes what depends on weights and constants only. Attention
    stays one op, boolean masks become float masks, and heads that a model repeats for its queries
    are broadcast. Ops that TVM's importer cannot read, or reads wrongly, have converters here.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program of a model in `eval()` mode. It is not modified.

    Returns
    -------
    mod : tvm.IRModule
        The module, whose weights are constants. Its function `main` returns a tensor if the model
        has one output, and a flat tuple otherwise.

    Raises
    ------
    ValueError
        The model was exported in training mode, or it changes its buffers or inputs; or an op
        cannot be imported, or not with the type that PyTorch gives it. The message names the node
        and the op, and says why.
    """
    if not is_program(program):
        raise model_error(program, "a torch.export.ExportedProgram (`from_file` reads a file)")
    from tvm_dnnl.frontend._dnnl.torch.program import import_program  # requires the package torch

    return import_program(program)


@compiler_lock.entry("import a TFLite model")
def from_tflite(
    model: str | os.PathLike | bytes, shape: Mapping[str, Sequence[int]] | None = None
) -> tvm.IRModule:
    """Import a TFLite model, also with shapes and weights that TVM's importer does not support.

    Operators on constants and on shapes are computed. Weights of dynamic-range quantization, which
    an operator in float32 reads, are converted to float32.

    Parameters
    ----------
    model : str | os.PathLike | bytes | tflite.Model
        The file, its contents, or the parsed model.
    shape : Mapping[str, Sequence[int]] | None
        Shapes of inputs by name. The others are those of the file, in which an unknown size is 1.

    Returns
    -------
    mod : tvm.IRModule
        The module, whose weights are constants.

    Raises
    ------
    ImportError
        The package `tflite` is not installed.
    OSError
        The file cannot be read.
    ValueError
        The file is not a TFLite model; or an operator cannot be imported, which the message names;
        or `shape` names an input that the model does not have, or does not fit it.
    tvm.error.OpNotImplemented
        Operators of the model have no converter, such as custom ones and variables.
    """
    from tvm_dnnl.frontend._dnnl.tflite.program import import_model  # requires the package tflite

    return import_model(model, shape)


def from_file(
    path: str | os.PathLike,
    shape: Mapping[str, Shape] | None = None,
    constants: Mapping[str, object] | None = None,
) -> tvm.IRModule:
    """Import a file: an ONNX model, a TFLite model, or a program of `torch.export` (`.pt2`).

    The format is detected from the contents of the file.

    Parameters
    ----------
    path : str | os.PathLike
        The file.
    shape, constants : Mapping | None
        As for `from_onnx`; a TFLite model has no constants, and a program neither.

    Returns
    -------
    mod : tvm.IRModule
        The module, whose weights are constants.

    Raises
    ------
    ImportError, OSError, TypeError, ValueError, tvm.error.OpNotImplemented
        As for `from_onnx`, `from_tflite` and `from_exported_program`.
    """
    return imported(*opened(path_of(path), shape, constants))


def is_program(model) -> bool:
    """Tell whether a model is a program of `torch.export`, without importing PyTorch."""
    return type(model).__name__ == "ExportedProgram"


def imported(model, shape, constants) -> tvm.IRModule:
    """Return the module that a model, which may be one, is imported to."""
    check_arguments(model, shape, constants)
    if isinstance(model, tvm.IRModule):
        return model
    return from_exported_program(model) if is_program(model) else from_onnx(model, shape, constants)


def check_arguments(model, shape, constants) -> None:
    """Raise TypeError for arguments that a model does not have."""
    if isinstance(model, tvm.IRModule) or is_program(model):
        check_onnx_only(shape, constants)


def opened(model, shape=None, constants=None):
    """Return what a file holds: a program of PyTorch, or the module of a TFLite model.

    An ONNX model, which may be a file, is returned as it is, and `None` for arguments that the
    module already has.

    Returns
    -------
    model, shape, constants : tuple
    """
    check_mapping("shape", shape)
    check_mapping("constants", constants)
    if not isinstance(model, (str, os.PathLike)):
        if not (isinstance(model, tvm.IRModule) or is_program(model) or hasattr(model, "graph")):
            kinds = "an onnx.ModelProto, a torch.export.ExportedProgram or a tvm.IRModule"
            raise model_error(model, f"a path, {kinds}")
        return model, shape, constants
    model = path_of(model, "model")
    with open(model, "rb") as file:
        begin = file.read(8)
    if begin[4:] == b"TFL3":
        if constants:
            raise TypeError("constants is for ONNX models")
        return from_tflite(model, shape), None, None
    if begin.startswith(b"PK"):
        return _loaded_program(model), shape, constants
    for suffix, what in ((".tflite", "TFLite model"), (".pt2", "program of torch.export")):
        if model.endswith(suffix):
            raise ValueError(
                f"{model} is not a {what}, but its name ends with {suffix}: it "
                + ("is empty" if not begin else "is damaged, or another kind of file")
            )
    return model, shape, constants


def _loaded_program(path: str):
    """Load a program of `torch.export`, which may have the ops of quantized ones."""
    try:
        import torch
        import torch.ao.quantization.fx._decomposed  # registers the ops of PT2E
    except ImportError as error:
        raise ImportError(
            "programs of PyTorch require the package torch: pip install torch"
        ) from error

    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        parts = [name for name in archive.namelist() if name.endswith(".json")]
        if any(b"torchao" in archive.read(name) for name in parts):
            importlib.import_module("torchao")
    try:
        return torch.export.load(path)
    except Exception as error:  # of whatever kind
        raise ValueError(
            f"{path} is no program of torch.export, which torch.export.save writes, or damaged: "
            f"{type(error).__name__}: {str(error).strip(' .')}. If its results are of a class of "
            "another package, such as transformers, import that class first"
        ) from error


def program_source(program, run: Callable, inputs) -> Source:
    """Return a program of `torch.export` as what a compiled model is compared with."""
    from tvm_dnnl.frontend._dnnl.torch.verify import ProgramSource  # requires the package torch

    return ProgramSource(program, run, inputs)


def dynamo_graph(graph_module, build: Callable) -> Callable:
    """Return a graph of TorchDynamo as a function of tensors, which compiles it with `build`."""
    from tvm_dnnl.frontend._dnnl.torch.dynamo import Graph  # requires the package torch

    return Graph(graph_module, build)
