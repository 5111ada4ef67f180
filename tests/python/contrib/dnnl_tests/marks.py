# SPDX-License-Identifier: Apache-2.0
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
