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
"""Libraries that are written as a whole: under another name first, which is then changed."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import gc
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from .arguments import path_of
from .progress import step

# The compilers that TVM looks for, to link a shared library
COMPILERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")

# Suffixes of what `compile` reads: a library must not replace a model by mistake
MODELS = (".onnx", ".tflite", ".pt2", ".pt")
# Prefix of the folders that files are written in. One that a killed process left is removed
MAKING, ABANDONED = ".dnnl-making-", 60.0


def export_library(compiled, path: str | os.PathLike, **options) -> None:
    """Export a compiled model to a file, which replaces an older one atomically.

    A full disk, an error or a killed process cannot leave half a file, and processes that have
    loaded the old file keep it. A killed process may leave a folder beside the file; a later call
    removes it.

    Parameters
    ----------
    compiled : object
        The result of TVM's compiler.
    path : str | os.PathLike
        The file. Its suffix selects the format, such as ".so" or ".tar".
    options
        Those of its `export_library`, such as `options=` for the C++ compiler.

    Raises
    ------
    OSError
        The file cannot be written, for example because there is no such folder, or the disk of
        `path` or of the temporary files is full.
    ValueError
        The suffix is that of a model's file, such as ".onnx".
    RuntimeError
        The C++ compiler that links a shared library failed, or there is none.
    """
    path = path_of(path)
    if path.endswith(MODELS):
        raise ValueError(
            f"path: {path} is the name of a model's file; name a library, such as m.so"
        )
    with step(f"write {os.path.basename(path)}"), replaced_at_end(path) as new:
        link(compiled, str(new), **options)


def link(compiled, path: str, **options) -> None:
    """Export a compiled model by TVM, with constants that are copied from memory to the file."""
    # An executable of Relay's VM has it in its module.
    owner = compiled if hasattr(compiled, "export_library") else getattr(compiled, "mod", None)
    if owner is None:
        raise TypeError(f"compiled must be a compiled model, not {type(compiled).__name__}")
    is_default = options.get("fcompile") is None and not path.endswith((".tar", ".wasm"))
    if _Write.imports is not None and is_default:
        options = {"fpack_imports": _Write.imports, **options}
    owner.export_library(path, **options)


def release_memory() -> None:
    """Free the weights that graphs hold, whose nodes refer to each other; return the memory.

    The C library would keep it, and oneDNN would pack its weights beside it.
    """
    gc.collect()
    with contextlib.suppress(AttributeError):  # another C library than GNU's
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def replaced_at_end(path: str | os.PathLike) -> Iterator[Path]:
    """Give a path to write to, of the same name, whose file then takes the place of another.

    What is there and no regular file, such as /dev/null, is written as it is, and so is a file in a
    folder that takes no other.
    """
    # A link stays one.
    path = Path(os.path.realpath(path_of(path)))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "path: this is a folder; name a file", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "path: make this folder first", str(path.parent))
    if path.exists() and not path.is_file() or not os.access(path.parent, os.W_OK):
        with _checked_writes():
            yield path
        return
    with making(path.parent) as folder:
        new = folder / path.name
        yield new
        put(new, path)


def put(new: Path, path: Path) -> None:
    """Give a file the name of another, which it replaces, when it is on the disk."""
    with new.open("rb") as file:
        os.fsync(file.fileno())
    new.replace(path)


@contextlib.contextmanager
def making(folder: Path) -> Iterator[Path]:
    """Make a new folder in a folder for a file to be finished in; it goes at the end."""
    _clean(folder)
    new = tempfile.mkdtemp(prefix=MAKING, dir=folder)
    try:
        with _locked(new), _checked_writes():
            yield Path(new)
    except RuntimeError as error:
        # The linker and tar are other processes, whose output TVM raises.
        for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            if os.strerror(number) in str(error):
                raise OSError(number, str(error)) from error
        raise
    except (AssertionError, FileNotFoundError, TypeError) as error:
        # TVM asks a compiler that it has not found for its target, or runs it.
        if reason := _no_compiler(error):
            raise RuntimeError(
                f"writing a shared library requires a C++ compiler, and {reason}: install one, "
                "such as with `apt-get install g++`, or name it in the environment variable CXX"
            ) from error
        raise
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _no_compiler(error: Exception) -> str:
    """Return the reason why TVM finds no C++ compiler, or nothing if that is not the error."""
    for name in ("CXX", "CC"):
        if program := os.environ.get(name):
            is_missing = shutil.which(program) is None
            return f"{name} names {program!r}, which is no program" if is_missing else ""
    # Its file, or tar, is missing.
    if isinstance(error, FileNotFoundError) or any(map(shutil.which, COMPILERS)):
        return ""
    return f"PATH has none of {', '.join(COMPILERS)}"


class _Write:
    """TVM's method that writes a module to a file, and how many blocks replace it now.

    `imports` writes what a module imports for the linker, instead of TVM.
    """

    imports: Callable | None = None
    owner: type | None = None
    name = ""
    original: Callable | None = None
    blocks = 0
    lock = threading.Lock()


def check_writes_of(owner: type, name: str, imports: Callable | None = None) -> None:
    """Name the class and method with which TVM writes a module to a file, for `making`.

    `imports` is the `fpack_imports` of `export_library`, by default TVM's.
    """
    _Write.owner, _Write.name, _Write.original = owner, name, vars(owner)[name]
    _Write.imports = imports


@contextlib.contextmanager
def _checked_writes() -> Iterator[None]:
    """Have an object file that cannot be written raise an OSError in a block, in any thread.

    LLVM ends the process when a disk is full, and TVM does not check that C source was written.
    So both write to memory, which Python copies to the file.
    """
    # Python may have been compiled for a C library without that call.
    if _Write.owner is None or not hasattr(os, "memfd_create"):
        yield
        return
    with _Write.lock:
        _Write.blocks += 1
        setattr(_Write.owner, _Write.name, _write)
    try:
        yield
    finally:
        with _Write.lock:
            _Write.blocks -= 1
            if not _Write.blocks:
                setattr(_Write.owner, _Write.name, _Write.original)


def _write(module, file_name: str, fmt: str = "") -> None:
    """Write a module to a file, as TVM's method does."""
    assert _Write.original is not None, "no block replaces TVM's method"
    with open(os.memfd_create("module"), "rb") as memory:
        fmt = fmt or Path(file_name).suffix[1:]
        _Write.original(module, f"/proc/self/fd/{memory.fileno()}", fmt)
        with writing(file_name) as file:
            shutil.copyfileobj(memory, file, 1 << 20)


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open a file, whose name is in the error if it cannot be written."""
    try:
        with open(path, "wb") as file:
            yield file
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


@contextlib.contextmanager
def _locked(folder: str, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a folder, which the system takes back when the process ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def _clean(folder: Path) -> None:
    """Remove what processes that were killed have left."""
    for left in folder.glob(f"{MAKING}*"):
        # The writer may end, or begin, at any time; then it is not ours.
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                with _locked(str(left), wait=False):
                    shutil.rmtree(left, ignore_errors=True)
