# SPDX-License-Identifier: Apache-2.0
"""Compiles for a CPU with other data types than this one computes in, or is fast in."""

import contextlib
from unittest import mock

from tvm.contrib.onednn import cpu


@contextlib.contextmanager
def every_dtype():
    """Let rules accept bfloat16 and float16, whatever this CPU computes in.

    Partitions in a type that it does not compute in can be written and inferred, but not run.
    """
    with _answer(lambda dtype: True):
        yield


@contextlib.contextmanager
def only_float32():
    """Let models in bfloat16 and float16 run in float32, whatever this CPU computes in."""
    with _answer(lambda dtype: dtype == "float32"):
        yield


_why_in_float32 = cpu.why_in_float32


def own_types():
    """Let models compute in their own type as if `precision` named it, to test its kernels.

    The fixtures of all tests do. What the CPU lacks stays in float32.
    """
    return mock.patch.object(cpu, "why_in_float32", lambda dtype, _: _why_in_float32(dtype, dtype))


@contextlib.contextmanager
def faster_in_float32():
    """Compile for a CPU with the types of this one that computes in float32 fastest."""
    asked = mock.patch.object(cpu, "why_in_float32", _why_in_float32)
    known = {dtype: cpu.computes(dtype) for dtype in cpu.REAL}
    with asked, _answer(known.get, lambda dtype: dtype == "float32"):
        yield


@contextlib.contextmanager
def _answer(computes, prefers=None):
    find = cpu._find_function
    answers = {"computes": computes, "prefers": prefers or computes}
    cpu.connect(lambda name: answers.get(name.rpartition(".")[2]) or find(name))
    try:
        yield
    finally:
        cpu.connect(find)
