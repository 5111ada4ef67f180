# SPDX-License-Identifier: Apache-2.0

import json
import re
import sys

from scripts.layout import Layout
from scripts.test import artifacts, corpus

REPORT = """/x/src/runtime/contrib/dnnl/core/a.cc:7:3: runtime error: division by zero
    #0 0x5581 in tvm::runtime::contrib::dnnl_backend::Lower(int) /x/src/a.cc:7
"""
PRINTED = f"""@corpus 3
{REPORT}@failed it ends the process: Floating point exception
@seed 12 of abc graph
@what nodes[1].attrs.axis = "7"
@saved /tmp/seed-12.artifact
@failed it allocates 9000 bytes, 90.0 x as many as expected
@seed 14 of abc constants
@what bytes at 8
@saved /tmp/seed-14.artifact
@count graph 1 2 3 4 5
@count c_source 1 0 0 0 0
@total 16 trials, 2 failures, 1 s
@most 90 14
@slowest 0.25 13
"""


def test_what_a_process_prints_is_read():
    failures = []
    command = [sys.executable, "-c", f"print({PRINTED!r}, end='')"]
    worker = artifacts.Worker(command, {}, failures.append)
    worker.run()
    assert [(f.seed, f.of, f.saved) for f in failures] == [
        (12, "abc graph", "/tmp/seed-12.artifact"),
        (14, "abc constants", "/tmp/seed-14.artifact"),
    ]
    assert failures[0].report == REPORT and failures[0].what == 'nodes[1].attrs.axis = "7"'
    assert worker.counts["graph", "run"] == 4 and worker.counts["c source", "not loaded"] == 1
    assert (worker.corpus, worker.trials) == (3, 16)
    assert worker.most == (90.0, 14) and worker.slowest == (0.25, 13)


def test_failures_of_one_mistake_are_of_one_kind():
    def kind(why, report=""):
        return artifacts.Failure(why, report=report).kind()

    why = "it ends the process: Floating point exception"
    assert kind(why, REPORT) == (why, "/x/src/runtime/contrib/dnnl/core/a.cc:7")
    report = "    #0 0x12  (<unknown module>)\n    #1 0x34 in dnnl::impl::execute(int) x.cc:1\n"
    summary = "SUMMARY: AddressSanitizer: SEGV (<unknown module>)\n"
    assert kind(why, report + summary) == (why, "SEGV dnnl::impl::execute")
    summary = "SUMMARY: AddressSanitizer: heap-buffer-overflow ../b.cc:165 in f(int)\n"
    assert kind(why, report + summary) == (why, "heap-buffer-overflow ../b.cc:165")
    assert kind("it allocates 9000 bytes, 90.0 x") == kind("it allocates 80 bytes, 2.5 x")


def test_the_fixed_graphs_have_each_op():
    """If not: run `./dev.py test`, then `python -m scripts.test.corpus`."""
    layout = Layout()
    table = layout.root / "src" / "runtime" / "contrib" / "dnnl" / "core" / "op_table.cc"
    ops = set(re.findall(r'^    \{"([\w.]+)", \d', table.read_text("utf-8"), re.MULTILINE))
    seen = set().union(*(corpus.features(json.loads(text)) for text in corpus.read_fixed(layout)))
    fused = {feature[1] for feature in seen if feature[0] == "fused"}
    assert len(ops) > 90 and ops - fused - {feature[0] for feature in seen} == set()


def test_a_symbol_is_replaced_in_names_only(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "Layout", lambda: Layout(tmp_path))
    text = '{"symbol": "f", "nodes": [{"name": "dnnl_f_const_0", "attrs": {"dtype": ["float32"]}}]}'
    corpus.keep("f", text)
    (path,) = Layout(tmp_path).corpus.iterdir()
    assert json.loads(path.read_text("utf-8")) == {
        "symbol": "main",
        "nodes": [{"name": "dnnl_main_const_0", "attrs": {"dtype": ["float32"]}}],
    }


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
