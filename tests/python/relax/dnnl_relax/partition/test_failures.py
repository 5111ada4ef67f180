# SPDX-License-Identifier: Apache-2.0
"""An op that cannot be read or written costs that op alone, and says so."""

import numpy as np
import pytest
import tvm
import tvm_dnnl
from dnnl_tests.pretended_cpu import every_dtype
from tvm import relax
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.failures import PartitionError, PartitionWarning
from tvm.contrib.onednn.ir.graph import Graph
from tvm.contrib.onednn.partition.json_graph import JsonGraph
from tvm.relax import op
from tvm_dnnl._dnnl import body, ops

from dnnl_relax.modules import compiled, composites, const, conv, module, partitions, rand, run, var

X = var("x", 1, 8, 12, 12)


def norm_between_convs(builder, x):
    y = conv(builder, x, channels=8)
    y = builder.emit(op.nn.group_norm(y, const(8), const(8, seed=2), 4, 1, [2, 3]))
    return conv(builder, builder.emit(op.nn.silu(y)), channels=8)


def masked_mean(builder, x, mask):
    """Return the mean over unmasked tokens; `maximum` with a scalar is TIR, as of ONNX's Clip."""
    y = builder.emit(op.matmul(x, const(16, 16)))
    total = builder.emit(op.sum(builder.emit(op.multiply(y, mask)), 1))
    count = builder.emit(op.sum(mask, 1))
    least = builder.emit_te(tvm.topi.maximum, count, relax.const(1e-9))
    return op.divide(total, least)


MASKED = [var("x", 2, 8, 16), var("mask", 2, 8, 1)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    "build, params",
    [(norm_between_convs, [X]), (masked_mean, MASKED)],
    ids=["group-norm", "masked-mean"],
)
def test_precision_of_what_tvm_types_in_float32_only(build, params, dtype):
    """TVM infers no type of a group_norm in bfloat16, and TIR has the types of its arguments."""
    mod = module(build, *params)
    with every_dtype():
        partitioned = tvm_dnnl.partition_for_dnnl(mod, precision=dtype, prune=False, strict=True)
    report = tvm_dnnl.offload_report(partitioned)
    assert report.offloaded == report.total, str(report)
    assert not report.failures and report.partitions == 1
    # oneDNN cannot run it on a CPU without the type, but the module is complete.
    generated = compiled(partitioned)
    if cpu.computes(dtype):
        inputs = [rand(*shape) if n == "x" else np.ones(shape, "f4") for n, shape, _ in params]
        (got,), (want,) = run(generated, *inputs), run(mod, *inputs)
        np.testing.assert_allclose(got, want, rtol=0.1, atol=0.1)


def test_a_constant_that_is_transformed_is_folded():
    """Relax's layout_transform has other attributes than the table's op of the name."""

    def build(builder, x):
        weight = builder.emit(
            op.layout_transform(const(3, 3, 8, 4), lambda h, w, i, o: (o, i, h, w))
        )
        return op.nn.conv2d(x, weight)

    partitioned = tvm_dnnl.partition_for_dnnl(module(build, X), prune=False, strict=True)
    assert composites(partitioned) == {"dnnl.conv2d": 1}


def unwritable(name, monkeypatch):
    """Let TVM refuse an op of the table."""
    written, value = body.written, body.Body.value

    def write(node, args, emit):
        if node.name == name:
            raise TypeError("data must be float")
        return written(node, args, emit)

    def read(self, node):
        if node.name == name and self._is_closed:
            raise TypeError("data must be float")
        return value(self, node)

    monkeypatch.setattr(body, "written", write)
    monkeypatch.setattr(body.Body, "value", read)


@pytest.mark.parametrize("name, title", [("nn.group_norm", "nn.group_norm"), ("add", "add")])
def test_an_op_that_cannot_be_written(name, title, monkeypatch):
    def build(builder, x):
        y = norm_between_convs(builder, x)
        return conv(builder, builder.emit(op.add(builder.emit(y), x)), channels=8)

    mod = module(build, X)
    unwritable(name, monkeypatch)
    match = f"function main: writing {title} failed: data must be float"
    with pytest.warns(PartitionWarning, match=match):
        partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False, strict=False)
    report = tvm_dnnl.offload_report(partitioned)
    assert report.failures == {"main": f"writing {title} failed: data must be float"}
    assert report.offloaded == report.total - 1
    assert report.reasons[title] == {f"writing {title} failed: data must be float": 1}
    assert partitions(partitioned) == 2
    x = rand(1, 8, 12, 12)
    (got,), (want,) = run(compiled(partitioned), x), run(mod, x)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    with pytest.raises(PartitionError, match=match):
        tvm_dnnl.partition_for_dnnl(mod, prune=False, strict=True)


def gelu(builder, x):
    y = builder.emit(op.divide(x, relax.const(np.float32(np.sqrt(2)))))
    y = builder.emit(op.add(builder.emit(op.erf(y)), relax.const(np.float32(1))))
    return builder.emit(op.multiply(builder.emit(op.multiply(y, x)), relax.const(np.float32(0.5))))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("is_open", [False, True], ids=["fixed", "open"])
