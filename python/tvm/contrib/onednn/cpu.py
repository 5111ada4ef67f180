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
"""Asks oneDNN which data types it computes with on this CPU, on which models are assumed to run."""

from __future__ import annotations

import functools
from collections.abc import Callable

# The types of floating-point values that oneDNN has code for, on one CPU or another.
REAL = ("float32", "bfloat16", "float16")

_find_function: Callable | None = None


def connect(find_function: Callable) -> None:
    """Set how functions of the runtime are found; the API of each TVM does so when it is imported.

    Parameters
    ----------
    find_function : Callable
        Returns TVM's global function of a name, or None if there is none.
    """
    global _find_function  # pylint: disable=global-statement
    _find_function = find_function
    has_amx.cache_clear()
    prefers.cache_clear()
    computes.cache_clear()


def _query(name: str) -> Callable | None:
    if _find_function is None:
        raise RuntimeError("no TVM is connected: import tvm.relay.op.contrib.dnnl, or tvm_dnnl")
    return _find_function(f"runtime.contrib.dnnl.{name}")


@functools.lru_cache(maxsize=None)
def has_amx() -> bool:
    """Whether the CPU has AMX, and ONEDNN_MAX_CPU_ISA allows it."""
    query = _query("has_amx")
    return query is not None and bool(query())


@functools.lru_cache(maxsize=None)
def prefers(dtype: str) -> bool:
    """Whether networks take no longer in a type of floating-point values than in float32.

    bfloat16 is as fast with AMX, and with AVX512_BF16 on AMD's CPUs; on Intel's, networks take 1.6
    times as long with AVX512_BF16 alone. float16 is as fast with AMX_FP16; with AVX512_FP16 alone,
    convolutional networks take 1.1 to 1.4 times as long.
    """
    if dtype == "float32":
        return True
    query = _query("prefers")
    return dtype in REAL and query is not None and bool(query(dtype))


@functools.lru_cache(maxsize=None)
def computes(dtype: str) -> bool:
    """Whether oneDNN has fast code for a type of floating-point values.

    bfloat16 needs AVX-512, float16 AVX-512 with FP16, or AMX; float32 works anywhere.
    """
    if dtype == "float32":
        return True
    query = _query("computes")
    return dtype in REAL and query is not None and bool(query(dtype))


def lacks(dtype: str) -> bool:
    """Whether a type is one of floating-point values for which oneDNN has no fast code."""
    return dtype in REAL and not computes(dtype)


def why_in_float32(dtype: str, precision: str) -> str | None:
    """Say why a model in a type is computed in float32 on this CPU; None if it is not.

    Parameters
    ----------
    dtype : str
        The type of the model's tensors.
    precision : str
        The option `precision`: a type that it names is used where oneDNN supports it.
    """
    if lacks(dtype):
        return "which oneDNN does not support on this CPU"
    if dtype in REAL and dtype != precision and not prefers(dtype):
        return "which is slower than float32 on this CPU"
    return None
