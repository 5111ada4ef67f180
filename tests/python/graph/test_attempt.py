# SPDX-License-Identifier: Apache-2.0
"""What fails costs only the ops that it touches."""

import pytest
from graph_reader import Reader
from tvm.contrib.onednn.failures import PartitionError, PartitionWarning
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.schema import OpSchema
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.options import Options
from tvm.contrib.onednn.partition.offload import UnwritableOps, offload
from tvm.contrib.onednn.rewrites import pipeline
from tvm.contrib.onednn.rewrites.attempt import attempt

LENIENT = Options(strict=False, prune=False)
SIZE = 100


def chain(bad=()):
    """Return a chain of ops; those with bad numbers are of another op."""
    reader = Reader()
    node = reader.input(2, 3)
    for number in range(SIZE):
        node = reader.call("tanh" if number in bad else "sigmoid", node)
    return reader.returns(node)


def exponents(graph, rules):
    """Replace each op by another one; raise at `tanh`, after a part of the work is done."""
    for node in graph.nodes:
        if node.name == "tanh":
            raise ValueError("no exponent")
        if node.name == "sigmoid":
            graph.replace(node, graph.call("exp", node.operands, node))


def ops(graph):
    return [node.name for node in graph.nodes if node.is_call]


@pytest.mark.parametrize("bad", [(0,), (SIZE - 1,), (7, 8), (3, 50, 99), (0, 1, 2, 3)])
def test_a_rewrite_leaves_the_ops_at_which_it_raises(bad):
    graph, runs = chain(bad), []

    def counted(*args):
        runs.append(1)
        return exponents(*args)

    _, failures = attempt(counted, graph, Rules(TABLE, LENIENT))
    assert [op for op, _ in failures] == ["tanh"] * len(bad)
    assert [name == "tanh" for name in ops(graph)] == [n in bad for n in range(SIZE)]
    graph.verify()
    # Logarithmic in the size of the graph.
    assert len(runs) <= 1 + len(bad) * 10


@pytest.mark.parametrize("count", [5, SIZE])
def test_a_rewrite_that_raises_everywhere_is_taken_back(count):
    graph = chain(range(count))
    before = ops(graph)
    _, failures = attempt(exponents, graph, Rules(TABLE, LENIENT))
    assert [op for op, _ in failures] == [None]
    assert ops(graph) == before
    graph.verify()


def test_strict_rewrite(monkeypatch):
    monkeypatch.setattr(pipeline, "simplify", exponents)
    with pytest.raises(PartitionError, match="function f: exponents failed: no exponent"):
        pipeline.rewrite(chain([5]), Rules(TABLE, Options(strict=True)), "f", {})


def test_a_rewrite_that_fails_at_an_op_is_a_warning(monkeypatch):
    monkeypatch.setattr(pipeline, "simplify", exponents)
    graph, failures = chain([5]), {}
    with pytest.warns(PartitionWarning, match="exponents of tanh failed: no exponent"):
        pipeline.rewrite(graph, Rules(TABLE, LENIENT), "f", failures)
    assert failures == {"f": "exponents of tanh failed: no exponent"}
    assert ops(graph).count("exp") == SIZE - 1


def write_all_but(*names):
    """Return a writer that cannot write some ops, and the ops of the partitions that it wrote."""

    def write(units, decision):
        bad = [node for node in units.graph.nodes if node.is_call and node.name in names]
        inside = {m for part in decision.partitions for node in part for m in units.members(node)}
        if inside.intersection(bad):
            raise UnwritableOps({node: TypeError("data must be float") for node in bad})
        return [[node.name for node in part] for part in decision.partitions]

    return write


def test_an_op_that_cannot_be_written_stays_on_tvm():
    rules, failures = Rules(TABLE, LENIENT), {}
    with pytest.warns(PartitionWarning, match="writing tanh failed: data must be float"):
        done = offload(lambda: chain([10, 60]), write_all_but("tanh"), rules, "f", failures)
    assert sum(map(len, done.written)) == SIZE - 2
    assert len(done.written) == 3
    assert failures == {"f": "writing tanh failed: data must be float"}
    with pytest.raises(PartitionError, match="writing tanh"):
        strict = Rules(TABLE, Options(strict=True, prune=False))
        offload(lambda: chain([10]), write_all_but("tanh"), strict, "f", {})


def test_a_rewrite_whose_ops_cannot_be_written_is_skipped(monkeypatch):
    def write(units, decision):
        bad = [node for node in units.graph.nodes if node.name == "exp"]
        if bad:
            raise UnwritableOps({node: TypeError("no exp") for node in bad})
        return ops(units.graph)

    monkeypatch.setattr(pipeline, "simplify", exponents)
    with pytest.warns(PartitionWarning, match="writing exp failed: no exp"):
        done = offload(chain, write, Rules(TABLE, LENIENT), "f", {})
    assert done.written == ["sigmoid"] * SIZE


def test_an_op_that_stands_for_several_is_replaced_with_them(monkeypatch):
    """It reads another node than they do, which goes with it."""

    def fuse_tanh(graph, rules):
        for node in graph.nodes:
            if node.name == "tanh":
                read = graph.call("abs", node.operands, node)
                graph.fuse_into(node, graph.call("exp", [read], node))

    monkeypatch.setattr(pipeline, "simplify", fuse_tanh)
    rules, failures = Rules(TABLE, LENIENT), {}
    with pytest.warns(PartitionWarning, match="writing exp failed: data must be float"):
        done = offload(lambda: chain([10, 60]), write_all_but("exp"), rules, "f", failures)
    done.graph.verify()
    assert ops(done.graph) == ops(chain([10, 60]))
    assert [len(part) for part in done.written] == [SIZE]


def test_a_rule_that_raises_costs_its_op():
    def rule(call):
        raise KeyError("an attribute")

    rows = {**TABLE, "tanh": OpSchema("tanh", rule)}
    with pytest.warns(PartitionWarning, match="the rule of tanh failed: 'an attribute'"):
        done = offload(lambda: chain([50]), write_all_but(), Rules(rows, LENIENT), "f", {})
    assert sum(map(len, done.written)) == SIZE - 1
