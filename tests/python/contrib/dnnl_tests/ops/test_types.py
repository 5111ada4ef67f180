# SPDX-License-Identifier: Apache-2.0
"""bfloat16 and float16 on oneDNN: where the CPU has them, and in float32 elsewhere."""

import math
import re

import ml_dtypes
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.ops.table import TABLE
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests import graphs as random_graphs
from dnnl_tests.graphs import draw, judging
from dnnl_tests.graphs.graph import inputs_of
from dnnl_tests.pretended_cpu import only_float32
from dnnl_tests.reference import rand
from dnnl_tests.single_op import reasons, var

ROWS = random_graphs.ROWS
SHORT = ("bfloat16", "float16")


def modules(name, dtype, count=3):
    """Yield modules of one step of a row in which all floating-point values are of a type."""
    for seed in range(30):
        try:
            graph = random_graphs.single(seed, ROWS[name], ROWS)
        except draw.Unfit:
            continue
        mod = graph.module(ROWS, dtype)
        report = dnnl.offload_report(dnnl.partition_for_dnnl(mod, prune=False))
        if report.offloaded == report.total:
            count -= 1
            yield mod
        if count == 0:
            return


# Of the other ops `graphs/test_infer.py` draws calls.
@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize(
    "name", [name for name in TABLE if name in ROWS and name.startswith("dnnl.")]
)
def test_virtual_op(name, dtype):
    if not cpu.computes(dtype):
        pytest.skip(f"this CPU has no {dtype}")
    ran = 0
    for mod in modules(name, dtype):
        verdict = judging.judge_module(mod, inputs_of(mod), depth=2)
        assert verdict.kind == judging.SAME, f"{verdict.text}\n{mod}"
        ran += 1
    assert ran, "nothing was offloaded"


def block(x):
    """Return a convolution, a pooling, a softmax and a product, with functions between them."""
    weight = relay.const(rand(16, 8, 3, 3))
    y = relay.nn.conv2d(x, weight, channels=16, kernel_size=(3, 3), padding=(1, 1))
    y = relay.nn.relu(relay.nn.bias_add(y, relay.const(rand(16, seed=1))))
    y = relay.nn.batch_flatten(relay.nn.max_pool2d(y, (2, 2), (2, 2)))
    y = relay.nn.dense(y, relay.const(rand(64, 16 * 9, seed=2)))
    gate = relay.erf(y / relay.const(math.sqrt(2.0))) + relay.const(1.0)
    y = relay.nn.softmax((y * gate) * relay.const(0.5))
    return relay.nn.dense(y, relay.const(rand(8, 64, seed=3)))


def test_precision():
    if not cpu.computes("bfloat16"):
        pytest.skip("this CPU has no bfloat16")
    data = rand(2, 8, 6, 6)
    mod = tvm.IRModule.from_expr(block(var("x", data.shape)))
    partitioned = dnnl.partition_for_dnnl(mod, precision="bfloat16", prune=False)
    report = dnnl.offload_report(partitioned)
    assert (report.partitions, report.offloaded) == (1, report.total), f"{report}\n{partitioned}"
    assert report.composites["dnnl.dense_gelu_erf"] == 1
    assert re.search(r"nn.softmax\(%\d+\) /\* ty=Tensor\[\(2, 64\), bfloat16\]", str(partitioned))
    (got,), (want,) = (
        direct.run(partitioned, {"x": data}),
        direct.run(mod, {"x": data}, opt_level=1),
    )
    assert got.dtype == "float32"
    diff = testing.difference([got], [want]).relative
    assert 1e-5 < diff < 2e-2


def conv(dtype, out_dtype=""):
    x, w = (
        relay.var(n, shape=s, dtype=dtype) for n, s in (("x", (1, 4, 5, 5)), ("w", (3, 4, 3, 3)))
    )
    return relay.nn.conv2d(x, w, kernel_size=(3, 3), channels=3, out_dtype=out_dtype)


CALLS = {
    "conv2d": conv,
    "softmax": lambda dtype: relay.nn.softmax(relay.var("x", shape=(4, 4), dtype=dtype)),
    "add": lambda dtype: relay.add(*(relay.var(n, shape=(4, 4), dtype=dtype) for n in "xy")),
}


@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("name", CALLS)
def test_in_float32_where_the_cpu_has_no_such_numbers(name, dtype):
    mod = tvm.IRModule.from_expr(CALLS[name](dtype))
    with only_float32():
        report = dnnl.offload_report(dnnl.partition_for_dnnl(mod, prune=False))
    assert report.offloaded == report.partitions == 1
    assert report.in_float32 == {f"ops in {dtype}, which oneDNN does not support on this CPU": 1}


@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("name", CALLS)
def test_accepted_where_it_has(name, dtype, monkeypatch):
    monkeypatch.setattr(cpu, "computes", lambda dtype: True)
    mod = tvm.IRModule.from_expr(CALLS[name](dtype))
    assert dnnl.offload_report(dnnl.partition_for_dnnl(mod, prune=False)).offloaded == 1


def test_sum_in_float32():
    """The operands have reduced precision, the result has not."""
    if not cpu.computes("bfloat16"):
        pytest.skip("this CPU has no bfloat16")
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(conv("bfloat16", "float32")))
    assert judging.judge_module(mod, inputs_of(mod)).kind == judging.SAME


def test_other_mixtures_are_refused(monkeypatch):
    monkeypatch.setattr(cpu, "computes", lambda dtype: True)
    x = relay.var("x", shape=(2, 4), dtype="float16")
    (reason,) = reasons(relay.nn.dense(x, relay.var("w", shape=(3, 4), dtype="float32")))
    assert "data is float16, but weight is float32" in reason


def test_batch_norm_is_folded_in_bfloat16():
    if not cpu.computes("bfloat16"):
        pytest.skip("this CPU has no bfloat16")
    graph = {"x": (1, 8, 6, 6), "w": (8, 8, 3, 3), **{name: (8,) for name in "gbmv"}}
    x, w, *stats = (relay.var(n, shape=s, dtype="bfloat16") for n, s in graph.items())
    out = relay.nn.batch_norm(relay.nn.conv2d(x, w, kernel_size=(3, 3), channels=8), *stats)[0]
    values = {n: (rand(*s) + (n == "v") * 1.5).astype(ml_dtypes.bfloat16) for n, s in graph.items()}
    params = {n: tvm.nd.array(v) for n, v in values.items() if n != "x"}
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(out), params)
    report = dnnl.offload_report(mod)
    assert report.folded == {"nn.batch_norm": 1} and report.composites == {"dnnl.conv2d_bias": 1}
