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

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import tvm
from tvm.contrib.onednn import compiler_lock
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
    from tvm_dnnl._frontend.onnx import open_shapes, registration  # require the package onnx

    registration.register()
    return open_shapes.import_model(prepared)


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
    from tvm_dnnl._frontend.torch.program import import_program  # requires the package torch

    return import_program(program)


def program_source(program, run: Callable, inputs) -> Source:
    """Return a program of `torch.export` as what a compiled model is compared with."""
    from tvm_dnnl._frontend.torch.verify import ProgramSource  # requires the package torch

    return ProgramSource(program, run, inputs)


def dynamo_graph(graph_module, build: Callable) -> Callable:
    """Return a graph of TorchDynamo as a function of tensors, which compiles it with `build`."""
    from tvm_dnnl._frontend.torch.dynamo import Graph  # requires the package torch

    return Graph(graph_module, build)
