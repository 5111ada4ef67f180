# SPDX-License-Identifier: Apache-2.0
"""Checks of sizes by match_cast: within a partition, kernels compare the sizes."""

import pytest
import tvm_dnnl
from tvm import relax
from tvm.relax import op

from dnnl_relax.modules import check, compiled, const, module, partitions, rand, run, var

PARAMS = var("x", "n", 8), var("z", "k", 8)
SAME, OTHER = [rand(3, 8), rand(6, 8, seed=1)], [rand(3, 8), rand(5, 8, seed=1)]


def checked(builder, x, z):
    """Return two products, the second of which has as many rows as the first, by a check."""
    x = builder.emit(op.concat([x, x], 0))
    x = builder.emit(op.matmul(x, const(8, 4)))
    z = builder.emit(op.matmul(z, const(8, 4, seed=2)))
    return x, builder.match_cast(z, relax.TensorType(x.ty.shape, "float32"))


def summed(builder, x, z):
    return op.nn.relu(builder.emit(op.add(*checked(builder, x, z))))


def joined(builder, x, z):
    return op.nn.relu(builder.emit(op.concat(checked(builder, x, z), 1)))


def refused(partitioned, message):
    with pytest.raises(Exception, match=message):
        run(compiled(partitioned), *OTHER)


@pytest.mark.parametrize("build", [summed, joined], ids=["sum", "concat"])
def test_sizes_that_an_op_compares(build):
    partitioned = check(module(build, *PARAMS), None, *SAME)
    assert partitions(partitioned) == 1
    report = tvm_dnnl.offload_report(partitioned)
    # Of open sizes, the first concat may have nothing to copy.
    assert (report.total, report.offloaded) == (5, 4), str(report)
    refused(partitioned, "shape|input 1, float32")


def test_sizes_that_no_op_compares():
    def build(builder, x, z):
        return op.nn.relu(checked(builder, x, z)[1])

    def along(builder, x, z):
        return op.nn.relu(builder.emit(op.concat(checked(builder, x, z), 0)))

    for each in (build, along):
        refused(check(module(each, *PARAMS), None, *SAME), "match_cast")


def test_a_check_that_stays_on_tvm():
    mod = module(summed, *PARAMS)
    partitioned = tvm_dnnl.partition_for_dnnl(mod, exclude=["add", "nn.relu"], prune=False)
    assert "match_cast" in partitioned.script() and partitions(partitioned) == 2
    assert tvm_dnnl.offload_report(partitioned).total == 5
    refused(partitioned, "match_cast")
