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
"""What a process without TVM's compiler can do: load and run models."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import tvm
from tvm.contrib.onednn.compiled_model import CompiledModel, load_library
from tvm.runtime.vm import VirtualMachine

if TYPE_CHECKING:
    from tvm.contrib.onednn.report.offload_report import OffloadReport

__all__ = ["CompiledModel", "dnnl_version", "load_model", "num_threads", "set_num_threads"]

# The virtual machine's default allocator keeps memory for each size that it has seen. A model that
# is called with more shapes than this, such as a decoder, gets one that frees it.
MOST_SHAPES = 16


def machine(library, report: OffloadReport | None = None) -> CompiledModel:
    """Return a model that runs the function `main` of a library on the virtual machine.

    Parameters
    ----------
    library : object
        The library, compiled or loaded.
    report : OffloadReport | None
        That of the module it was compiled from.
    """
    main = _Main(library)

    # The virtual machine checks the arguments.
    return CompiledModel(library, main, dict.fromkeys(main.parameters()), report)


class _Main:
    """The function `main` of a library, called with arrays.

    Parameters
    ----------
    library : object
        The library, compiled or loaded.
    """

    def __init__(self, library):
        self._library = library
        self._vm = VirtualMachine(library, tvm.cpu())
        self._main = self._vm["main"]
        self._shapes: set | None = set()

    def parameters(self) -> list[str]:
        """Return the names of the parameters."""
        module = self._vm.module
        count = int(module["get_function_arity"]("main"))
        return [str(module["get_function_param_name"]("main", i)) for i in range(count)]

    def __call__(self, arrays):
        if self._shapes is not None:
            self._shapes.add(tuple(np.shape(each) for each in arrays))
            if len(self._shapes) > MOST_SHAPES:
                self._vm = VirtualMachine(self._library, tvm.cpu(), memory_cfg="naive")
                self._main, self._shapes = self._vm["main"], None
        return _arrays(
            self._main(*[tvm.runtime.tensor(np.asarray(each, order="C")) for each in arrays])
        )


def _arrays(value):
    """Return a result as NumPy arrays."""
    if isinstance(value, tvm.runtime.Tensor):
        return value.numpy()
    if isinstance(value, tvm.runtime.ShapeTuple):
        return tuple(value)
    return tuple(map(_arrays, value))


def load_model(path: str | os.PathLike) -> CompiledModel:
    """Load a model from a file that `export_library` wrote.

    Parameters
    ----------
    path : str | os.PathLike
        The file. Libraries are code: load only those that you trust.

    Returns
    -------
    model : CompiledModel
        The model, without a report.

    Raises
    ------
    OSError
        There is no such file.
    RuntimeError
        TVM cannot load it, or it has replaced a file that this process has loaded.
    ValueError
        The file is not a library of Relax, or has no function `main`.
    """
    library = load_library(path, tvm.runtime.load_module)
    if not library.implements_function("vm_load_executable"):
        raise ValueError(f"{path} is not a library of a Relax module")
    return machine(library)


def dnnl_version() -> str:
    """Return the version of the oneDNN library that is loaded, such as "3.2.0"."""
    return str(tvm.get_global_func("runtime.contrib.dnnl.version")())


def num_threads() -> int:
    """Return the number of threads for models that have not run yet."""
    return int(tvm.get_global_func("runtime.contrib.dnnl.get_num_threads")())


def set_num_threads(number: int) -> None:
    """Set the number of threads for models that have not run yet; 0 undoes earlier calls."""
    tvm.get_global_func("runtime.contrib.dnnl.set_num_threads")(number)
