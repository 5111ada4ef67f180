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
"""Models that are compiled once for many processes, of which most import neither TVM nor onnx."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tvm.contrib.onednn.arguments import check_mapping, path_of
from tvm.contrib.onednn.cache import key_of_file
from tvm.contrib.onednn.cache import library as cached_file
from tvm.contrib.onednn.compiled_model import CompiledModel

from .loaded import libraries, load_model, versions

__all__ = ["cached_model"]


def cached_model(
    path: str | os.PathLike,
    *,
    folder: str | os.PathLike,
    shape: Mapping | None = None,
    constants: Mapping[str, object] | None = None,
    target=None,
    verify: bool | None = None,
    **options,
) -> CompiledModel:
    """Compile an ONNX file once for all processes that share a folder, and load the library.

    If the library is in the folder, neither TVM nor the package `onnx` is imported. The cache key
    is a digest of the file and the other arguments, of the libraries and the version of TVM, of
    oneDNN, this backend and `onnx`, of the PassContext if TVM is imported, and of the features of
    the CPU. See `cached_library` for the folder, and for modules.

    Parameters
    ----------
    path : str | os.PathLike
        The ONNX file. A file with external data is imported to compute the key.
    folder : str | os.PathLike
        The cache. Libraries are code: give write access only to users who may run code as you.
    shape, constants : Mapping | None
        Shapes and values of the model's inputs; see `from_onnx`.
    target : tvm.target.Target | str | None
        The target that TVM compiles for. Default: `host_target()`.
    verify : bool | None
        As for `compile`, where the library is not in the folder yet. A model that was verified, and
        one that was not, are two keys.
    options
        Those of `partition_for_dnnl`.

    Returns
    -------
    model : CompiledModel
        The model, without a report.

    Raises
    ------
    TypeError, ValueError
        As for `compile`.
    OSError
        The file cannot be read; or the library is not cached and cannot be written.

    Examples
    --------
    >>> model = tvm_dnnl.cached_model("model.onnx", folder="models", shape={"batch": 1})
    """
    path = path_of(path)
    check_mapping("shape", shape)
    check_mapping("constants", constants)
    verified = ("verified",) if verify else ()
    settings = (repr(sorted((shape or {}).items())), str(target), *verified, *versions())
    key = key_of_file(path, Path(__file__).parents[1], libraries(), constants, options, *settings)
    if key is None:
        from . import compiled, importers  # imports TVM

        # The file does not tell the content of its weights; the module does.
        mod = importers.from_onnx(path, shape, constants)
        key = compiled.key_of(mod, None, options, *settings)

    def write(library):
        from .. import dnnl

        given = dict(shape=shape, constants=constants, target=target, verify=verify)
        dnnl.compile(path, **given, **options).export_library(library)

    return load_model(cached_file(folder, key, write))
