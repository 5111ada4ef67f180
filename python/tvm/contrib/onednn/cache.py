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
"""A folder of compiled libraries, each under the digest of what it was made from.

A library's name has the digest of its content, too, so that one file says all: it is there as a
whole, or not at all. Writers finish it under a name of their own and then link it; of two that make
the same one, the second keeps the file of the first, which a process may have loaded.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np

from .arguments import path_of
from .compiler_lock import held
from .export import making
from .export import put as replace


def library(folder: str | os.PathLike, key: str, write: Callable[[str], None]) -> str:
    """Return the path of the library of a key; make it if it is not there, or not as it was made.

    Parameters
    ----------
    folder : str | os.PathLike
        The cache, which is made if it is not there.
    key : str
        The digest of all that the library depends on.
    write : Callable[[str], None]
        Writes the library to a path that ends in ".so".

    Raises
    ------
    OSError
        The library is not there and cannot be written.
    """
    folder = Path(path_of(folder, "folder")).expanduser().absolute()
    known = _find(folder, key)
    if known is not None:
        return known
    with contextlib.ExitStack() as stack:
        stack.enter_context(held())
        known = _find(folder, key)  # another thread may have made it meanwhile
        if known is not None:
            return known
        with _explained(folder, "no library can be made in the folder; name another one"):
            folder.mkdir(parents=True, exist_ok=True)
            new = stack.enter_context(making(folder))
        written = new / "library.so"
        write(str(written))
        path = folder / _name(key, written)
        # Docker makes an empty folder of a file to be mounted that is not there.
        if path.is_dir() and not path.is_symlink():
            with _explained(path, "a folder has the name of a library; remove it"):
                path.rmdir()
        put(written, path)
    return str(path)


def _find(folder: Path, key: str) -> str | None:
    """Return the path of the intact library of a key, if there is one."""
    paths = sorted(folder.glob(f"{key}-*.so"))
    return next((str(path) for path in paths if _is_intact(path)), None)


def _is_intact(path: Path) -> bool:
    """Whether a file is the library that its name says."""
    # It may be gone since, or be another's to read; to open a pipe would never end.
    with contextlib.suppress(OSError):
        return path.is_file() and path.name == _name(path.name.partition("-")[0], path)
    return False


def put(new: Path, path: Path) -> None:
    """Give a finished library its name, unless an intact file has it."""
    with new.open("rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(new, path)
    except OSError:  # that file, a damaged one, or a file system without hard links
        if not _is_intact(path):
            replace(new, path)


@contextlib.contextmanager
def _explained(path: Path, remedy: str) -> Iterator[None]:
    """Raise an OSError of the same class that says what to do, and about which path."""
    try:
        yield
    except OSError as error:
        text = f"folder: {error.strerror}: {remedy}"
        raise OSError(error.errno, text, str(path)) from error


def _name(key: str, path: Path) -> str:
    """Return the name of a library with the content that a file has."""
    return f"{key}-{_digest(path)}.so"


def _digest(path: Path) -> str:
    """Return the digest of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def key_of(
    tvm: ModuleType,
    api: Path,
    texts: Iterable[str],
    params: dict | None,
    options: dict,
    *settings: str,
) -> str:
    """Return the digest of what a library is made from.

    Besides the arguments that is the PassContext, and what compiles here: TVM and the backend, as
    their files are, and what the CPU can do.

    Parameters
    ----------
    tvm : ModuleType
        The TVM that compiles.
    api : Path
        The folder with the part of the backend that only this TVM has.
    texts : Iterable[str]
        The module, in texts that are the same in each process.
    params : dict | None
        Values by name.
    options : dict
        Those of `partition_for_dnnl`. In what order one has its names does not matter.
    settings : str
        All else that is to be told apart.
    """
    how = [repr((_sorted(options), settings, *_passes(tvm))), tvm.ir.save_json(_config(tvm))]
    return _digest_of([*_of_this_machine(tvm, api), *how, *texts, *_arrays(params)])


def _arrays(values: Mapping | None) -> Iterator[str | bytes]:
    """Yield what arrays by name are, and their elements."""
    for name, value in sorted((values or {}).items()):
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value, order="C")
        yield f"{name} {array.dtype} {array.shape}"
        yield array.tobytes()


# What an ONNX file has where weights are in other files: the key of their path.
_EXTERNAL = b"\n\x08location"


