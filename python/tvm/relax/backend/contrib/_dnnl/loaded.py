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
"""What a process without TVM's compiler can do: load and run models.

Only tvm-ffi is imported, with the TVM runtime's library loaded: `import tvm` takes longer than all
else that a process does until the first result of a model.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import tvm_ffi
from tvm.contrib.onednn.compiled_model import (
    CompiledModel,
    load_library,
    tensor_view,
    text_of_sizes,
)
from tvm.contrib.onednn.installed import version

if TYPE_CHECKING:
    from tvm.contrib.onednn.report.offload_report import OffloadReport

__all__ = [
    "CompiledModel",
    "dnnl_version",
    "load_model",
    "num_threads",
    "set_num_threads",
]

MOST_SHAPES = 16
# Allocators of the virtual machine. The pooled one never frees memory.
_NAIVE, _POOLED = 1, 2


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
    # The virtual machine checks the arguments, see `_refused_input`.
    return CompiledModel(library, main, dict.fromkeys(main.names), report)


class _Main:
    """The function `main` of a library, called with arrays.

    Parameters
    ----------
    library : object
        The library, compiled or loaded.
    """

    def __init__(self, library):
        self._library = library if isinstance(library, tvm_ffi.Module) else _runnable(library)
        self._vm = _virtual_machine(self._library, _POOLED)
        self._main = self._vm["main"]
        self._shapes: set | None = set()
        self.names = self._parameters()

    def _parameters(self) -> list[str]:
        """Return the names of the parameters."""
        count = int(self._vm["get_function_arity"]("main"))
        return [str(self._vm["get_function_param_name"]("main", i)) for i in range(count)]

    def __call__(self, arrays):
        if self._shapes is not None:
            self._shapes.add(tuple([each.shape for each in arrays]))
            if len(self._shapes) > MOST_SHAPES:
                self._vm = _virtual_machine(self._library, _NAIVE)
                self._main, self._shapes = self._vm["main"], None
        try:
            return _arrays(self._main(*map(_tensor, arrays)))
        except Exception as error:
            refused = _refused_input(str(error), self.names, arrays)
            if refused is None:
                raise
            raise refused from error


# What the virtual machine says of an argument of another type than the function's.
_REFUSED = re.compile(
    r"ErrorContext\(fn=main, loc=param\[(\d+)\], param=(.*?), annotation=(.*?)\)\s", re.DOTALL
)
_ANNOTATION = re.compile(r'R\.Tensor\(\((.*?)\), dtype="(\w+)"\)')


def _refused_input(message: str, names: list[str], arrays) -> Exception | None:
    """Return the error for an input that the virtual machine refused; None for other errors."""
    refused = _REFUSED.search(message)
    if refused is None:
        return _refused_sizes(message, names, arrays)
    if int(refused[1]) >= len(arrays):
        return None
    name, array = refused[2], arrays[int(refused[1])]
    expected = _ANNOTATION.fullmatch(refused[3])
    if expected is None:
        given = f"{array.dtype} of shape {array.shape}"
        return ValueError(f"input {name}: {given}, but the model expects {refused[3]}")
    dtype, sizes = expected[2], [size.strip() for size in expected[1].split(",") if size.strip()]
    if str(array.dtype) != dtype:
        return TypeError(f"input {name}: dtype {array.dtype}, but the model expects {dtype}")
    is_shared = len(sizes) == array.ndim and all(
        not size.isdigit() or int(size) == given for size, given in zip(sizes, array.shape)
    )
    return ValueError(
        f"input {name}: shape {array.shape}, but the model expects {text_of_sizes(sizes)}"
        + (", in which each name has one value in all inputs" if is_shared else "")
    )


# What it says of sizes that it compares after those of the parameters.
_REFUSED_SIZES = re.compile(r"ErrorContext\(match_cast, ty=(.*?)\)\s+match_cast error.*", re.DOTALL)
# A size that is a multiple; see the frontend's `sizes.solve`.
_MULTIPLE = re.compile(r"(\w+) // (\d+) \* \2")


def _refused_sizes(message: str, names: list[str], arrays) -> Exception | None:
    """Return the error for inputs whose sizes do not fit each other, or what the model computes."""
    refused = _REFUSED_SIZES.search(message)
    if refused is None:
        return None
    expected = _ANNOTATION.fullmatch(refused[1])
    sizes = [] if expected is None else [size.strip() for size in expected[1].split(",")]
    multiples = {axis: _MULTIPLE.fullmatch(size) for axis, size in enumerate(sizes)}
    wrong = [
        (name, array, axis, int(match[2]))
        for name, array in zip(names, arrays)
        for axis, match in multiples.items()
        if match and array.ndim == len(sizes) and array.shape[axis] % int(match[2])
    ]
    if len(wrong) == 1:
        name, array, axis, factor = wrong[0]
        return ValueError(
            f"input {name}: shape {array.shape}, but the model expects a multiple of {factor} "
            f"along axis {axis}"
        )
    given = ", ".join(f"{name} {array.shape}" for name, array in zip(names, arrays))
    return ValueError(
        f"the sizes of the inputs {given} do not fit each other: a tensor that the model computes "
        f"from them must be {refused[1]}"
    )


def plans(library) -> list[str]:
    """Return what `get_plan` tells of each partition of a compiled library that was run."""
    modules = _modules(getattr(library, "mod", library))
    return [str(each["get_plan"]()) for each in modules if each.kind == "dnnl_json"]


def _runnable(executable) -> tvm_ffi.Module:
    """Return a module of an executable that can run.

    TVM adds an empty C source to a model that needs no code, which `jit` would let g++ compile.
    """
    sources = [each for each in _modules(executable.mod) if each.kind in ("c", "static_library")]
    is_empty = all(each.kind == "c" and each.inspect_source() in ("", ";") for each in sources)
    if is_empty:
        return executable.mod
    from .imports_file import write_imports

    return executable.jit(fpack_imports=write_imports)


def _modules(module: tvm_ffi.Module) -> Iterator[tvm_ffi.Module]:
    """Yield a module and those that it imports."""
    yield module
    for each in module.imports:
        yield from _modules(each)


def _virtual_machine(library, allocator: int):
    """Return the virtual machine of a library, ready to run on the CPU."""

    def make():
        machine = library["vm_load_executable"]()
        machine["vm_initialization"](_cpu().dlpack_device_type(), 0, allocator)
        return machine

    if "tvm" in sys.modules:
        return make()
    try:
        return make()
    except RuntimeError:
        # Functions of TVM's Python, such as relax.run.nonzero.
        import tvm  # noqa: F401

        return make()


@functools.cache
def _cpu():
    return tvm_ffi.device("cpu", 0)


@functools.cache
def _function(name: str):
    return tvm_ffi.get_global_func(name)


@functools.cache
def _types(dtype: np.dtype):
    native = dtype.newbyteorder("=")
    return native, tvm_ffi.dtype(native)


def _tensor(array):
    """Return an array as a tensor of TVM, which is aligned as compiled functions require."""
    native, dtype = _types(array.dtype)
    allocate = _function("runtime.TVMTensorAllocWithScope")
    tensor = allocate(array.shape, dtype, _cpu(), None)
    np.copyto(tensor_view(tensor.data_ptr(), array.shape, native), array)
    return tensor


def _arrays(value):
    """Return a result as NumPy arrays."""
    if isinstance(value, tvm_ffi.Tensor):
        return _array(value)
    if isinstance(value, tvm_ffi.Shape):
        return tuple(value)
    return tuple(map(_arrays, value))


def _array(tensor):
    """Return a copy of a tensor as an array."""
    try:
        return np.from_dlpack(tensor).copy()
    except (BufferError, RuntimeError):
        # DLPack in NumPy has no types of ml_dtypes.
        dtype = getattr(ml_dtypes, str(tensor.dtype))
        return tensor_view(tensor.data_ptr(), tuple(tensor.shape), dtype).copy()


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
        TVM cannot load it.
    ValueError
        The file is not a library, or none of Relax, or has no function `main`.
    """
    library = load_library(path, _load_shared, _load_other)
    if not library.implements_function("vm_load_executable"):
        raise ValueError(
            f"{path} is not a library of a Relax module; `export_library` of a model writes one"
        )
    return machine(library)


