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
"""A compiled model that is called with arrays, for either TVM."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .arguments import path_of
from .environment import utf8_path
from .export import export_library
from .installed import is_cut_off

if TYPE_CHECKING:
    from .report.offload_report import OffloadReport


class CompiledModel:
    """A model that can be called and exported; the result of `compile` and `load_model`.

    Threads may share a model, whose calls run one at a time: its executor has one set of inputs and
    outputs. For concurrent runs, load the library once for each thread.

    Parameters
    ----------
    library : object
        The result of TVM's compiler, or a loaded library.
    run : Callable
        Runs the model on a list of arrays, and returns its results as NumPy arrays.
    inputs : Mapping[str, tuple | None]
        The shape and dtype of each input by name, in order, or None where TVM checks them. Open
        dimensions are None.
    report : OffloadReport | None
        Which ops run on oneDNN; None if the library was loaded.
    export_options : Mapping | None
        Options that `export_library` of this library needs.

    Attributes
    ----------
    library : object
        As passed, for TVM's own API.
    input_names : list[str]
        The names of the inputs, in order, as TVM's importer writes those of an ONNX model: "x.1" is
        "x_1", and "0" is "input_0".
    report : OffloadReport | None
        As passed.
    """

    def __init__(
        self,
        library,
        run: Callable,
        inputs: Mapping[str, tuple | None],
        report: OffloadReport | None = None,
        export_options: Mapping | None = None,
    ):
        self.library, self.report = library, report
        self._export_options = dict(export_options or {})
        self.input_names = list(inputs)
        self._run, self._inputs = run, dict(inputs)
        self._lock = threading.RLock()
        with _fork_lock:
            _models.add(self)

    def __call__(self, *args, **kwargs):
        """Run the model once.

        Parameters
        ----------
        args, kwargs
            Arrays, in the order of `input_names` or by name, which may be the name in the ONNX
            model. Anything that `numpy.asarray` accepts will do, if it has the input's dtype.

        Returns
        -------
        results : numpy.ndarray | tuple
            The result, or a tuple of them. The arrays are copies.

        Raises
        ------
        TypeError
            An input is missing or has the wrong dtype, or there is no input of that name.
        ValueError
            An input has the wrong shape.
        """
        if kwargs or len(args) != len(self.input_names):
            args = self._in_order(args, kwargs)
        arrays = list(map(self._checked, self.input_names, args))
        with self._lock:
            return self._run(arrays)

    def _in_order(self, args, kwargs) -> tuple:
        """Return the arguments in the order of `input_names`."""
        if len(args) == 1 and isinstance(args[0], Mapping):
            raise TypeError(_NOT_BY_NAME)
        if not args and kwargs.keys() == self._inputs.keys():
            return tuple(kwargs[name] for name in self.input_names)
        values = dict(zip(self.input_names, args))
        kwargs = {self._imported_name(name): value for name, value in kwargs.items()}
        twice = sorted(values.keys() & kwargs.keys())
        values.update(kwargs)
        unknown = sorted(values.keys() - self._inputs.keys())
        missing = [name for name in self.input_names if name not in values]
        problems = [
            *(f"{name} is passed twice" for name in twice),
            *(f"there is no input {name}" for name in unknown),
            *(f"input {name} is missing" for name in missing),
        ]
        if len(args) > len(self.input_names):
            problems.append(f"{len(args)} inputs are passed")
        if problems:
            names = ", ".join(self.input_names) or "none"
            raise TypeError(f"{problems[0]}; the inputs are: {names}")
        return tuple(values[name] for name in self.input_names)

    def _imported_name(self, name: str) -> str:
        if name in self._inputs:
            return name
        imported = re.sub(r"\W", "_", name)
        names = (each for each in (imported, f"input_{imported}") if each in self._inputs)
        return next(names, name)

    def _checked(self, name: str, value) -> np.ndarray:
        array, known = _array(name, value), self._inputs[name]
        if known is None:
            # TVM checks the types that it has, and ends in an internal error for others.
            if array.dtype.kind in "mMc":
                raise TypeError(f"input {name}: the dtype {array.dtype} is not supported")
            return array
        shape, dtype = known
        if str(array.dtype) != dtype:
            raise TypeError(f"input {name}: dtype {array.dtype}, but the model expects {dtype}")
        fits = len(shape) == array.ndim and all(
            size in (None, given) for size, given in zip(shape, array.shape)
        )
        if not fits:
            expected = text_of_sizes("any" if size is None else str(size) for size in shape)
            raise ValueError(f"input {name}: shape {array.shape}, but the model expects {expected}")
        return array

    def export_library(self, path: str | os.PathLike, **options) -> None:
        """Export the model to a file, which `load_model` and TVM's own API load.

        Parameters
        ----------
        path : str | os.PathLike
            The file, such as "model.so".
        options
            Those of TVM's `export_library`.

        Raises
        ------
        OSError
            The file cannot be written; the old one, if any, is unchanged.
        """
        export_library(self.library, path, **{**self._export_options, **options})

    def __repr__(self):
        offloaded = ""
        if self.report is not None:
            partitions = self.report.partitions
            offloaded = (
                f", {self.report.offloaded} of {self.report.total} ops on oneDNN in {partitions} "
                f"partition{'s' if partitions != 1 else ''}"
            )
        return f"CompiledModel(inputs: {', '.join(self.input_names) or 'none'}{offloaded})"


_models: weakref.WeakSet[CompiledModel] = weakref.WeakSet()
_fork_lock = threading.RLock()
_held = contextlib.ExitStack()


def _hold_models() -> None:
    """Wait until no other thread runs a model, whose executor a fork would copy half-way."""
    _held.enter_context(_fork_lock)
    for model in list(_models):
        _held.enter_context(model._lock)


os.register_at_fork(before=_hold_models, after_in_parent=_held.close, after_in_child=_held.close)


def text_of_sizes(sizes: Iterable[str]) -> str:
    """Return sizes as numpy writes a shape."""
    sizes = list(sizes)
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _array(name: str, value) -> np.ndarray:
    """Return what is passed for an input as an array, also a tensor of PyTorch in bfloat16."""
    try:
        value = value.detach() if hasattr(value, "detach") else value
        if str(getattr(value, "dtype", None)) == "torch.bfloat16":
            return bfloat16_array(value.contiguous())
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    except Exception as error:  # of whatever class the value is
        raise TypeError(
            f"input {name}: the {type(value).__name__} cannot be read as an array: {error}"
        ) from error
    if array.dtype.kind in "OSU":
        if isinstance(value, Mapping):
            raise TypeError(_NOT_BY_NAME)
        kind = f"{type(value).__name__} (dtype {array.dtype})"
        raise TypeError(f"input {name}: {kind} is not an array of numbers")
    return array


_NOT_BY_NAME = "the inputs are passed as a dict: pass arrays, by name as in model(**inputs)"


def bfloat16_array(tensor) -> np.ndarray:
    """Return a contiguous tensor of PyTorch in bfloat16, which NumPy lacks, as an array."""
    import ml_dtypes

    return tensor.view(sys.modules["torch"].int16).numpy().view(ml_dtypes.bfloat16)


def tensor_view(address: int, shape, dtype) -> np.ndarray:
    """Return the memory of a tensor of TVM as an array, which does not keep it.

    TVM's functions that copy convert types and shapes at each call, which takes longer than a small
    model. NumPy before 2.1 has no write access by DLPack.
    """
    dtype = np.dtype(dtype)
    memory = (ctypes.c_byte * (math.prod(shape) * dtype.itemsize)).from_address(address or 0)
    return np.ndarray(shape, dtype, buffer=memory)


def partitioned(mod, is_partitioned: bool, partition: Callable, params, options: Mapping):
    """Return a partitioned module: the module itself if it is partitioned already.

    Parameters
    ----------
    mod : tvm.IRModule
        The module.
    is_partitioned : bool
        Whether it has functions for the DNNL code generator.
    partition : Callable
        `partition_for_dnnl`.
    params, options
        Its parameters and options.

    Raises
    ------
    TypeError
        There are parameters or options for a module that is partitioned already.
    """
    if not is_partitioned:
        return partition(mod, params, **options)
    if params or options:
        given = "params" if params else next(iter(options))
        raise TypeError(f"{given}: the module is partitioned already")
    return mod


# The files that were loaded from each path, by device and inode.
_loaded: dict[str, list[tuple[int, int]]] = {}
_loaded_lock = threading.Lock()


def load_library(path: str | os.PathLike, load_shared: Callable, load_other: Callable):
    """Load a library from a file.

    Parameters
    ----------
    path : str | os.PathLike
        The file. A shared library may have any name.
    load_shared : Callable
        Loads a shared library from a path.
    load_other : Callable
        Loads a file of another format, such as ".tar".

    Raises
    ------
    OSError
        There is no such file, or it cannot be read.
    TypeError, ValueError
        That is no path, or no library.
    """
    path = os.path.abspath(path_of(path))
    with open(path, "rb") as file:  # TVM's errors do not say so.
        header = file.read(_ELF_TYPE + 2)
        status = os.fstat(file.fileno())
    if not header:
        raise ValueError(f"{path} is empty: export or copy the library again")
    if not _is_shared_library(header):
        if path.endswith(_OTHERS):
            return load_other(path)
        raise ValueError(
            f"{path} is not a library: `compile` reads models, and `export_library` of a compiled "
            "model writes a library"
        )
    if is_cut_off(Path(path)):
        raise ValueError(f"{path} is cut off: export or copy the library again")
    return load_shared(utf8_path(_name_of_file(path, (status.st_dev, status.st_ino))))


# Formats that TVM links or loads by the suffix.
_OTHERS = (".tar", ".o", ".a", ".bc", ".ll")
# The offset of the type in the header of an ELF file, and that of shared libraries.
_ELF_TYPE, _ET_DYN = 16, 3


def _is_shared_library(header: bytes) -> bool:
    kind = header[_ELF_TYPE:]
    return header.startswith(b"\x7fELF") and sum(kind) == _ET_DYN  # of either byte order


def _name_of_file(path: str, file: tuple[int, int]) -> str:
    """Return a path of a file that no other file in this process was loaded by.

    The dynamic loader compares names before files: it would return an old library that the file has
    replaced. A mapped file keeps its inode.
    """
    with _loaded_lock:
        files = _loaded.setdefault(path, [])
        if file not in files:
            files.append(file)
        number = files.index(file) + 1
    folder, name = os.path.split(path)
    return os.path.join(folder, "./" * number + name)


def flat(value) -> list:
    """Return the arrays of a result, which may be a tuple of tuples."""
    if not isinstance(value, tuple):
        return [value]
    return [array for each in value for array in flat(each)]
