# SPDX-License-Identifier: Apache-2.0
"""Compiles for a CPU with other data types than this one computes in."""

import contextlib

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


@contextlib.contextmanager
def _answer(computes):
    find = cpu._find_function
    cpu.connect(lambda name: computes if name.endswith(".computes") else find(name))
    try:
        yield
    finally:
        cpu.connect(find)