def test_an_op_that_reads_another_node_than_its_ops(is_open, precision, monkeypatch):
    """Its composite is invalid; the ops that it stands for run on oneDNN, one by one."""
    fuse_into = Graph.fuse_into

    def read_another(graph, old, new):
        read = graph.call("nn.softmax", new.operands, old, axis=1)
        fuse_into(graph, old, graph.call(new.name, [read], old, old.type, **vars(new.attrs)))

    def build(builder, x):
        y = gelu(builder, conv(builder, x, channels=8))
        # TVM computes `atan`: there are two partitions, each with a gelu.
        y = gelu(builder, conv(builder, builder.emit(op.atan(y)), channels=8))
        return conv(builder, y, channels=8)

    batch = tvm.tirx.Var("n", "int64") if is_open else 1
    mod = module(build, var("x", batch, 8, 12, 12))
    monkeypatch.setattr(Graph, "fuse_into", read_another)
    match = "function main: writing .*gelu.* failed"
    with every_dtype(), pytest.warns(PartitionWarning, match=match):
        partitioned = tvm_dnnl.partition_for_dnnl(
            mod, prune=False, precision=precision, strict=False
        )
    report = tvm_dnnl.offload_report(partitioned)
    assert report.total - report.offloaded == report.reasons["atan"].total() == 1, str(report)
    assert report.partitions == 2 and report.offloaded_ops["nn.conv2d"] == 3
    generated = compiled(partitioned)
    if cpu.computes(precision):
        x = rand(1, 8, 12, 12)
        (got,), (want,) = run(generated, x), run(mod, x)
        tolerance = 1e-4 if precision == "float32" else 0.1
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_an_op_that_is_written_with_another_type(monkeypatch):
    written = body.Body.value

    def value(self, node):
        expr = written(self, node)
        is_norm = node.name == "nn.group_norm" and self._is_closed
        return op.astype(self.emit(expr), "float16") if is_norm else expr

    monkeypatch.setattr(body.Body, "value", value)
    with pytest.warns(PartitionWarning, match="writing nn.group_norm failed: it is written as"):
        partitioned = tvm_dnnl.partition_for_dnnl(
            module(norm_between_convs, X), prune=False, strict=False
        )
    assert composites(partitioned)["dnnl.conv2d"] == 2


def test_a_row_that_raises(monkeypatch):
    def row(call):
        raise AttributeError("no attribute num_groups")

    monkeypatch.setitem(ops.ROWS, "relax.nn.group_norm", row)
    with pytest.warns(PartitionWarning, match="reading nn.group_norm failed: no attribute"):
        partitioned = tvm_dnnl.partition_for_dnnl(
            module(norm_between_convs, X), prune=False, strict=False
        )
    report = tvm_dnnl.offload_report(partitioned)
    assert report.offloaded == report.total - 1
    with pytest.raises(PartitionError, match="reading nn.group_norm"):
        tvm_dnnl.partition_for_dnnl(module(norm_between_convs, X), strict=True)


def test_strict_by_environment(monkeypatch):
    unwritable("add", monkeypatch)
    mod = module(lambda b, x: op.add(conv(b, x, channels=8), x), X)
    for value, strict in (("1", None), ("0", True)):
        monkeypatch.setenv("TVM_DNNL_STRICT", value)
        with pytest.raises(PartitionError):
            tvm_dnnl.compile(mod, strict=strict)
    with pytest.warns(PartitionWarning):
        tvm_dnnl.partition_for_dnnl(mod, strict=False)
    monkeypatch.setenv("TVM_DNNL_STRICT", "yes")
    with pytest.raises(ValueError, match="TVM_DNNL_STRICT must be 0 or 1, not 'yes'"):
        tvm_dnnl.partition_for_dnnl(mod)


@pytest.mark.parametrize("name", ["nn.group_norm", "nn.conv2d"])
def test_an_op_that_the_code_generator_cannot_write(name, monkeypatch):
    add = JsonGraph.add_kernel

    def failing(self, node_name, attrs, inputs, types):
        if name in (node_name, attrs.get("root_op")):
            raise ValueError(f"no kernel of {name}")
        return add(self, node_name, attrs, inputs, types)

    mod, x = module(norm_between_convs, X), rand(1, 8, 12, 12)
    (want,) = run(mod, x)
    monkeypatch.setattr(JsonGraph, "add_kernel", failing)
    match = f"function main: writing {name} failed: no kernel of {name}"
    with pytest.warns(PartitionWarning, match=match):
        partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False, strict=False)
    report = tvm_dnnl.offload_report(partitioned)
    assert match.partition(": ")[2] in report.failures["main"]
    assert name not in report.offloaded_ops and report.partitions
    (got,) = run(compiled(partitioned), x)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    with pytest.raises(PartitionError, match=match):
        tvm_dnnl.partition_for_dnnl(mod, prune=False, strict=True)
