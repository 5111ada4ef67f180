# SPDX-License-Identifier: Apache-2.0
"""Reports of modules without a record of their partitioning, and what a record has of a function.

A module has no record if TVM's own passes partitioned it, or if it has only the functions of a
partitioned one.
"""

import json
import warnings

import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn.report.offload_report import LEFT
from tvm.contrib.onednn.report.record import ATTR, Record
from tvm.relay.dataflow_pattern import is_op, wildcard
from tvm.relay.op.contrib import dnnl
from tvm.relay.qnn import op as qnn

from dnnl_tests.partition.test_quantized_pipeline import accumulated, byoc_pipeline, requantized
from dnnl_tests.quantized import Quantization
from dnnl_tests.relay import const, conv, module, partition, var

SHAPE = (1, 8, 6, 6)
X = var("x", *SHAPE)
relu, atan = relay.nn.relu, relay.atan
DATA = Quantization(0.02, 131, "uint8")


def flow(report):
    """Return what runs where, and what it reads."""
    nodes = report.nodes
    return [(node.kind, node.name, [nodes[i].name for i in node.inputs]) for node in nodes]


def without_record(mod):
    """Return a module of the same functions."""
    return tvm.IRModule(mod.functions)


class TestWithoutARecord:
    def test_pipeline_by_hand(self):
        mod = byoc_pipeline(module(atan(relay.nn.bias_add(conv(X), const(8)) + X)))
        report = dnnl.offload_report(mod)
        assert report.composites == {"dnnl.conv2d_bias_sum": 1} and report.partitions == 1
        assert report.reasons == {"atan": {"no rule for this op": 1}}
        assert flow(report) == [
            ("input", "x", []),
            ("dnnl", "dnnl.conv2d_bias_sum", ["x"]),
            ("tvm", "atan", ["dnnl.conv2d_bias_sum"]),
            ("output", "result", ["atan"]),
        ]
        assert report.nodes[1].details == "3x3"

    def test_quantized_pipeline_by_hand(self):
        expr, _, scale = accumulated("conv2d", True, True)
        report = dnnl.offload_report(byoc_pipeline(module(requantized(expr, scale))))
        assert report.composites == {"dnnl.qnn.conv2d_bias_quantize": 1}
        assert report.in_8_bits == {"a scale for each channel": 1}
        assert report.total == report.offloaded == 5

    def test_what_no_partition_has(self):
        """TVM's passes leave out views; that the module is partitioned shows."""
        report = dnnl.offload_report(byoc_pipeline(module(relay.reshape(conv(X), (8, 36)))))
        assert report.reasons == {"reshape": {LEFT: 1}}

    def test_a_record_that_was_lost(self):
        mod = partition(module(atan(relu(conv(X))), relu(atan(conv(X)))))
        want, report = dnnl.offload_report(mod), dnnl.offload_report(without_record(mod))
        assert flow(report) == flow(want) and report.composites == want.composites
        assert (report.total, report.offloaded) == (want.total, want.offloaded)

    def test_several_results(self):
        both = relay.split(conv(X), 2, axis=1)
        mod = partition(module(atan(both[1]), relay.sinh(both[0])), prune=False)
        assert mod["main"].checked_type.ret_type and dnnl.offload_report(mod).partitions == 1
        assert flow(dnnl.offload_report(without_record(mod))) == flow(dnnl.offload_report(mod))


def test_partitioned_again_with_another_option():
    """The second run reports the partitions of the first, too, and its own reasons."""
    model = module(relay.nn.dense(atan(relay.nn.batch_flatten(conv(X))), const(4, 288)))
    once = partition(model, exclude=["nn.dense"])
    assert dnnl.offload_report(once).reasons["nn.dense"] == {"excluded by option": 1}
    report = dnnl.offload_report(partition(once))
    assert report.reasons == {"atan": {"no rule for this op": 1}} and report.partitions == 2
    assert report.total == 4 and len({node.partition for node in report.nodes}) == 3
    names = ["x", "nn.conv2d", "nn.batch_flatten", "atan", "nn.dense", "result"]
    assert [node.name for node in report.nodes] == names


def test_partitioned_again_counts_8_bits_once():
    expr, _, scale = accumulated("conv2d", False, False)
    bits = requantized(expr, scale)
    mod = module(atan(DATA.dequantize(bits)), relay.nn.dense(var("y", 4, 8), const(8, 8)))
    once = partition(mod, exclude=["nn.dense"])
    want = {"one scale for each tensor": 1}
    assert dnnl.offload_report(once).in_8_bits == want
    assert dnnl.offload_report(partition(once)).in_8_bits == want


def test_a_record_of_another_version():
    """One without the functions says the rest."""
    mod = partition(module(atan(relay.nn.dropout(conv(X)))))
    record = json.loads(str(mod.get_attr(ATTR)))
    old = {"folded": record["folded"], "excluded": [], "stayed": {"main": []}}
    report = dnnl.offload_report(mod.with_attr(ATTR, tvm.runtime.String(json.dumps(old))))
    assert report.folded == {"nn.dropout": 1} and report.offloaded == 1


