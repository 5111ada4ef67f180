# SPDX-License-Identifier: Apache-2.0
"""An op that cannot be written costs that op alone, and says so."""

import re

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.failures import PartitionError, PartitionWarning
from tvm.contrib.onednn.ir.graph import Graph
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib._dnnl import body, pipeline

from dnnl_tests import direct
from dnnl_tests.marks import json_only
from dnnl_tests.partition.any_module import SHAPE, X
from dnnl_tests.pretended_cpu import every_dtype
from dnnl_tests.reference import rand
from dnnl_tests.relay import check_complete, const, conv, module


def model():
    """Return convolutions with a softmax and a fused addition between them."""
    y = relay.nn.softmax(conv(X), axis=1)
    return module(conv(relay.add(conv(y), const(8, 1, 1))))


def gelu(x):
    y = relay.erf(relay.divide(x, relay.const(np.float32(np.sqrt(2)))))
    y = relay.multiply(relay.add(y, relay.const(np.float32(1))), x)
    return relay.multiply(y, relay.const(np.float32(0.5)))


def raises(name, monkeypatch):
    value = body.Body.value

    def failing(self, node):
        if node.name == name and self._is_for_onednn:
            raise TypeError("data must be float")
        return value(self, node)

    monkeypatch.setattr(body.Body, "value", failing)


def is_wrongly_typed(name, monkeypatch):
    """Write an op in a way of which TVM infers another type."""
    value = body.Body.value

    def wrong(self, node):
        expr = value(self, node)
        return relay.sum(expr) if node.name == name and self._is_for_onednn else expr

    monkeypatch.setattr(body.Body, "value", wrong)


@pytest.mark.parametrize("name", ["nn.softmax", "add"])
@pytest.mark.parametrize("fail", [raises, is_wrongly_typed])
def test_an_op_that_cannot_be_written(name, fail, monkeypatch):
    mod = model()
    fail(name, monkeypatch)
    match = f"function main: writing {name} failed"
    with pytest.warns(PartitionWarning, match=match):
        partitioned = dnnl.partition_for_dnnl(mod, prune=False, strict=False)
    check_complete(partitioned)
    report = dnnl.offload_report(partitioned)
    assert f"writing {name} failed" in report.failures["main"]
    assert report.offloaded == report.total - 1, str(report)
    assert report.offloaded_ops["nn.conv2d"] == 3
    x = {"x": rand(*SHAPE)}
    (got,), (want,) = direct.run(partitioned, x), direct.run(mod, x)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    with pytest.raises(PartitionError, match=match):
        dnnl.partition_for_dnnl(mod, prune=False, strict=True)


@json_only
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("batch", [1, relay.Any()], ids=["fixed", "open"])
def test_an_op_that_reads_another_node_than_its_ops(batch, precision, monkeypatch):
    """Its composite is invalid; the ops that it stands for run on oneDNN, one by one."""
    fuse_into = Graph.fuse_into

    def read_another(graph, old, new):
        read = graph.call("negative", new.operands, old)
        fuse_into(graph, old, graph.call(new.name, [read], old, old.type, **vars(new.attrs)))

    x = relay.var("x", shape=(batch, *SHAPE[1:]))
    # TVM computes `atan`: there are two partitions, each with a gelu.
    mod = module(conv(gelu(conv(relay.atan(gelu(conv(x)))))))
    monkeypatch.setattr(Graph, "fuse_into", read_another)
    match = "function main: writing dnnl.gelu_erf failed"
    with every_dtype(), pytest.warns(PartitionWarning, match=match):
        partitioned = dnnl.partition_for_dnnl(mod, prune=False, precision=precision, strict=False)
    check_complete(partitioned)
    report = dnnl.offload_report(partitioned)
    assert report.total - report.offloaded == report.reasons["atan"].total() == 1, str(report)
    assert report.partitions == 2 and report.offloaded_ops["nn.conv2d"] == 3
    if cpu.computes(precision):
        data = {"x": rand(*SHAPE)}
        executor = "graph" if batch == 1 else "vm"
        (got,), (want,) = (direct.run(m, data, executor=executor) for m in (partitioned, mod))
        # The operands and results of three convolutions are rounded, relative to the largest.
        tolerance = 1e-5 if precision == "float32" else 6 * 2.0**-9
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())


def test_strict_in_the_pass_context(monkeypatch):
    def fail(function, rules):
        raise tvm.TVMError("no way")

    fail.__name__ = "keep_calls_single"
    monkeypatch.setattr(pipeline, "keep_calls_single", fail)
    monkeypatch.delenv("TVM_DNNL_STRICT", raising=False)
    with pytest.warns(PartitionWarning, match="keep_calls_single"):
        dnnl.partition_for_dnnl(model())
    with tvm.transform.PassContext(config={"relay.ext.dnnl.options": {"strict": 1}}):
        with pytest.raises(PartitionError, match="keep_calls_single failed: no way"):
            dnnl.partition_for_dnnl(model())


@pytest.fixture(name="codegen_fails_at")
def _codegen_fails_at():
    """Let the code generator raise for functions with an op."""
    codegen = tvm.get_global_func("relay.ext.dnnl")

    def register(name):
        def failing(func):
            if re.search(rf"\b{re.escape(name)}\(", str(func)):
                raise ValueError(f"no kernel of {name}")
            return codegen(func)

        tvm.register_func("relay.ext.dnnl", failing, override=True)

    yield register
    tvm.register_func("relay.ext.dnnl", codegen, override=True)


@pytest.mark.parametrize("name", ["nn.softmax", "add"])
def test_an_op_that_the_code_generator_cannot_write(name, codegen_fails_at):
    mod, x = model(), {"x": rand(*SHAPE)}
    (want,) = direct.run(mod, x)
    codegen_fails_at(name)
    root = "nn.conv2d" if name == "add" else name
    match = f"function main: writing {root}.* failed: .*no kernel of {name}"
    with pytest.warns(PartitionWarning, match=match):
        partitioned = dnnl.partition_for_dnnl(mod, prune=False, strict=False)
    check_complete(partitioned)
    report = dnnl.offload_report(partitioned)
    assert f"no kernel of {name}" in report.failures["main"]
    assert report.offloaded_ops["nn.conv2d"] == (2 if name == "add" else 3)
    (got,) = direct.run(partitioned, x)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    with pytest.raises(PartitionError, match=match):
        dnnl.partition_for_dnnl(mod, prune=False, strict=True)


def test_c_source_does_not_restrict_the_partitioner():
    """C source needs fixed shapes, but which code generator runs is a choice of `relay.build`."""
    x = relay.var("x", shape=(relay.Any(), 3, 8, 8))
    call = relay.nn.conv2d(x, relay.const(rand(4, 3, 3, 3)))
    mod = tvm.IRModule.from_expr(relay.Function([x], call))
    with tvm.transform.PassContext(config={"relay.ext.dnnl.codegen": "C_SRC"}):
        partitioned = dnnl.partition_for_dnnl(mod, prune=False, strict=True)
    assert dnnl.offload_report(partitioned).offloaded_ops == {"nn.conv2d": 1}
