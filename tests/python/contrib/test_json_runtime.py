# SPDX-License-Identifier: Apache-2.0
"""The JSON graph of a DNNL module, seen from Python; `tests/cpp-runtime/json` tests the classes."""

import json

import pytest
import tvm
from dnnl_tests import small_graph as small
from dnnl_tests.marks import json_only
from dnnl_tests.reference import RTOL
from dnnl_tests.version_1 import in_version_1
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

pytestmark = json_only


def check_runs(module):
    testing.assert_close(small.run(module), small.reference(), RTOL)


def test_layout_of_the_graph():
    graph = small.graph()
    symbol, _, names = small.parts()
    tables = ["arg_nodes", "heads", "node_row_ptr"]
    assert list(graph) == ["format_version", "symbol", "nodes", *tables]
    assert graph["format_version"] == 2
    assert graph["symbol"] == symbol
    kinds = [node["op"] for node in graph["nodes"]]
    assert sorted(kinds) == ["const"] * 3 + ["input"] + ["kernel"] * 2
    assert graph["arg_nodes"] == [i for i, kind in enumerate(kinds) if kind != "kernel"]
    assert graph["node_row_ptr"] == list(range(len(kinds) + 1))
    assert len(graph["heads"]) == 2
    assert [node["name"] for node in graph["nodes"] if node["op"] == "const"] == names
    for node in graph["nodes"]:
        assert ("inputs" in node) == (node["op"] == "kernel")
        assert list(node["attrs"]["shape"][0]) and node["attrs"]["dtype"] == ["float32"]


def test_get_source():
    module = small.create(small.parts()[1])
    assert module.get_source("json") == module.get_source() == small.parts()[1]
    assert module.get_source("asm") == ""
    assert module.type_key == "dnnl_json"


def kernel_attrs(expr, op):
    """Return the attributes of the node of `op` in the graph of a partitioned expression."""
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), prune=False)
    (module,) = testing.dnnl_modules(testing.build(mod))
    nodes = json.loads(module.get_source("json"))["nodes"]
    (attrs,) = [n["attrs"] for n in nodes if op in (n["name"], n["attrs"].get("root_op"))]
    return attrs


def test_attributes_are_typed():
    x = relay.var("x", shape=(1, 8, 6, 6))
    w = relay.var("w", shape=(8, 2, 3, 3))
    conv = relay.nn.conv2d(x, w, kernel_size=(3, 3), channels=8, groups=4, padding=(1, 0, 2, 1))
    attrs = kernel_attrs(conv, "nn.conv2d")
    assert attrs["groups"] == 4 and attrs["channels"] == 8
    assert attrs["padding"] == [1, 0, 2, 1]
    assert attrs["data_layout"] == "NCHW" and attrs["out_layout"] == ""
    assert attrs["shape"] == [[1, 8, 7, 5]] and attrs["dtype"] == ["float32"]


def without_optional_parts(graph):
    """What other writers may leave out or add."""
    del graph["symbol"]
    for node in graph["nodes"]:
        node["attrs"].pop("num_inputs", None)
        node["attrs"].pop("num_outputs", None)
        node["inputs"] = [entry[:2] for entry in node.get("inputs", [])]
    graph["heads"] = [entry[:2] for entry in graph["heads"]]
    return graph


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("indent", [None, 0, 3], ids=lambda indent: f"indent-{indent}")
def test_other_writers_are_read(indent, version):
    graph = small.graph()
    if version == 1:
        graph = {"format_version": 1, **in_version_1(graph)}
    check_runs(small.create(json.dumps(without_optional_parts(graph), indent=indent)))


def test_earlier_releases_are_read():
    check_runs(small.create(json.dumps(in_version_1(small.graph()))))


if __name__ == "__main__":
    tvm.testing.main()
