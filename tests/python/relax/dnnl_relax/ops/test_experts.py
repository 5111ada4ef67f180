# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts: products of the rows that a mask selects."""

import numpy as np
import pytest
import tvm_dnnl
from tvm import relax
from tvm.contrib.onednn import cpu
from tvm.relax import op

from dnnl_relax.modules import compiled, composites, module, partitions, rand, run, var

COLUMNS, UNITS, EXPERTS = 48, 70, 5
WEIGHT = rand(EXPERTS, UNITS, COLUMNS, seed=1)


def mixture(zero=0.0):
    """Write the products of all experts and a selection, as the importer of PyTorch does."""

    def build(builder, x, scores):
        merged = WEIGHT.transpose(2, 0, 1).reshape(COLUMNS, -1)
        product = builder.emit(op.matmul(x, relax.const(merged)))
        rows = x.ty.shape.values[0]
        product = builder.emit(op.reshape(product, (rows, EXPERTS, UNITS)))
        mask = builder.emit(op.greater(scores, relax.const(np.float32(0.5))))
        mask = builder.emit(op.expand_dims(mask, 2))
        chosen = builder.emit(op.where(mask, product, relax.const(np.float32(zero))))
        return op.sum(chosen, axis=[1])

    return build


def drawn(rows, share):
    """Return data, and scores of which a share is above one half."""
    scores = np.random.default_rng(rows).uniform(size=(rows, EXPERTS)).astype("float32")
    return rand(rows, COLUMNS), scores + np.float32(share - 0.5)


def expected(x, scores):
    products = np.einsum("mk,enk->men", x.astype("float64"), WEIGHT)
    return np.where(scores[..., None] > 0.5, products, 0).sum(1)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("rows", [1, 3, 41])
def test_experts(rows, share):
    """Rows may have no expert, one, or several."""
    x, scores = drawn(rows, share)
    mod = module(mixture(), var("x", *x.shape), var("scores", *scores.shape))
    mod = tvm_dnnl.partition_for_dnnl(mod)
    assert composites(mod)["dnnl.expert_dense"] == 1 and partitions(mod) == 1
    (got,) = run(compiled(mod), x, scores)
    np.testing.assert_allclose(got, expected(x, scores), rtol=0, atol=5e-6)


def test_open_rows():
    mod = module(mixture(), var("x", "rows", COLUMNS), var("scores", "rows", EXPERTS))
    mod = tvm_dnnl.partition_for_dnnl(mod)
    assert composites(mod)["dnnl.expert_dense"] == 1
    executable = compiled(mod)
    for size in (1, 30):
        x, scores = drawn(size, 0.5)
        (got,) = run(executable, x, scores)
        np.testing.assert_allclose(got, expected(x, scores), rtol=0, atol=5e-6)


def test_what_is_no_selection():
    x, scores = drawn(4, 0.5)
    mod = module(mixture(1.0), var("x", *x.shape), var("scores", *scores.shape))
    mod = tvm_dnnl.partition_for_dnnl(mod)
    assert "dnnl.expert_dense" not in composites(mod)
    (got,) = run(compiled(mod), x, scores)
    others = (scores <= 0.5).sum(1, keepdims=True)
    np.testing.assert_allclose(got, expected(x, scores) + others, rtol=0, atol=5e-6)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_reduced_precision(precision, monkeypatch):
    """Fewer rows than experts, and open ones, stay in float32; what follows them does not."""
    weight = relax.const(rand(UNITS, 64, seed=3))

    def build(builder, x, scores):
        rows = builder.emit(mixture()(builder, x, scores))
        return op.matmul(rows, weight)

    monkeypatch.setattr(cpu, "computes", lambda dtype: True)
    for rows, is_fused in ((EXPERTS - 1, True), ("rows", True), (EXPERTS, False)):
        mod = module(build, var("x", rows, COLUMNS), var("scores", rows, EXPERTS))
        mod = tvm_dnnl.partition_for_dnnl(mod, precision=precision, prune=False)
        report = tvm_dnnl.offload_report(mod)
        assert composites(mod)["dnnl.expert_dense"] == is_fused
        assert (report.reasons, report.partitions) == ({}, 1)
        assert f'dtype="{precision}"' in mod.script()


def test_reduced_precision_runs():
    """On a CPU that computes in bfloat16; `auto` chooses float32 on any other."""
    precision = "bfloat16" if cpu.computes("bfloat16") else "auto"
    for rows in (3, 41):
        x, scores = drawn(rows, 0.5)
        mod = module(mixture(), var("x", *x.shape), var("scores", *scores.shape))
        mod = tvm_dnnl.partition_for_dnnl(mod, precision=precision)
        assert partitions(mod) == 1
        (got,) = run(compiled(mod), x, scores)
        want = expected(x, scores)
        # bfloat16 has 8 bits.
        tolerance = np.abs(want).max() * 2.0**-6 if precision == "bfloat16" else 5e-6
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)
