# SPDX-License-Identifier: Apache-2.0

import json
import re

from scripts.layout import Layout
from scripts.test import corpus


def test_the_fixed_graphs_have_each_op():
    """If not: run `./dev.py test`, then `python -m scripts.test.corpus`."""
    layout = Layout()
    table = layout.root / "src" / "runtime" / "contrib" / "dnnl" / "core" / "op_table.cc"
    ops = set(re.findall(r'^    \{"([\w.]+)", \d', table.read_text("utf-8"), re.MULTILINE))
    seen = set().union(*(corpus.features(json.loads(text)) for text in corpus.read_fixed(layout)))
    fused = {feature[1] for feature in seen if feature[0] == "fused"}
    assert len(ops) > 90 and ops - fused - {feature[0] for feature in seen} == set()


def graph(op, **attrs):
    nodes = [
        {"op": "input", "name": "x", "attrs": {"dtype": [["float32"]], "shape": [[[2]]]}},
        {"op": "kernel", "name": op, "inputs": [[0, 0, 0]], "attrs": {}},
    ]
    nodes[1]["attrs"] = {"dtype": [["float32"]], "shape": [[[2]]], **attrs}
    return json.dumps({"nodes": nodes})


def typed(op, **attrs):
    """Return a graph of version 2."""
    nodes = json.loads(graph(op))["nodes"]
    for node in nodes:
        node["attrs"] = {"dtype": ["float32"], "shape": [[2]]}
    nodes[1]["attrs"].update(attrs)
    return json.dumps({"format_version": 2, "nodes": nodes})


def test_versions_of_the_format_are_chosen_apart():
    fused = typed("dnnl.clip_relu", root_op="clip", post_ops=[{"op": "nn.relu"}])
    other = typed("dnnl.clip_relu", root_op="clip", post_ops=[{"op": "nn.relu", "operand": 2}])
    opened = typed("clip", shape=[[-1]])
    old = graph("clip")
    assert corpus.choose([fused, other, opened, typed("clip"), old], []) == [
        old,
        typed("clip"),
        opened,
        fused,
        other,
    ]
    assert corpus.choose([other, fused, opened], [old, typed("clip"), fused, other]) == [opened]


def test_graphs_with_something_new_are_chosen():
    relu, clip = graph("nn.relu"), graph("clip")
    fused = graph("dnnl.clip_relu", root_op=[["clip"]], post_ops=[["nn.relu"]])
    opened = graph("clip", shape=[[[-1]]])
    graphs = [fused, relu, clip, opened, graph("clip", name=1)]
    assert corpus.choose(graphs, [clip, graph("clip", name=1)]) == [opened, relu, fused]
    assert corpus.choose([relu, fused], [relu, fused]) == []


def test_an_artifact_is_replayed_on_the_graph_that_it_was():
    layout = Layout()
    first = corpus.read_fixed(layout)[0]
    name = corpus.name_of(first)
    assert (corpus.unpack(layout) / f"{name}.json").read_text("utf-8") == first
