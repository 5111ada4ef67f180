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
"""Compiling the C source that code generators make, so that a built library can be run."""

import atexit
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile

import tvm
from tvm.contrib import cc


def imported_modules(lib):
    """Return the modules that a compiled or loaded library consists of, each once.

    Parameters
    ----------
    lib : Runner, factory of an executor, tvm.runtime.vm.Executable or tvm.runtime.Module
        The library.
    """
    for attribute in ("lib", "module", "mod"):
        while not isinstance(lib, tvm.runtime.Module) and hasattr(lib, attribute):
            lib = getattr(lib, attribute)
    found, stack = [], [lib]
    while stack:
        module = stack.pop()
        if module not in found:
            found.append(module)
            stack.extend(reversed(module.imported_modules))
    return found


def c_sources(lib):
    """Return the texts of the C source that is to be compiled before a library can run."""
    modules = [module for module in imported_modules(lib) if module.type_key == "c"]
    # A model of which nothing is left to TVM may have a C module of an empty statement.
    return [text for text in (module.get_source() for module in modules) if text.strip() != ";"]


def export(lib, path, **options):
    """Write a library of either executor to a file, with the options that its C source needs.

    Parameters
    ----------
    lib : factory of an executor, or tvm.runtime.vm.Executable
        The library.
    path : str or Path
        The file.
    options : dict
        What ``export_library`` takes.
    """
    from tvm.relay.op.contrib import dnnl  # pylint: disable=import-outside-toplevel

    if c_sources(lib):
        options.setdefault("options", dnnl.c_source_options())
    getattr(lib, "mod", lib).export_library(str(path), **options)


def compiled(lib):
    """Make a library that can run: one with C source is exported and loaded again.

    The compiler is told to be quick. What it made of a text is kept until the process ends, but
    each library has its own file: two models may have the same code and other constants.

    Parameters
    ----------
    lib : factory of an executor, tvm.runtime.vm.Executable or tvm.runtime.Module
        The library. One that was loaded from a file has no C source.

    Returns
    -------
    lib : the same, or tvm.runtime.Module
        What can run.
    path : str or None
        From where it was loaded, if it was; nothing is there any more.
    """
    if not c_sources(lib):
        return lib, None
    with tempfile.TemporaryDirectory(prefix="dnnl_c_source_") as folder:
        path = os.path.join(folder, "lib.so")
        export(lib, path, fcompile=_compile_quickly)
        loaded = tvm.runtime.load_module(path)
    return loaded, path


@functools.cache
def _object_folder():
    folder = tempfile.mkdtemp(prefix="dnnl_objects_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _object_of(source, options):
    """Compile a C file, or take what came out for the same text before."""
    command = [cc.get_cc(), "-O0", "-fPIC", "-c", *[o for o in options if o.startswith("-I")]]
    with open(source, "rb") as file:
        text = file.read()
    key = hashlib.sha256(repr(command).encode() + text).hexdigest()
    made = os.path.join(_object_folder(), f"{key}.o")
    if not os.path.exists(made):
        subprocess.run([*command, source, "-o", made], check=True)
    return made


def _compile_quickly(output, files, options):
    files = [_object_of(name, options) if name.endswith(".c") else name for name in files]
    cc.create_shared(output, files, options)
