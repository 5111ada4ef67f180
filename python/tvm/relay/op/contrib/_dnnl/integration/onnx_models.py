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
"""The import of ONNX models."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import tvm
from tvm import relay
from tvm.contrib.onednn import compiler_lock, progress
from tvm.contrib.onednn.frontend import unrolled_layers
from tvm.contrib.onednn.frontend.functions import import_expanded
from tvm.contrib.onednn.frontend.prepare import Shape, inputs, prepare
from tvm.contrib.onednn.frontend.protobuf import fixed_size
from tvm.contrib.onednn.frontend.types import unsupported_type
from tvm.contrib.onednn.report.record import ATTR, Record

if TYPE_CHECKING:
    import onnx


@compiler_lock.entry("import")
def from_onnx(
    model: onnx.ModelProto | str | os.PathLike,
    shape: Mapping[str, Shape] | None = None,
    constants: Mapping[str, object] | None = None,
) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    """Import an ONNX model.

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
        The module, whose weights are constants. Open dimensions are `relay.Any()`.
    params : dict[str, tvm.nd.NDArray]
        Values of parameters of `main`, for `partition_for_dnnl`. It is empty, because weights are
        constants.

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
    _note_nodes()
    return import_expanded(prepare(model, shape, constants), _imported)


def _imported(model: onnx.ModelProto) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    """Import a prepared model, and record which layers are unrolled."""
    message = unsupported_type(model.graph)
    if message:
        raise tvm.error.OpNotImplemented(message)
    with unrolled_layers.noted() as notes:
        mod, params = relay.frontend.from_onnx(model, _empty(model), freeze_params=True)
    if notes:
        mod = mod.with_attr(ATTR, tvm.runtime.String(Record(unrolled=[*notes]).to_json()))
    return mod, params


def _empty(model: onnx.ModelProto) -> dict[str, list]:
    """Return the shapes of inputs with a size of zero, which TVM takes for an open size."""
    sizes = {
        value.name: list(map(fixed_size, value.type.tensor_type.shape.dim))
        for value in inputs(model)
    }
    return {
        name: [relay.Any() if size is None else size for size in shape]
        for name, shape in sizes.items()
        if 0 in shape
    }


@functools.cache
def _note_nodes() -> None:
    from tvm.relay.frontend.onnx import GraphProto  # requires the package onnx

    progress.note_nodes(GraphProto)
