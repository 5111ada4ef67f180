# SPDX-License-Identifier: Apache-2.0
"""What a compilation takes is bounded, or linear in the size of the graph."""

import numpy as np
import pytest
from graph_reader import Reader
from tvm.contrib.onednn.frontend.prepare import prepare
from tvm.contrib.onednn.ir.growth import Growth
from tvm.contrib.onednn.ir.match import has_name
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.options import Options
from tvm.contrib.onednn.partition.data_flow import DataFlow
from tvm.contrib.onednn.partition.regions import Regions
from tvm.contrib.onednn.rewrites import formulas, norm_readers
from tvm.contrib.onednn.rewrites.fold_constants import fold_constants
from tvm.contrib.onednn.rewrites.fuse_formulas import fuse_formulas

RULES = Rules(TABLE, Options(strict=True))
BOUND = 1 << 26


def doubled(count):
    """Return a graph that adds the last of some concatenations of a constant with itself."""
    reader = Reader()
    x, node = reader.input(1), reader.constant(np.ones(4))
    for _ in range(count):
        node = reader.call("concatenate", reader.tuple(node, node), axis=0)
    return reader.returns(reader.call("add", x, node))


@pytest.mark.parametrize("count, left", [(10, 0), (45, 23)])
def test_folding_a_graph_is_bounded(count, left):
    graph = doubled(count)
    fold_constants(graph, RULES)
    graph.sort()
    graph.verify()
    sizes = [node.value.nbytes for node in graph.nodes if node.is_constant]
    assert max(sizes) <= BOUND
    assert sum(node.name == "concatenate" for node in graph.nodes) == left


@pytest.mark.parametrize("count, is_folded", [(10, True), (40, False)])
def test_folding_a_model_is_bounded(count, is_folded):
    onnx = pytest.importorskip("onnx")
    nodes, value = [], "c"
    for k in range(count):
        nodes.append(onnx.helper.make_node("Concat", [value, value], [f"t{k}"], axis=0))
        value = f"t{k}"
    nodes.append(onnx.helper.make_node("Add", ["x", value], ["y"]))
    value_of = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [value_of("x", onnx.TensorProto.FLOAT, [1])],
        [value_of("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.ones(4, "float32"), "c")],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    prepared = prepare(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8))
    assert (len(prepared.graph.node) == 1) == is_folded
    assert prepared.ByteSize() <= BOUND + (1 << 16)


def test_growth():
    growth = Growth(own=1000)
    # A long chain of the same size is free, and an operand counts once.
    assert all(growth.admits(1 << 30, [("x", 1 << 30)]) for _ in range(9))
    assert not growth.admits(BOUND + 1002, [("x", 1)] * 2)
    assert growth.admits(BOUND + 1002, [("x", 1), ("y", 1)])
    assert not growth.admits(3, [("x", 1)])


def test_regions_are_found_in_linear_time(monkeypatch):
    """A long chain of residuals: each region is compared with those near it only."""

    def finds(count):
        reader = Reader()
        node = reader.input(2, 3)
        for _ in range(count):
            other = reader.call("tanh", reader.call("negative", node))
            node = reader.call("add", node, other)
        graph, searches = reader.returns(node), []
        find = Regions._find

        def counted(self, i):
            searches.append(i)
            return find(self, i)

        with monkeypatch.context() as patch:
            patch.setattr(Regions, "_find", counted)
            regions = Regions(DataFlow(graph), lambda node: node.name in ("add", "negative"))
        assert len(regions.members) == count + 1
        return len(searches)

    assert finds(400) < 2.2 * finds(200)


@pytest.mark.parametrize("seed", range(30))
def test_regions_have_no_path_that_returns(seed):
    """And none can be merged with a neighbor."""
    rng, reader = np.random.default_rng(seed), Reader()
    nodes = [reader.input(2, 3)]
    for _ in range(60):
        low = max(0, len(nodes) - int(rng.choice((2, 5, 60))))
        picked = [nodes[k] for k in rng.integers(low, len(nodes), 2)]
        nodes.append(reader.call(str(rng.choice(("add", "multiply"))), *picked))
    graph = reader.returns(*nodes)
    regions = Regions(DataFlow(graph), lambda node: node.name == "add")

    def is_closed(members):
        """Whether nothing outside is computed from a region and read by it."""
        inside, below = set(members), set(members)
        for node in graph.nodes[:-1]:
            outside = below.intersection(node.operands)
            if node in inside:
                if outside - inside:
                    return False
            elif outside:
                below.add(node)
        return True

    group = {node: k for k, members in enumerate(regions.members) for node in members}
    assert all(map(is_closed, regions.members))
    # The order of the groups: each depends on earlier ones only.
    edges = {
        (group.get(operand, -operand.index - 1), group.get(node, -node.index - 1))
        for node in graph.nodes
        for operand in node.operands
    }
    edges = {(a, b) for a, b in edges if a != b}
    while edges:
        ready = {a for a, _ in edges} - {b for _, b in edges}
        assert ready, "groups that depend on each other"
        edges = {(a, b) for a, b in edges if a not in ready}


def test_formulas_are_found_in_linear_time(monkeypatch):
    def reads(count):
        reader = Reader()
        node = reader.input(2, 3)
        for _ in range(count):
            node = reader.call("add", node, reader.call("tanh", reader.call("negative", node)))
            node = reader.call("multiply", node, reader.call("sigmoid", node))
        graph, asked = reader.returns(node), []

        def counted(*args):
            asked.append(args)
            return has_name(*args)

        with monkeypatch.context() as patch:
            for module in (formulas, norm_readers):
                patch.setattr(module, "has_name", counted)
            fuse_formulas(graph, RULES)
        return len(asked)

    assert reads(800) < 2.2 * reads(400)
