# SPDX-License-Identifier: Apache-2.0
"""Composites that somebody else has made by patterns, as TVM's own tests do."""

import re

import numpy as np
import pytest
import tvm
import tvm_dnnl  # noqa: F401, it registers the code generator
from tvm import relax
from tvm.contrib.onednn.failures import PartitionError, PartitionWarning
from tvm.relax import op
from tvm.relax.dpl import is_op, is_tuple, wildcard

from dnnl_relax.modules import (
    X2,
    X4,
    const,
    conv_bias_relu,
    module,
    partitions,
    rand,
    residual,
    run,
    var,
)


def conv_bias_relu_pattern():
    conv = is_op("relax.nn.conv2d")(wildcard(), wildcard())
    return is_op("relax.nn.relu")(is_op("relax.add")(conv, wildcard()))


def residual_pattern():
    conv = is_op("relax.nn.conv2d")(wildcard(), wildcard())
    add = is_op("relax.add")(is_op("relax.add")(conv, wildcard()), wildcard())
    return is_op("relax.nn.relu")(add)


def conv_of_arguments(builder, x, weight):
    return op.nn.relu(builder.emit(op.nn.conv2d(x, weight, padding=1)))


def open_rows(builder, x):
    """4 * n rows: FuseOpsByPattern passes n to the composite."""
    rows = builder.emit(op.reshape(x, (4 * x.ty.shape.values[0], 8)))
    return op.matmul(rows, const(8, 3))


CASES = {
    "constants": (conv_bias_relu, [X4], conv_bias_relu_pattern()),
    "residual": (residual, [X4], residual_pattern()),
    "weight is an argument": (
        conv_of_arguments,
        [X4, var("w", 4, 6, 3, 3)],
        is_op("relax.nn.relu")(is_op("relax.nn.conv2d")(wildcard(), wildcard())),
    ),
    "open batch": (conv_bias_relu, [var("x", "n", 6, 9, 9)], conv_bias_relu_pattern()),
    "symbol that is passed": (
        open_rows,
        [var("x", "n", 4, 8)],
        is_op("relax.matmul")(wildcard(), wildcard()),
    ),
    "one op": (lambda _, x: op.exp(x), [X2], is_op("relax.exp")(wildcard())),
    "gelu is one op": (lambda _, x: op.nn.gelu(x), [X2], is_op("relax.nn.gelu")(wildcard())),
    "turned weight": (
        lambda builder, x: op.matmul(x, builder.emit(op.permute_dims(const(3, 8)))),
        [X2],
        is_op("relax.matmul")(wildcard(), is_op("relax.permute_dims")(wildcard())),
    ),
    "tuple": (
        lambda builder, x: op.concat([x, builder.emit(op.exp(x))], 1),
        [X2],
        is_op("relax.concat")(is_tuple([wildcard(), wildcard()])),
    ),
}


def partitioned(mod, pattern, bind_constants, merge):
    fuse = relax.transform.FuseOpsByPattern(
        [("dnnl.any", pattern)], bind_constants=bind_constants, annotate_codegen=not merge
    )
    merging = [relax.transform.MergeCompositeFunctions()] if merge else []
    return tvm.transform.Sequential([fuse, *merging])(mod)


def values(params):
    shapes = ([3 if size == "n" else size for size in shape] for _, shape, _ in params)
    return [rand(*shape, seed=seed) for seed, shape in enumerate(shapes)]


@pytest.mark.parametrize("merge", [True, False], ids=["merged", "alone"])
@pytest.mark.parametrize("bind_constants", [True, False], ids=["inside", "passed"])
@pytest.mark.parametrize("build, params, pattern", CASES.values(), ids=CASES.keys())
def test_composite(build, params, pattern, bind_constants, merge):
    mod = module(build, *params)
    compiled = relax.transform.RunCodegen()(partitioned(mod, pattern, bind_constants, merge))
    (code,) = compiled.attrs["external_mods"]
    assert code.inspect_source("json").count('"kernel"') == 1
    inputs = values(params)
    for one, other in zip(run(compiled, *inputs), run(mod, *inputs)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


REFUSED = {
    "an op without a rule": (
        lambda _, x: op.atan(x),
        is_op("relax.atan")(wildcard()),
        "dnnl.any is not a oneDNN kernel: atan: no rule for this op",
    ),
    "two kernels": (
        lambda builder, x: op.nn.softmax(builder.emit(op.matmul(x, const(8, 3)))),
        is_op("relax.nn.softmax")(is_op("relax.matmul")(wildcard(), wildcard())),
        "nn.matmul: not fused with the other ops",
    ),
}


@pytest.mark.parametrize("build, pattern, message", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_kernel(build, pattern, message):
    """RunCodegen cannot leave it to TVM, and says so; `compile` and the partitioner can."""
    mod = module(build, X2)
    merged = partitioned(mod, pattern, True, True)
    with pytest.raises(ValueError, match=re.escape(message)):
        relax.transform.RunCodegen()(merged)
    with pytest.warns(PartitionWarning, match=re.escape(message)):
        again = tvm_dnnl.partition_for_dnnl(merged, prune=False, strict=False)
    report = tvm_dnnl.offload_report(again)
    offloaded = {"matmul": 1, "nn.softmax": 1} if "softmax" in again.script() else {}
    assert report.offloaded_ops == offloaded and message in str(report.failures)
    with pytest.warns(PartitionWarning, match=re.escape(message)):
        model = tvm_dnnl.compile(merged)
    with pytest.raises(PartitionError, match=re.escape(message)):
        tvm_dnnl.partition_for_dnnl(merged, strict=True)
    x, wanted = rand(*X2[1]), run(mod, rand(*X2[1]))
    for got in (run(relax.transform.RunCodegen()(again), x)[0], model(x)):
        np.testing.assert_allclose(got, wanted[0], rtol=1e-5, atol=1e-6)


def test_a_partition_costs_no_other():
    """Of two partitions, the one that oneDNN runs stays; in the other, one composite is refused."""

    def build(builder, x):
        y = builder.emit(op.atan(builder.emit(op.exp(x))))
        return op.exp(builder.emit(op.sinh(y)))

    exp, atan = is_op("relax.exp")(wildcard()), is_op("relax.atan")(wildcard())
    fuse = relax.transform.FuseOpsByPattern([("dnnl.exp", exp), ("dnnl.atan", atan)])
    mod = module(build, X2)
    merged = relax.transform.MergeCompositeFunctions()(fuse(mod))
    assert partitions(merged) == 2
    with pytest.warns(PartitionWarning, match="writing dnnl.atan failed"):
        again = tvm_dnnl.partition_for_dnnl(merged, prune=False, strict=False)
    assert partitions(again) == 2
    x = rand(*X2[1])
    (got,), (want,) = run(relax.transform.RunCodegen()(again), x), run(mod, x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
