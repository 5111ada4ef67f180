# SPDX-License-Identifier: Apache-2.0
"""The report as data: the module as a graph of nodes, and JSON."""

import json

import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl

from dnnl_tests.relay import const, conv, module, partition, var

SHAPE = (1, 8, 6, 6)
X = var("x", *SHAPE)
relu, atan = relay.nn.relu, relay.atan


def report_of(*results, **options):
    return dnnl.offload_report(partition(module(*results), **options))


def flow(nodes):
    """Write each edge as "name -> name"."""
    return [f"{nodes[i].name} -> {node.name}" for node in nodes for i in node.inputs]


class TestNodes:
    def test_what_runs_where(self):
        nodes = report_of(atan(relu(conv(X) + const(8, 1, 1)))).nodes
        assert [(node.kind, node.name) for node in nodes] == [
            ("input", "x"),
            ("dnnl", "dnnl.conv2d_bias_relu"),
            ("tvm", "atan"),
            ("output", "result"),
        ]
        assert [node.inputs for node in nodes] == [[], [0], [1], [2]]
        assert nodes[1].ops == ["nn.conv2d", "add", "nn.relu"]
        assert nodes[1].partition == "tvmgen_default_dnnl_main_0"
        assert (nodes[1].details, nodes[1].shape) == ("3x3", "1x8x6x6")
        assert (nodes[2].partition, nodes[2].reason) == (None, "no rule for this op")

    def test_every_call_has_its_node(self):
        report = report_of(atan(conv(X)), relay.nn.dense(relay.nn.batch_flatten(X), const(4, 288)))
        drawn = [op for node in report.nodes for op in node.model_ops]
        assert sorted(drawn) == sorted(op for op, n in report.ops.items() for _ in range(n))

    def test_tuples_are_followed(self):
        parts = relay.split(X, 2, axis=1)
        y = relay.Tuple([relay.atan(parts[1]), relay.sinh(X)])
        nodes = report_of(relay.TupleGetItem(y, 0)).nodes
        assert "x -> split" in flow(nodes) and "split -> atan" in flow(nodes)
        assert [nodes[i].name for i in nodes[-1].inputs] == ["atan"]

    def test_let_is_followed(self):
        v = relay.var("v")
        mod = tvm.IRModule.from_expr(relay.Function([X], relay.Let(v, atan(X), relay.sinh(v))))
        assert flow(dnnl.offload_report(mod).nodes) == [
            "x -> atan",
            "atan -> sinh",
            "sinh -> result",
        ]

    def test_branches_and_functions_are_followed(self):
        flag = relay.var("flag", shape=(), dtype="bool")
        body = relay.If(flag, atan(X), relay.sinh(X))
        mod = tvm.IRModule.from_expr(relay.Function([flag, X], body))
        edges = flow(dnnl.offload_report(mod).nodes)
        assert {"flag -> result", "atan -> result", "sinh -> result"} <= set(edges)

    def test_other_types(self):
        x = relay.var("x", shape=(relay.Any(), 4), dtype="int32")
        nodes = dnnl.offload_report(tvm.IRModule.from_expr(relay.Function([x], relu(x)))).nodes
        assert nodes[0].shape == "?x4 int32"


def test_json():
    report = report_of(atan(relu(conv(X))))
    parsed = json.loads(report.to_json())
    nodes = parsed.pop("nodes")
    assert parsed == report.to_dict()
    assert [node["id"] for node in nodes] == [0, 1, 2, 3]
    assert nodes[1] == {
        "id": 1,
        "kind": "dnnl",
        "name": "dnnl.conv2d_relu",
        "function": "main",
        "ops": ["nn.conv2d", "nn.relu"],
        "details": "3x3",
        "shape": "1x8x6x6",
        "partition": "tvmgen_default_dnnl_main_0",
        "reason": None,
        "inputs": [0],
        "sources": [],
        "model_ops": ["nn.conv2d", "nn.relu"],
    }


def test_sources():
    """The names that an importer left, by op: for people the first ones, in the nodes all."""

    def named(expr, name):
        span = relay.Span(relay.SourceName(name), 0, 0, 0, 0)
        return relay.Call(expr.op, expr.args, expr.attrs, expr.type_args, span)

    y = named(relu(named(conv(X), "/stem/Conv")), "/stem/Relu")
    for name in ("/a/Atan", "/b/Atan", "/c/Atan", "result@@/d/Atan"):
        y = named(atan(y), name)
    report = report_of(y)
    assert [node.sources for node in report.nodes if node.kind == "dnnl"] == [
        ["/stem/Conv", "/stem/Relu"]
    ]
    stayed = [node.sources for node in report.nodes if node.kind == "tvm"]
    assert stayed == [["/a/Atan"], ["/b/Atan"], ["/c/Atan"], ["/d/Atan"]]
    assert "4 x no rule for this op (/a/Atan, /b/Atan, 2 more)" in str(report)