def versions() -> Iterator[str]:
    """Yield the versions of the packages that import and compile models."""
    yield from map(version, ("apache-tvm", "onnx"))
    yield dnnl_version()


def libraries() -> Iterator[Path]:
    """Yield the libraries in TVM's package, of which a process without TVM has some."""
    return (Path(importlib.util.find_spec("tvm").origin).parent / "lib").glob("*.so")


def _load_shared(path: str):
    # Not `tvm_ffi.load_module`, which asks for a suffix, and by default never frees the module.
    return _function("ffi.Module.load_from_file.so")(path, "so")


def _load_other(path: str):
    import tvm  # links object files

    return tvm.runtime.load_module(path)


def dnnl_version() -> str:
    """Return the version of the oneDNN library that is loaded.

    Returns
    -------
    version : str
        Major, minor and patch version, such as "3.2.0".
    """
    return str(_function("runtime.contrib.dnnl.version")())


def num_threads() -> int:
    """Return the number of threads for models that have not run yet.

    Returns
    -------
    number : int
        The number that was passed to `set_num_threads`, else the environment variable
        `TVM_DNNL_NUM_THREADS`, else OpenMP's default: `OMP_NUM_THREADS`, or the CPUs that affinity
        and cgroup quota allow. A model that was compiled with `num_threads` prefers its own number
        to OpenMP's default.
    """
    return int(_function("runtime.contrib.dnnl.get_num_threads")())


def set_num_threads(number: int) -> None:
    """Set the number of threads for models that have not run yet.

    oneDNN divides the work at a model's first run, and the model keeps that number of threads. If
    several threads run models, one oneDNN thread for each is usually best.

    Parameters
    ----------
    number : int
        The number of threads, or 0 to undo earlier calls.

    Raises
    ------
    RuntimeError
        The number is negative or too large, or this oneDNN does not run on OpenMP.
    """
    _function("runtime.contrib.dnnl.set_num_threads")(number)
