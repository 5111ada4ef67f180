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
"""The compiler options for the C source that the DNNL code generator writes."""

from __future__ import annotations

import sys
from pathlib import Path

import tvm
from tvm._ffi.libinfo import find_include_path

from .runtime import codegen_in_context

_HEADER = "dnnl/dnnl_kernel.h"


def _folder_of_the_kernels() -> Path:
    """Return the directory below which the header of the kernels is."""
    package = Path(tvm.__file__).resolve().parent
    # TVM's root, if `package` is in its python/; else the checkout that holds build/prebuilt/tvm.
    folders = [root / "src" / "runtime" / "contrib" for root in package.parents[1:3]]
    # An installed package has the header itself.
    for folder in (*folders, package / "include"):
        if (folder / _HEADER).is_file():
            return folder
    raise RuntimeError(
        f"{_HEADER} is not there: this tvm package, {package}, lies in no source tree. Compile "
        "with -I<the source tree>/src/runtime/contrib and TVM's own include directories."
    )


def c_source_options() -> list[str]:
    """Return the options with which C and C++ compilers take the generated source.

    They name the directories of the headers, and let the linker check nothing: a library of a
    model finds TVM's and DNNL's functions in the process that loads it. It asks for all of them
    at once, so that a TVM without DNNL refuses to load it instead of failing later.

    Returns
    -------
    options : list[str]
        For ``lib.export_library(path, options=c_source_options())``, or for a command line.

    Raises
    ------
    RuntimeError
        The header of the kernels is not where the tree of this TVM has it.
    """
    folders = dict.fromkeys([str(_folder_of_the_kernels()), *find_include_path()])
    bind = ["-Wl,-z,now"] if sys.platform.startswith("linux") else []
    return [f"-I{folder}" for folder in folders] + bind


def export_options() -> dict | None:
    """Return the options of `export_library` for the current PassContext; None if none are needed.

    With them, a library must be exported before it can run.
    """
    return {"options": c_source_options()} if codegen_in_context() == "C_SRC" else None