def key_of_file(
    path: str | os.PathLike,
    api: Path,
    libraries: Iterable[Path],
    constants: Mapping | None,
    options: dict,
    *settings: str,
) -> str | None:
    """Return the digest of what a library is made from if that is an ONNX file.

    TVM need not be imported; if it is, its PassContext is part of the key.

    Parameters
    ----------
    path : str | os.PathLike
        The model.
    api : Path
        The folder with the part of the backend that only this TVM has.
    libraries : Iterable[Path]
        Libraries of TVM that this process may not have loaded; those that it has are part of the
        key.
    constants : Mapping | None
        Values of inputs by name.
    options : dict
        Those of `partition_for_dnnl`.
    settings : str
        All else that is to be told apart.

    Returns
    -------
    key : str | None
        The digest; None if the file says that some weights are in other files.
    """
    content = Path(path_of(path)).read_bytes()
    if _EXTERNAL in content:
        return None
    tvm = sys.modules.get("tvm")
    passes: tuple = (2, [], [])
    config = ""
    if tvm and hasattr(tvm, "transform"):
        passes, given = _passes(tvm), _config(tvm)
        config = tvm.ir.save_json(given) if given else ""
    how = repr((_sorted(options), settings, *passes)), config
    contents = {_content_of("", "", str(each)) for each in libraries} | _loaded_libraries()
    return _digest_of([*_of_this_cpu(api), *how, *sorted(contents), content, *_arrays(constants)])


def _passes(tvm) -> tuple:
    context = tvm.transform.PassContext.current()
    return context.opt_level, list(context.required_pass), list(context.disabled_pass)


def _config(tvm):
    return tvm.transform.PassContext.current().config


def _sorted(options: dict) -> list[tuple]:
    """Return options in an order that is the same in each process."""
    return [
        # A set has its names in an order that each process draws.
        (name, sorted(map(repr, value)) if _is_names(value) else value)
        for name, value in sorted(options.items())
    ]


def _digest_of(texts: Iterable[str | bytes]) -> str:
    """Return the digest of texts."""
    digest = hashlib.sha256()
    for data in texts:
        # With its length: two texts are not another two.
        data = data.encode(errors="surrogateescape") if isinstance(data, str) else data
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _is_names(value) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str)


def _of_this_machine(tvm: ModuleType, api: Path) -> Iterator[str]:
    """Yield what says which TVM, backend and CPU this is."""
    yield tvm.__version__
    version = tvm.get_global_func("runtime.contrib.dnnl.version", allow_missing=True)
    yield str(version and version())
    yield from sorted(_loaded_libraries())
    yield from _of_this_cpu(api)


def _loaded_libraries() -> set[str]:
    """Return what tells the contents of the libraries of TVM and oneDNN in this process."""
    # Address, rights, offset, device, inode and path of what is in memory.
    lines = (line.split(maxsplit=5) for line in _lines("/proc/self/maps"))
    files = {tuple(words[3:]) for words in lines if _is_library(words[-1])}
    return {_content_of(*file) for file in files}


def _of_this_cpu(api: Path) -> Iterator[str]:
    """Yield what says which Python of the backend and CPU this is."""
    yield _python_in(Path(__file__).parent)
    yield _python_in(api)
    flags = next((line for line in _lines("/proc/cpuinfo") if line.startswith("flags")), "")
    yield flags or platform.processor()
    # oneDNN reads the second one, its former name, if the first is not set.
    names = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
    yield next((os.environ[name] for name in names if os.environ.get(name)), "")


def _is_library(path: str) -> bool:
    """Tell if a file that is in memory is a library of TVM or oneDNN."""
    name = Path(path).name
    return ".so" in name and name.startswith(("libtvm", "libdnnl"))


# The bytes before a build id of 20 bytes: the lengths of name and id, the kind of note, the name.
_BEFORE_ID = b"".join(n.to_bytes(4, "little") for n in (4, 20, 3)) + b"GNU\0"


@functools.lru_cache(maxsize=None)
def _content_of(device: str, inode: str, path: str) -> str:
    """Return what tells the content of a library: its build id, or its digest if it has none.

    The linker makes the former of the content, and leaves it at the beginning of the file.
    """
    try:
        with open(path, "rb") as file:
            _, _, rest = file.read(4096).partition(_BEFORE_ID)
        return rest[:20].hex() or _digest(Path(path))
    except OSError:
        # It was replaced since it was loaded. While it is in memory, no other has its inode.
        return f"{device} {inode} {path}"


@functools.lru_cache(maxsize=None)
def _python_in(folder: Path) -> str:
    """Return the digest of the Python in a folder, wherever that is installed."""
    digest = hashlib.sha256()
    # An editor's lock file beside them may be a link to nowhere.
    for path in sorted(filter(Path.is_file, folder.rglob("*.py"))):
        digest.update(os.fsencode(f"{path.relative_to(folder)} {_digest(path)}\n"))
    return digest.hexdigest()


def _lines(path: str) -> list[str]:
    """Return the lines of a file, none if it is not there."""
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read()).splitlines()
    except OSError:
        return []
