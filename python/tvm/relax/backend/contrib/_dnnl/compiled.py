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
"""Modules that are compiled in one call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import tvm
import tvm_ffi
from tvm import relax
from tvm.contrib.onednn import cache, host, progress
from tvm.contrib.onednn.arguments import check_module, check_options
from tvm.contrib.onednn.compiled_model import flat
from tvm.contrib.onednn.export import link
from tvm.contrib.onednn.ops.tensors import COMPILER
from tvm.target import codegen

from .codegen import generate
from .loaded import machine, plans


@functools.cache
def host_target() -> tvm.target.Target:
    """Return the LLVM target of this machine.

    Returns
    -------
    target : tvm.target.Target
        The target "llvm", with the triple and the CPU that LLVM detects. A library that is compiled
        for it may not run on another CPU.
    """

    def make(triple, cpu=None):
        return tvm.target.Target(
            {"kind": "llvm", "mtriple": triple, **({"mcpu": cpu} if cpu else {})}
        )

    return host.host_target(codegen, make)


def key_of(mod: tvm.IRModule, params: dict | None, options: dict, *settings: str) -> str:
    """Return the digest of what a library of a module is made from; see `cache.key_of`."""
    # The text has names, the hash values of constants. TVM 0.27 cannot save all modules as JSON.
    texts = [mod.script(), str(tvm_ffi.structural_hash(mod))]
    return cache.key_of(tvm, Path(__file__).parents[1], texts, params, options, *settings)


def cached_library(
    mod: tvm.IRModule, params: dict | None, folder, target, options: dict, partition: Callable
) -> str:
    """Return the path of a module's library in a cache; partition and compile it if it is new."""
    check_module(mod, tvm.IRModule)
    check_options(options, partition)

    def write(path):
        link(build(partition(mod, params, **options), target), path)

    return cache.library(folder, key_of(mod, params, options, str(target)), write)


def is_partitioned(mod: tvm.IRModule) -> bool:
    """Tell whether a module has functions for the DNNL code generator."""
    return any(
        isinstance(func, relax.Function) and str(func.attrs.get("Codegen", "")) == COMPILER
        for func in mod.functions.values()
    )


def target_of(target) -> tvm.target.Target:
    """Return a target that is checked; None stands for this machine."""
    return host.checked_target(target, tvm.target.Target, host_target)


def build(mod: tvm.IRModule, target: tvm.target.Target | str | None):
    """Compile a partitioned module to a library.

    Raises
    ------
    ValueError
        TVM has no code for a call, because the rank of one of its arguments is unknown.
    """
    target = target_of(target)
    with progress.passes_noted(tvm):
        try:
            return tvm.compile(generate(mod), target=target)
        except tvm.error.InternalError as error:
            _, is_known, call = str(error).partition("CodeGenVM cannot emit")
            if not is_known:
                raise
            call = call.partition("Offending call:")[2].strip().partition("\n")[0]
            raise ValueError(
                f"TVM has no code for {call}: the number of dimensions of an argument is unknown. "
                "Give the shapes of the model's inputs, such as shape={'x': (1, 'n')}"
            ) from error


def results(mod: tvm.IRModule, arrays: list, target=None) -> tuple[list, list[str]]:
    """Compile a partitioned module and run it once.

    Returns
    -------
    results, plans : list
        The results as a flat list, and what `get_plan` of each partition tells.
    """
    model = machine(build(mod, target))
    return flat(model(*arrays)), plans(model.library)
