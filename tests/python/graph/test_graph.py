# SPDX-License-Identifier: Apache-2.0
"""Edits of graphs: the use lists, the order of the nodes, and taking edits back."""

import random
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from graph_reader import Reader, text
from tvm.contrib.onednn.ir.dim import Dim, is_same
from tvm.contrib.onednn.ir.match import (
    closed_group,
    has_name,
    is_field,
    is_named,
    is_op,
    only_user,
    orders,
    scalar_of,
    uncast,
    untupled,
)
from tvm.contrib.onednn.ir.node import FIELD, Node, Origin, constant
from tvm.contrib.onednn.ir.numpy_types import rounded
from tvm.contrib.onednn.ir.op_view import NoTensor, Tensor
from tvm.contrib.onednn.ops.evaluate import evaluate


def block():
    """Return a graph of relu(x * w + b) and x, and its nodes by name."""
    r = Reader()
    x = r.input(4, Dim.symbol("n"))
    w, b = r.constant([2.0]), r.constant([3.0])
    product = r.call("multiply", x, w)
    total = r.call("add", product, b)
    relu = r.call("nn.relu", total)
    graph = r.returns(relu, x)
    return graph, SimpleNamespace(x=x, w=w, b=b, product=product, total=total, relu=relu)


def test_reading():
    graph, n = block()
    assert text(graph)[3:] == [
        "%3 = multiply(%0, %1)",
        "%4 = add(%3, %2)",
        "%5 = nn.relu(%4)",
        "%6 = native(%5, %0)",
    ]
    assert n.x.users == [n.product, graph.nodes[-1]] and n.product.users == [n.total]
    assert n.total.calls == [n.total] and n.total.is_call and not n.x.calls
    assert n.w.is_fixed and not n.x.is_fixed and scalar_of(n.w) == 2.0
    assert n.relu.type.shape == (4, None) and is_same(n.x.type.dims[1], n.relu.type.dims[1])
    assert n.total.args[1].value == [3.0] and n.total.arg_names == ["argument 0", "argument 1"]


def test_an_operand_that_is_read_twice():
    r = Reader()
    x = r.input(2)
    square = r.call("multiply", x, x)
    graph = r.returns(square)
    assert x.users == [square, square] and orders(square, "multiply") == []
    new = graph.call("nn.relu", [x], x)
    graph.replace(x, new)
    assert square.operands == [new, new] and new.users == [square, square]
    assert x.users == [new]
    graph.sort()
    graph.verify()


def test_matching():
    graph, n = block()
    assert is_op(n.relu, "nn.relu", "abs") and not is_op(n.relu, "abs") and not is_op(n.x, "abs")
    assert orders(n.total, "add") == [(n.product, n.b), (n.b, n.product)]
    assert orders(n.total, "multiply") == [] and only_user(n.product) is n.total
    assert only_user(n.x) is None
    cast = graph.call("cast", [graph.call("cast", [n.x], n.x, dtype="int32")], n.x, dtype="int8")
    assert uncast(cast) is n.x and uncast(n.x) is n.x
    n.relu.unsupported, n.relu.name = "no rule", "relax.nn.relu"
    assert is_named(n.relu, "nn.relu") and not is_op(n.relu, "relax.nn.relu")
    n.relu.name = "erf"
    assert has_name(n.relu, "erf") and not is_op(n.relu, "erf")


def test_closed_group():
    graph, n = block()
    assert closed_group(n.relu, [n.x]) == {n.product, n.total, n.relu}
    assert closed_group(n.relu, [n.product]) == {n.total, n.relu}
    assert closed_group(n.relu, [n.x], most=2) is None
    graph.call("abs", [n.product], n.product)
    assert closed_group(n.relu, [n.x]) is not None, "a new node that is in no place reads nothing"
    graph.replace(n.relu, graph.call("add", [n.relu, n.product], n.relu))
    graph.sort()
    assert closed_group(n.relu, [n.x]) is None, "something else reads the product"
    n.total.scope = 1
    assert closed_group(n.relu, [n.product]) is None


def test_replace_keeps_use_lists():
    graph, n = block()
    new = graph.call("nn.leaky_relu", [n.total], n.relu, alpha=0.5)
    graph.replace(n.relu, new)
    assert new.users == graph.nodes[-1:] and n.relu.users == [] and n.relu.current is new
    assert n.total.users == [n.relu, new]
    assert graph.nodes[5] is n.relu and not new.is_live, "until the nodes are sorted"
    graph.sort()
    graph.verify()
    assert not n.relu.is_live and n.relu.index is None and n.total.users == [new]
    assert text(graph)[-2:] == ["%5 = nn.leaky_relu(%4)", "%6 = native(%5, %0)"]


