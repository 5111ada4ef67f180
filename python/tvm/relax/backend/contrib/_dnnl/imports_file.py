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
"""The imports of a module as a file for the linker, with each constant written from its memory.

TVM's own way has four copies of all constants in memory: the serialized constants, the serialized
imports, a constant of LLVM, and an object file.
"""

from __future__ import annotations

import ctypes
import math
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import tvm_ffi
from tvm.contrib.onednn.export import writing

# Before each tensor in a serialized const loader.
_TENSOR_MAGIC = 0xDD5E40F096B4A13F
_CPU = 1
# Tensors whose first bytes differ are not compared.
_BEGIN = 1024
# The module that the library itself becomes.
_LIBRARY = "_lib"


def write_imports(module: tvm_ffi.Module, is_system_library, prefix: str, folder: str) -> str:
    """Write what a module imports; return the file, an assembly source: TVM's `fpack_imports`.

    Parameters
    ----------
    module : tvm_ffi.Module
        The module, which is a part of what is written unless it is compiled into the library.
    is_system_library : bool
        Not used: such a library is not written to a file of its own.
    prefix : str
        Of the symbol.
    folder : str
        Where to write.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    data, source = Path(folder) / "imports.bin", Path(folder) / "imports.s"
    with writing(data) as file:
        file.write(struct.pack("<Q", 0))
        for part in _parts(module):
            file.write(part)
        size = file.tell() - 8
        file.seek(0)
        file.write(struct.pack("<Q", size))
    name = prefix + str(tvm_ffi.get_global_func("runtime.ModuleImportsBlobName")())
    source.write_text(
        f""".section .rodata
.globl {name}
.type {name}, %object
.size {name}, {size + 8}
.balign 64
{name}:
.incbin "{data}"
.section .note.GNU-stack,"",%progbits
""",
        encoding="utf-8",
    )
    return os.fspath(source)


def _parts(root) -> Iterator[bytes | memoryview]:
    """Yield the serialized imports: a tree in compressed rows, then each module's kind and bytes.

    Modules that are compiled are one, the library.
    """
    modules: list = []
    stack = [root]
    while stack:
        module = stack.pop()
        if not any(module.same_as(known) for known in modules):
            modules.append(module)
            stack += reversed(module.imports)
    compiled = [module for module in modules if module.is_compilation_exportable()]
    groups = [[module] for module in modules if not module.is_compilation_exportable()]
    if compiled:
        groups.insert(0 if root.is_compilation_exportable() else len(groups), compiled)

    def place(module):
        return next(i for i, group in enumerate(groups) if any(map(module.same_as, group)))

    rows, columns = [0], []
    for i, group in enumerate(groups):
        places = [place(each) for module in group for each in module.imports]
        columns += [each for each in dict.fromkeys(places) if each != i]
        rows.append(len(columns))
    yield from map(_numbers, (rows, columns))
    save = tvm_ffi.get_global_func("runtime.contrib.dnnl.module_bytes")
    for group in groups:
        if group is compiled:
            yield _text(_LIBRARY)
            continue
        (module,) = group
        yield _text(module.kind)
        # Whether elements of a few bits are packed is TVM's matter.
        if module.kind == "const_loader" and all(
            each.dtype.bits >= 8 for each in module["get_const_var_tensor"]().values()
        ):
            yield from _sized(list(_constants(module)))
        else:
            yield from _sized([memoryview(save(module))])


def _constants(loader) -> Iterator[bytes | memoryview]:
    """Yield a serialized const loader: tensors by name, and their names by function.

    Equal tensors have one name, such as a weight that several partitions read.
    """
    tensors = {str(name): each for name, each in loader["get_const_var_tensor"]().items()}
    names = _names_of_equal(tensors)
    kept = [name for name in tensors if names[name] == name]
    yield _texts(kept)
    yield struct.pack("<Q", len(kept))
    for name in kept:
        yield from _tensor(tensors[name])
    users = {}
    for module in loader.imports:
        if module.implements_function("get_const_vars"):
            own = map(str, module["get_const_vars"]())
            users[str(module["get_symbol"]())] = [names[name] for name in own]
    yield _texts(users)
    yield struct.pack("<Q", len(users))
    yield from map(_texts, users.values())


def _names_of_equal(tensors: dict) -> dict[str, str]:
    """Return by name that of the first tensor with the same type, shape and elements."""
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
    known: dict[tuple, list[str]] = {}
    names = {}
    for name, tensor in tensors.items():
        size = _bytes_of(tensor)
        begin = ctypes.string_at(tensor.data_ptr(), min(size, _BEGIN)) if size else b""
        alike = known.setdefault((str(tensor.dtype), tuple(tensor.shape), begin), [])
        names[name] = name
        for other in alike:
            if not size or not compare(tensor.data_ptr(), tensors[other].data_ptr(), size):
                names[name] = other
                break
        else:
            alike.append(name)
    return names


def _bytes_of(tensor) -> int:
    dtype = tensor.dtype
    return math.prod(tensor.shape) * ((dtype.bits * dtype.lanes + 7) // 8)


def _tensor(tensor) -> Iterator[bytes | memoryview]:
    shape, dtype = tuple(tensor.shape), tensor.dtype
    yield struct.pack("<QQii", _TENSOR_MAGIC, 0, _CPU, 0)
    yield struct.pack("<iBBH", len(shape), dtype.type_code, dtype.bits, dtype.lanes)
    yield struct.pack(f"<{len(shape)}q", *shape)
    size = _bytes_of(tensor)
    yield struct.pack("<q", size)
    if size:
        yield memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")


def _sized(parts: list) -> Iterator[bytes | memoryview]:
    yield struct.pack("<Q", sum(len(part) for part in parts))
    yield from parts


def _text(value) -> bytes:
    encoded = str(value).encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _texts(values: Iterable) -> bytes:
    texts = [_text(value) for value in values]
    return struct.pack("<Q", len(texts)) + b"".join(texts)


def _numbers(values: list[int]) -> bytes:
    return struct.pack(f"<{len(values) + 1}Q", len(values), *values)
