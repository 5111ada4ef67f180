# SPDX-License-Identifier: Apache-2.0
"""Ops that repeat or gather elements, and ops of truths, as those with a row."""

import numpy as np
import pytest
from graph_reader import Reader
from tvm.contrib.onednn.ir.dim import Dim
from tvm.contrib.onednn.ir.node import CALL
from tvm.contrib.onednn.ir.op_view import Tensor
from tvm.contrib.onednn.ops.evaluate import evaluate
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.rewrites.decompose import COMPOSED, decompose

RULES = Rules(TABLE)
X = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4)).astype("float32")
SPECIAL = np.float32([[0.5, np.nan, np.inf], [-np.inf, -2, 0]])
TRUTHS = np.array([[True, False, True], [False, False, True]])
OTHERS = np.array([[True, True, False], [False, True, True]])


def composed(name, values, wanted, **attrs):
    """Return the graph of an op without a row, and what it computes."""
    r = Reader()
    inputs = [r.input(*value.shape, dtype=str(value.dtype)) for value in values]
    node = r.call(name, *inputs, type_=Tensor(wanted.shape, str(wanted.dtype)), **attrs)
    node.unsupported = COMPOSED
    return r.returns(node)


INDICES = np.array([[2, 0, 2], [1, 1, 0]])
CASES = {
    "repeat": ([X], np.repeat(X, 3, 1), dict(repeats=3, axis=1)),
    "repeat-last": ([X], np.repeat(X, 2, -1), dict(repeats=2, axis=-1)),
    "tile": ([X], np.tile(X, (2, 1, 3)), dict(repeats=[2, 1, 3])),
    "tile-more-axes": ([X], np.tile(X, (3, 1, 2, 1)), dict(repeats=[3, 1, 2, 1])),
    "tile-fewer-axes": ([X], np.tile(X, 2), dict(repeats=[2])),
    "take-int64": ([X, INDICES], X[:, INDICES], dict(axis=1, mode="clip")),
    "take-int32": ([X, INDICES.astype("int32")], X[:, INDICES], dict(axis=1, mode="fast")),
    "isnan": ([SPECIAL], np.isnan(SPECIAL), {}),
    "isinf": ([SPECIAL], np.isinf(SPECIAL), {}),
    "isfinite": ([SPECIAL], np.isfinite(SPECIAL), {}),
    "logical_not": ([TRUTHS], ~TRUTHS, {}),
    "logical_and": ([TRUTHS, OTHERS], TRUTHS & OTHERS, {}),
    "logical_or": ([TRUTHS, OTHERS], TRUTHS | OTHERS, {}),
    "logical_xor": ([TRUTHS, OTHERS], TRUTHS ^ OTHERS, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_decomposed(case):
    values, wanted, attrs = CASES[case]
    name = case.split("-")[0]
    graph = composed(f"relax.{name}", values, wanted, **attrs)
    decompose(graph, RULES)
    graph.sort()
    graph.verify()
    calls = [node for node in graph.nodes if node.kind == CALL]
    # TVM converts indices.
    left = {node.name for node in calls if RULES.refusal(node) is not None}
    assert left <= {"cast", "minimum", "maximum"} and f"relax.{name}" not in left
    (got,) = evaluate(graph, values)
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == wanted.dtype


REFUSED = {
    "take": ([X, INDICES], X[:, INDICES], dict(axis=1, mode="wrap"), "int64 with mode=wrap"),
    "repeat": ([X], np.repeat(X, 2), dict(repeats=2, axis=None), "axis is not given"),
    "logical_not": ([INDICES], INDICES == 0, {}, "not bool"),
    "isnan": ([X.astype("float64")], np.isnan(X), {}, "float64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    values, wanted, attrs, reason = REFUSED[name]
    graph = composed(f"relax.{name}", values, wanted, **attrs)
    decompose(graph, RULES)
    (node,) = (node for node in graph.nodes if node.kind == CALL)
    assert reason in node.unsupported


def _concatenation(build):
    """Return a concatenation along an axis whose sizes are open."""
    r = Reader()
    x = r.input(2, Dim.symbol("n"), 3)
    token = r.call("nn.dense", x, r.constant(np.eye(3)))
    token = r.call("nn.pad", token, r.constant(0.0), pad_width=[[0, 0]] * 3, pad_mode="constant")
    fields = build(r, x, token)
    node = r.call("concatenate", r.tuple(*fields), axis=1)
    r.returns(node)
    return node


CONCATENATIONS = {
    "computed": (lambda r, x, token: [token, token], None),
    "input": (lambda r, x, token: [x, token], None),
    "sum": (lambda r, x, token: [r.call("add", token, x), x], None),
    "input-moved": (
        lambda r, x, token: [r.call("nn.relu", x), token],
        "tensor 0 may be empty: its size along axis 1 is open",
    ),
    "inputs": (
        lambda r, x, token: [x, x],
        "each tensor may be empty: their sizes along axis 1 are open",
    ),
}


@pytest.mark.parametrize("case", CONCATENATIONS)
def test_a_concatenation_of_open_sizes(case):
    build, reason = CONCATENATIONS[case]
    assert RULES.refusal(_concatenation(build)) == reason