def test_replace_by_what_reads_the_old_node():
    graph, n = block()
    new = graph.call("abs", [n.total], n.total)
    graph.replace(n.total, new)
    assert n.relu.operands == [new] and new.operands == [n.total]
    assert n.total.users == [new] and new.users == [n.relu]
    assert n.total.current is n.total, "a later reader of it must not read itself"
    graph.sort()
    graph.verify()
    assert text(graph)[4:7] == ["%4 = add(%3, %2)", "%5 = abs(%4)", "%6 = nn.relu(%5)"]


def test_replace_by_what_reads_the_old_node_through_others():
    graph, n = block()
    inner = graph.call("abs", [n.product], n.product)
    new = graph.call("nn.relu", [inner], n.product)
    graph.replace(n.product, new)
    assert inner.operands == [n.product] and n.total.operands == [new, n.b]
    graph.sort()
    graph.verify()


def test_replace_by_an_operand():
    graph, n = block()
    graph.replace(n.relu, n.total)
    graph.sort()
    graph.verify()
    assert n.total.users == graph.nodes[-1:] and n.relu.current is n.total


def test_replace_twice():
    graph, n = block()
    first = graph.call("abs", [n.total], n.relu)
    graph.replace(n.relu, first)
    second = graph.call("negative", [n.total], n.relu)
    graph.replace(first, second)
    assert n.relu.current is second and graph.nodes[-1].operands[0] is second
    graph.replace(second, second)
    graph.sort()
    graph.verify()


def test_a_node_that_was_moved_up_is_not_read_by_itself():
    """`early` comes to read `late`, which has a higher number; then `late` is replaced."""
    r = Reader()
    x = r.input(2)
    early, late = r.call("abs", x), r.call("negative", x)
    graph = r.returns(early, late)
    between = graph.call("exp", [late], early)
    graph.replace(x, between)
    # x is read by both again, but for `between` itself.
    assert late.operands == [x] and early.operands == [between]
    new = graph.call("add", [early, x], late)
    graph.replace(late, new)
    graph.sort()
    graph.verify()


def test_what_nothing_reads_goes():
    graph, n = block()
    graph.replace(n.relu, n.x)
    graph.sort()
    graph.verify()
    assert text(graph) == ["%0 = input()", "%1 = native(%0, %0)"]
    assert n.x.users == [graph.nodes[-1]] * 2
    assert not any(node.is_live for node in (n.w, n.b, n.product, n.total, n.relu))


def test_what_is_pinned_stays():
    graph, n = block()
    n.total.is_pinned = True
    graph.replace(n.relu, n.x)
    graph.sort()
    assert n.total.is_live and graph.nodes[-1].kind == "native"


def test_order():
    """New nodes go right before what reads them first; the others keep their order."""
    graph, n = block()
    three = constant([3.0], "float32")
    new = graph.call("add", [graph.call("abs", [n.x], n.x), three], n.product)
    graph.replace(n.product, new)
    graph.sort()
    kinds = [node.name or node.kind for node in graph.nodes]
    assert kinds == "input constant abs constant add add nn.relu native".split()
    before = text(graph)
    graph.sort()
    assert text(graph) == before
    assert evaluate(graph, [np.ones((4, 2), "float32")])[0].tolist() == [[7.0] * 2] * 4


def test_fuse_into():
    graph, n = block()
    new = graph.call("dnnl.linear", [n.x], n.total, alpha=2.0, beta=3.0)
    graph.fuse_into(n.total, new)
    graph.sort()
    graph.verify()
    assert new.expansion is n.total and n.relu.operands == [new] and not n.total.is_live


def test_origin():
    r, origin = Reader(), Origin("expression")
    x = r.input(2)
    first = r.call("exp", x, origin=origin)
    second = r.call("log", first, origin=origin)
    graph = r.returns(second)
    assert origin.nodes == [first, second] and second.origin is origin and origin.is_intact
    other = graph.call("abs", [first], second)
    assert not origin.is_intact, "another node reads the inner one"
    first.users.remove(other)
    graph.replace(second, graph.call("abs", [x], second))
    graph.sort()
    assert not origin.is_intact, "a node is gone"


def test_calls_like_others():
    graph, n = block()
    r = Reader()
    clip = r.call("clip", r.input(2), a_min=0.0, a_max=6.0)
    clip._arg_names = ["data"]
    changed = r.graph.with_attrs(clip, clip.operands, a_max=1.0)
    assert vars(changed.attrs) == {"a_min": 0.0, "a_max": 1.0} and clip.attrs.a_max == 6.0
    same = graph.with_operands(clip, [n.x])
    assert same.type.dims == n.x.type.dims and same.arg_names == ["data"] and same.template is None
    clip.origin = Origin("expression")
    clip.origin.nodes.append(clip)
    assert graph.with_operands(clip, [n.x]).template is clip


