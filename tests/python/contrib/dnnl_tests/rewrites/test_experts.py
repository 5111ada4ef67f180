# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts in Relay; `test_experts.py` of the plug-in has the further cases."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl

from dnnl_tests.marks import json_only
from dnnl_tests.reference import rand

EXPERTS, UNITS, COLUMNS = 3, 4, 7


@pytest.mark.parametrize(
    "rows", [5, pytest.param(relay.Any(), marks=json_only)], ids=["fixed", "open"]
)
def test_rows_of_each_expert(rows):
    x, scores = relay.var("x", shape=(rows, COLUMNS)), relay.var("scores", shape=(rows, EXPERTS))
    weight = rand(EXPERTS * UNITS, COLUMNS)
    products = relay.reshape(relay.nn.dense(x, relay.const(weight)), (-1, EXPERTS, UNITS))
    mask = relay.expand_dims(relay.greater(scores, relay.const(np.float32(0.0))), 2)
    chosen = relay.where(mask, products, relay.const(np.float32(0.0)))
    mod = tvm.IRModule.from_expr(relay.Function([x, scores], relay.sum(chosen, axis=[1])))
    model = dnnl.compile(mod, prune=False, strict=True)
    assert model.report.composites == {"dnnl.expert_dense": 1} and model.report.partitions == 1
    data = rand(5, COLUMNS), rand(5, EXPERTS)
    expected = np.einsum("mk,enk->men", data[0], weight.reshape(EXPERTS, UNITS, COLUMNS))
    expected = np.where(data[1][..., None] > 0, expected, 0).sum(1)
    np.testing.assert_allclose(model(*data), expected, rtol=0, atol=5e-6)
