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
"""Mixtures of experts: products of the rows that a mask selects."""

import numpy as np
import pytest
import tvm_dnnl
from tvm import relax
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
