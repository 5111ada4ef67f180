# SPDX-License-Identifier: Apache-2.0
"""ONNX models of one node for tests, and what onnxruntime and the plug-in compute."""

import os
import pathlib

import numpy as np
import tvm_dnnl

from dnnl_relax.modules import compiled, composites, run
from dnnl_relax.onnx import nodes
from dnnl_relax.onnx.nodes import CONTRIB, onnxruntime_results

__all__ = ["CONTRIB", "onnxruntime_results"]


def ints(*shape, dtype="uint8", seed=0, low=None, high=None):
    limits = np.iinfo(dtype)
    low, high = limits.min if low is None else low, limits.max if high is None else high
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(dtype)


def real(*shape, seed=0, low=-1.0, high=1.0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype("float32")


def f32(value):
    return np.float32(value)


def node_model(op, operands, inputs=(0,), domain="", **options):
    """Return the model of one node, and the values of its inputs.

    Parameters
    ----------
    op : str
        The op.
    operands : list
        Arrays, None for an operand that is left out.
    inputs : Sequence[int]
        The operands that are inputs of the model; the others are constants.
    """
    named = {
        f"i{k}": None if value is None else np.asarray(value) for k, value in enumerate(operands)
    }
    consts = [name for k, name in enumerate(named) if k not in inputs]
    model = nodes.node_model(op, named, domain=domain, consts=consts, **options)
    return model, [named[f"i{k}"] for k in sorted(inputs)]


def partitioned_model(model, wanted=None):
    """Return the partitioned module of a model, of which the composites may be asserted."""
    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model), prune=False)
    if wanted is not None:
        assert composites(partitioned) == wanted
    return partitioned


def results(model, values, wanted=None):
    return run(compiled(partitioned_model(model, wanted)), *values)


def check_steps(got, want, most=0.02):
    """Compare tensors of 8 bits: what is next to the middle of two steps may go to either.

    Sums are exact in int32 and rounded once in float32, but in another order of operations.
    """
    assert got.dtype == want.dtype and got.shape == want.shape
    differences = np.abs(got.astype("int32") - want)
    assert differences.max() <= 1 and (differences != 0).mean() <= most


def has_vnni():
    """Whether oneDNN may use AVX-512's dot products of 8 bits."""
    isa = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    allowed = isa not in ("SSE41", "AVX", "AVX512_CORE") and not isa.startswith("AVX2")
    return allowed and " avx512_vnni " in pathlib.Path("/proc/cpuinfo").read_text("utf-8")
