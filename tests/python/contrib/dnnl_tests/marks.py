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
"""Marks of tests that one of the two code generators has no part in, and what a CPU has."""

import os
import pathlib

import pytest
from tvm.relay.op.contrib import dnnl

json_only = pytest.mark.skipif(
    dnnl.dnnl_codegen() != "JSON",
    reason="about the module of the JSON runtime, or its plan, which C source does not have",
)


def nightly_after(count, values):
    """Mark all but the first values of a parameter as nightly; the first ones cover the subject."""
    values = list(values)
    return nightly_except(values[:count], values)


def nightly_except(covering, cases):
    """Mark all cases as nightly but some that cover the subject; a tuple has several parameters."""

    def words(case):
        return case if isinstance(case, tuple) else (case,)

    return [
        case if case in covering else pytest.param(*words(case), marks=pytest.mark.nightly)
        for case in cases
    ]


def has_avx2():
    """Whether oneDNN may use AVX2, or more."""
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() not in ("SSE41", "AVX")
    return allowed and " avx2 " in pathlib.Path("/proc/cpuinfo").read_text("utf-8")


def has_avx512():
    """Whether oneDNN may use AVX-512: without it, tanh is a function of ours, and no post-op."""
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA", "AVX512").upper()
    is_allowed = allowed in ("ALL", "DEFAULT") or allowed.startswith("AVX512")
    return is_allowed and " avx512bw " in pathlib.Path("/proc/cpuinfo").read_text("utf-8")
