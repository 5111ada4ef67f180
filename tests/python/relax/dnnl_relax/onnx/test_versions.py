# SPDX-License-Identifier: Apache-2.0
"""Ops that TVM 0.26 imports otherwise than 0.27, against onnxruntime."""

import numpy as np
import pytest

from dnnl_relax.onnx.nodes import check_node, normal

INDEXED = {
    "GatherElements": ((2, 3, 4), dict(axis=-2)),
    "GatherND": ((5, 2), {}),
    "GatherND-batch": ((2, 5, 1), dict(batch_dims=1)),
}


@pytest.mark.parametrize("consts", [(), ("indices",)], ids=["given", "constant"])
@pytest.mark.parametrize("case", INDEXED)
def test_indices_from_the_end(case, consts):
    shape, attrs = INDEXED[case]
    indices = np.random.default_rng(0).integers(-2, 2, shape)
    operands = {"x": normal(2, 3, 4), "indices": indices}
    open_sizes = {"x": ("n", "m", "k"), "indices": shape}
    for dims in (None, open_sizes):
        others = dict(domain="", consts=consts, dims=dims, **attrs)
        check_node(case.split("-")[0], operands, tolerance=0, **others)


def test_slopes_of_fewer_dimensions():
    operands = {"x": normal(2, 3, 4, 5), "slope": normal(3, 1, 1)}
    counts = check_node("PRelu", operands, domain="", consts=("slope",), parts=1)
    assert sum(counts.values()) == 1