def test_tuples():
    r = Reader()
    x, y = r.input(2, 3), r.input(2, 3)
    parts = r.call("split", x, indices_or_sections=3, axis=1)
    field = r.field(parts, 1)
    joined = r.call("concatenate", r.tuple(field, y), axis=1)
    graph = r.returns(joined)
    assert parts.returns_tuple and len(parts.results) == 3 and field.type.dims == (2, 1)
    assert joined.type.dims == (2, 4)
    assert is_field(field, 1) and not is_field(field, 0) and not is_field(x, 0)
    pair = graph.tuple([x, y], x)
    assert graph.field_of(pair, 1) is y
    read = Node(FIELD, None, [pair], y.type, SimpleNamespace(index=1))
    assert untupled(read) is y and untupled(field) is field and untupled(x) is x
    assert graph.field_of(parts, 2).attrs.index == 2


def test_checkpoint():
    graph, n = block()
    before, types = text(graph), [node.type.dims for node in graph.nodes[:-1]]
    restore = graph.checkpoint()
    for _ in range(2):
        graph.replace(n.product, graph.call("abs", [n.x], n.x))
        graph.sort()
        graph.replace(n.relu, n.total)
        restore()
        graph.verify()
        assert text(graph) == before
        assert [node.type.dims for node in graph.nodes[:-1]] == types
        assert n.product.current is n.product and n.product.is_live
        assert n.total.operands == [n.product, n.b]


def test_checkpoint_before_the_nodes_are_sorted():
    graph, n = block()
    restore = graph.checkpoint()
    new = graph.call("abs", [n.x], n.x)
    graph.replace(n.relu, new)
    restore()
    graph.verify()
    assert not new.is_live and new not in n.x.users and len(graph.nodes) == 7


def read_late(n):
    n.product.operands[0] = n.relu
    n.x.users.remove(n.product)
    n.relu.users.append(n.product)


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda graph, n: graph.nodes.reverse(), "is not number 0"),
        (lambda graph, n: n.x.users.clear(), "does not know"),
        (lambda graph, n: n.product.users.append(n.relu), "does not read"),
        (lambda graph, n: read_late(n), "too early"),
        (lambda graph, n: setattr(n.relu, "_type", NoTensor("tuple")), "computes"),
    ],
)
def test_verify(damage, message):
    graph, n = block()
    damage(graph, n)
    with pytest.raises(AssertionError, match=message):
        graph.verify()


def test_constants():
    assert scalar_of(constant(np.float32(2.5))) == 2.5
    assert scalar_of(constant([[1.0]], "bfloat16")) == 1.0
    assert scalar_of(constant([1.0, 1.0])) is None and scalar_of(constant(np.int32(1))) is None
    assert scalar_of(constant(np.float32(np.inf))) is None
    node = constant([1.0 + 2.0**-9, 3e38], "bfloat16")
    assert node.type.dtype == "bfloat16" and node.value.dtype == ml_dtypes.bfloat16
    assert node.value[0] == 1.0 and node.is_constant
    assert rounded(np.array([1e39, -1e39]), "float32").tolist() == [np.inf, -np.inf]


def test_types_that_are_read_late():
    read = []
    node = Node(
        "call",
        "abs",
        [],
        lambda: read.append("type") or Tensor((2,), "float32"),
        lambda: read.append("attrs") or SimpleNamespace(axis=1),
    )
    assert not read
    assert node.type.dims == (2,) and node.attrs.axis == 1 and node.type is node.type
    assert read == ["type", "attrs"]


@pytest.mark.parametrize("seed", range(60))
def test_random_edits(seed):
    """Values stay when nodes are replaced by others that compute the same."""
    rng, r = random.Random(seed), Reader()
    nodes = [r.input(3) for _ in range(2)] + [r.constant(np.arange(3.0))]
    for _ in range(12):
        name = rng.choice(["abs", "negative", "nn.relu", "add", "maximum", "subtract"])
        count = 2 if name in ("add", "maximum", "subtract") else 1
        nodes.append(r.call(name, *(rng.choice(nodes) for _ in range(count))))
    graph = r.returns(*nodes[-3:], *nodes[:2])
    graph.sort()
    inputs = [np.array([1.0, -2.0, 3.0], "float32"), np.array([-1.0, 0.5, 2.0], "float32")]
    inputs = dict(zip(nodes, inputs))
    expected, before, restore = evaluate(graph, inputs), text(graph), graph.checkpoint()
    for _ in range(4):
        for _ in range(rng.randint(1, 4)):
            old = rng.choice([node for node in graph.nodes[:-1] if node.is_live])
            _replace_by_equal(rng, graph, old)
        graph.sort()
        graph.verify()
        for got, want in zip(evaluate(graph, inputs), expected, strict=True):
            np.testing.assert_array_equal(got, want)
    restore()
    graph.verify()
    assert text(graph) == before


def _replace_by_equal(rng, graph, old):
    if rng.random() < 0.4 and old.is_call:
        graph.replace(old, graph.with_operands(old, old.operands))
    elif rng.random() < 0.5:
        inner = graph.call("negative", [old], old)
        graph.replace(old, graph.call("negative", [inner], old))
    else:
        zero = constant(np.zeros(3), "float32")
        graph.replace(old, graph.call("add", [old, zero], old))
