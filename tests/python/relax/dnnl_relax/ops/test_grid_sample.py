# SPDX-License-Identifier: Apache-2.0
"""Images sampled at computed coordinates, as of deformable attention."""

import numpy as np
import pytest
import tvm_dnnl
from tvm.relax import op

from dnnl_relax.modules import compiled, composites, module, partitions, rand, run, var

IMAGE, GRID = (2, 5, 6, 7), (2, 2, 9, 11)


def sampled(**attrs):
    def build(builder, x, grid):
        return op.image.grid_sample(x, grid, "bilinear", "NCHW", **attrs)

    return build


def coordinates(*shape):
    """Return coordinates of which a part is outside, and some are those of the corners."""
    values = 1.3 * rand(*shape, seed=7)
    values[:, :, 0, :6] = [-1, 1, 0, -1.5, 3e9, -3e9]
    return values.astype("float32")


@pytest.mark.parametrize("align_corners", [True, False], ids=["centers", "edges"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
def test_as_tvm(padding_mode, align_corners):
    build = sampled(padding_mode=padding_mode, align_corners=align_corners)
    mod = module(build, var("x", *IMAGE), var("grid", *GRID))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert composites(partitioned) == {"dnnl.grid_sample": 1}
    x, grid = rand(*IMAGE), coordinates(*GRID)
    (got,), (want,) = (run(compiled(each), x, grid) for each in (partitioned, mod))
    # Both round coordinates of up to 7 to float32.
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def test_open_sizes():
    mod = module(
        sampled(padding_mode="zeros", align_corners=False),
        *(var("x", "n", 3, "h", "w"), var("grid", "n", 2, "rows", 4)),
    )
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert partitions(partitioned) == 1
    ours, theirs = compiled(partitioned), compiled(mod)
    for batch, height, width, rows in ((1, 4, 9, 3), (3, 8, 5, 70)):
        x, grid = rand(batch, 3, height, width), 1.2 * rand(batch, 2, rows, 4, seed=1)
        grid = grid.astype("float32")
        (got,), (want,) = run(ours, x, grid), run(theirs, x, grid)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "attrs, reason",
    [
        ({"method": "bicubic"}, "method=bicubic with layout=NCHW"),
        ({"padding_mode": "reflection"}, "padding_mode=reflection"),
    ],
)
def test_refused(attrs, reason):
    def build(builder, x, grid):
        return op.image.grid_sample(x, grid, **attrs)

    mod = module(build, var("x", *IMAGE), var("grid", *GRID))
    report = tvm_dnnl.offload_report(tvm_dnnl.partition_for_dnnl(mod, prune=False))
    (text,) = report.reasons["image.grid_sample"]
    assert reason in text