class TestWhatARecordHas:
    def test_a_quantized_op_that_is_too_small(self):
        """It stays as the model has it, for the reason of the float op in it."""
        out = Quantization(0.05, 3, "uint8")
        x = DATA.var("x", 2, 4)
        y = qnn.add(
            *(x, DATA.var("y", 2, 4), DATA.scale_expr, DATA.zero_expr),
            *(DATA.scale_expr, DATA.zero_expr, out.scale_expr, out.zero_expr),
        )
        report = dnnl.offload_report(partition(module(y)))
        (reason,) = report.reasons["qnn.add"]
        assert reason.startswith("pruned: too small to be faster") and report.total == 1

    def test_sizes_that_are_computed(self):
        """An op that is written as it was reads its shape, whose ops TVM runs."""
        x = var("x", None, 8)
        sizes = relay.concatenate([relay.shape_of(x, "int64"), relay.const([1], "int64")], 0)
        report = dnnl.offload_report(partition(module(atan(relay.reshape(atan(x), sizes)))))
        assert report.ops == {"atan": 2, "shape_of": 1, "concatenate": 1, "dyn.reshape": 1}
        edges = [
            (node.name, name)
            for node, (*_, names) in zip(report.nodes, flow(report))
            for name in names
        ]
        assert {("dyn.reshape", "concatenate"), ("concatenate", "shape_of")} <= set(edges)

    def test_a_formula(self):
        """Its ops are counted, in a partition or not, and the node has it as one."""
        y = relay.nn.dense(var("y", 64, 64), const(64, 64))
        bent = relay.erf(y * relay.const(2**-0.5))
        mod = module(y * (bent + relay.const(1.0)) * relay.const(0.5))
        before, report = (dnnl.offload_report(each) for each in (mod, partition(mod)))
        assert report.ops == report.offloaded_ops == before.ops
        assert report.nodes[1].ops == ["nn.dense", "dnnl.gelu_erf"]
        assert report.nodes[1].model_ops[0] == "nn.dense" and len(report.nodes[1].model_ops) == 6

    def test_a_let_of_what_is_rewritten(self):
        v = relay.var("v")
        body = relay.Let(v, relay.nn.dropout(atan(X)), relay.sinh(v + relay.const(1.0)))
        mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([X], body)))
        assert ("tvm", "sinh", ["add"]) in flow(dnnl.offload_report(mod))
        kinds = flow(dnnl.offload_report(partition(mod, prune=False)))
        assert kinds[2:4] == [("dnnl", "add", ["atan"]), ("tvm", "sinh", ["add"])]

    def test_a_function_that_calls_itself(self):
        f, n, x = relay.var("f"), var("n", dtype="int32"), var("x", *SHAPE)
        again = relay.Call(f, [n - relay.const(1), conv(x)])
        loop = relay.Function([n, x], relay.If(n > relay.const(0), again, atan(x)))
        call = relay.Call(f, [var("m", dtype="int32"), X])
        body = relay.Let(f, loop, call)
        mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
        report = dnnl.offload_report(partition(mod))
        assert report.offloaded_ops == {"nn.conv2d": 1} and report.total == 4

    def test_a_parameter_that_nothing_reads(self):
        mod = tvm.IRModule.from_expr(relay.Function([var("unread", 3), X], conv(X)))
        nodes = dnnl.offload_report(partition(mod)).nodes
        assert [node.name for node in nodes] == ["unread", "x", "nn.conv2d", "result"]

    def test_a_call_of_another_function(self):
        y = var("y", *SHAPE)
        mod = tvm.IRModule({"other": relay.Function([y], atan(y), relay.TensorType(SHAPE))})
        mod["main"] = relay.Function([X], relay.Call(mod.get_global_var("other"), [conv(X)]))
        nodes = dnnl.offload_report(partition(mod)).nodes
        chain = [(n.kind, n.name) for n in nodes if n.function == "main"]
        assert chain[1:3] == [("dnnl", "nn.conv2d"), ("tvm", "other")]

    def test_composites_of_others(self):
        """An op of TVM's is not looked for under the name of a composite."""
        pattern = [("other.atan", is_op("atan")(wildcard()))]
        merge = relay.transform.MergeComposite(pattern)
        mod = relay.transform.InferType()(merge(module(conv(atan(conv(X))))))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            mod = dnnl.partition_for_dnnl(mod)
        report = dnnl.offload_report(mod)
        assert report.offloaded_ops == {"nn.conv2d": 2}
        assert report.reasons == {"atan": {"in a function marked 'Composite'": 1}}

    @pytest.mark.parametrize("exclude", [(), ("nn.dense",)])
    def test_composites_of_a_pattern_table(self, exclude):
        """Ops in a composite that no partition has are counted one by one."""
        dense = relay.nn.dense(var("y", 4, 8), const(4, 8)) + const(4)
        merge = relay.transform.MergeComposite(dnnl.pattern_table())
        mod = relay.transform.InferType()(merge(module(dense)))
        report = dnnl.offload_report(mod)
        assert report.ops == {"nn.dense": 1, "add": 1} and not report.offloaded
        report = dnnl.offload_report(dnnl.partition_for_dnnl(mod, exclude=exclude))
        assert report.composites == {"dnnl.dense_bias": 1} and report.offloaded == 2

    def test_attributes_of_any_op(self):
        """A size may be one number, which an op without a row has."""
        y = relay.nn.correlation(X, X, 3, 1, 1, 1, 1, True, "NCHW")
        nodes = dnnl.offload_report(module(y)).nodes
        assert nodes[1].details == "3"


def test_a_later_run_adds_a_failure_once():
    record = Record(failures={"main": "decompose failed: a"})
    for text in ("decompose failed: a", "fold_pad failed: b"):
        record.update(Record(failures={"main": text}))
    assert record.failures == {"main": "decompose failed: a; fold_pad failed: b"}
