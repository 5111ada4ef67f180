# SPDX-License-Identifier: Apache-2.0
"""Unrolled recurrent layers become one op each where that computes the same, and stay where not."""

import gc
import sys

import numpy as np
import pytest
from graph_reader import Reader
from tvm.contrib.onednn.ir.node import CALL
from tvm.contrib.onednn.ops.evaluate import evaluate
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.options import Options
from tvm.contrib.onednn.rewrites.fold_constants import fold_constants
from tvm.contrib.onednn.rewrites.recurrent_layers import read_recurrent_layers
from unrolled import Unrolled, positions

STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 3, 5
LAYERS = ("dnnl.lstm", "dnnl.gru", "dnnl.rnn")
RULES = Rules(TABLE)


def _states(r, kind, initial, hidden=HIDDEN):
    """The initial states: inputs of the model, or constants."""
    count = 2 if kind == "lstm" else 1
    if initial is None:
        return [r.input(BATCH, hidden) for _ in range(count)]
    return [r.constant(np.full((BATCH, hidden), initial)) for _ in range(count)]


def _layer(r, x, kind, how="split", initial=None, is_reverse=False, **options):
    """The states of a layer in the order of the sequence, and the last ones."""
    layer = Unrolled(r, kind, x.type.dims[-1], HIDDEN, **options)
    order = slice(None, None, -1 if is_reverse else 1)
    sequences = layer.run(positions(r, x, how)[order], *_states(r, kind, initial))
    return sequences[0][order], [sequence[-1] for sequence in sequences]


def _stack(r, nodes, axis=0):
    return r.call("stack", r.tuple(*nodes), axis=axis)


def one(kind, **options):
    def build(r):
        h, last = _layer(r, r.input(STEPS, BATCH, INPUTS), kind, **options)
        return [_stack(r, h), *last]

    return build


def both(kind, join, **options):
    """Both directions, put together for each step as the importers of ONNX and PyTorch do."""

    def build(r):
        x = r.input(STEPS, BATCH, INPUTS)
        halves = [_layer(r, x, kind, is_reverse=k == 1, **options) for k in range(2)]
        if join == "stack":
            h = [_stack(r, pair) for pair in zip(*(h for h, _ in halves))]
        else:
            h = [r.call(join, r.tuple(*pair), axis=-1) for pair in zip(*(h for h, _ in halves))]
        return [_stack(r, h), *(_stack(r, pair) for pair in zip(*(last for _, last in halves)))]

    return build


def stacked(kind, is_bidirectional):
    """Layers that read the states of another one, which nothing stacks."""

    def build(r):
        parts = positions(r, r.input(STEPS, BATCH, INPUTS))
        for _ in range(2):
            size, results = parts[0].type.dims[-1], []
            for order in (slice(None), slice(None, None, -1))[: 1 + is_bidirectional]:
                layer = Unrolled(r, kind, size, HIDDEN)
                results.append(layer.run(parts[order], *_states(r, kind, 0.0))[0][order])
            parts = results[0]
            if is_bidirectional:
                parts = [r.call("concatenate", r.tuple(*each), axis=-1) for each in zip(*results)]
        return [_stack(r, parts)]

    return build


def hoisted(kind, is_bidirectional=False, **options):
    """The inputs of all steps are multiplied at once, as PyTorch decomposes a layer."""

    def build(r):
        x, results = r.input(STEPS, BATCH, INPUTS), []
        for order in (slice(None), slice(None, None, -1))[: 1 + is_bidirectional]:
            layer = Unrolled(r, kind, INPUTS, HIDDEN, is_hoisted=True, **options)
            zeros = [r.constant(np.zeros((1, BATCH, HIDDEN))) for _ in _states(r, kind, 0.0)]
            parts = positions(r, layer.product(x), "slice")[order]
            h = layer.run(parts, *zeros)[0][order]
            results.append(r.call("concatenate", r.tuple(*h), axis=0))
        return [r.call("concatenate", r.tuple(*results), axis=-1) if is_bidirectional else h[-1]]

    return build


def some_positions(r):
    """Not all states are read, and one is read twice."""
    h, _ = _layer(r, r.input(STEPS, BATCH, INPUTS), "gru")
    return [h[1], r.call("add", h[1], h[-1])]


def decoder(r):
    """A layer that begins with the last states of another one."""
    x, z = r.input(STEPS, BATCH, INPUTS), r.input(STEPS + 1, BATCH, INPUTS)
    _, last = _layer(r, x, "lstm", initial=0.0)
    layer = Unrolled(r, "lstm", INPUTS, HIDDEN)
    h, _ = layer.run(positions(r, z), *last)
    return [_stack(r, h)]


def image_captions(r):
    """The initial cell state is a tanh, as the candidates are."""
    layer = Unrolled(r, "lstm", INPUTS, HIDDEN)
    image = r.input(BATCH, 7)
    weight = r.constant(np.random.default_rng(1).standard_normal((HIDDEN, 7)))
    c = r.call("tanh", r.call("nn.dense", image, weight))
    h, _ = layer.run(positions(r, r.input(STEPS, BATCH, INPUTS)), r.input(BATCH, HIDDEN), c)
    return [_stack(r, h)]


FUSED = {
    "lstm-one-matmul": (one("lstm", is_one_matmul=True), 1),
    "lstm-two-matmuls-taken-and-sliced": (one("lstm", how="take", is_sliced=True), 1),
    "lstm-sliced-positions-zero-state": (one("lstm", how="slice", initial=0.0), 1),
    "lstm-one-matmul-constant-state": (one("lstm", is_one_matmul=True, initial=0.5), 1),
    "lstm-reverse-no-bias": (one("lstm", is_reverse=True, has_bias=False), 1),
    "gru-linear": (one("gru"), 1),
    "gru-linear-convex-zero-state": (one("gru", is_convex=True, initial=0.0), 1),
    "gru-linear-constant-state": (one("gru", initial=0.5), 1),
    "gru-reset-first": (one("gru", is_linear=False), 1),
    "gru-reset-first-convex-no-bias": (
        one("gru", is_linear=False, is_convex=True, has_bias=False),
        1,
    ),
    "gru-reset-first-reverse-constant-state": (
        one("gru", is_linear=False, is_reverse=True, initial=0.5),
        1,
    ),
    "rnn-tanh": (one("rnn"), 1),
    "rnn-relu-zero-state": (one("rnn", activation="nn.relu", initial=0.0), 1),
    "lstm-both-stack": (both("lstm", "stack"), 1),
    "lstm-both-concatenate": (both("lstm", "concatenate", initial=0.0, is_one_matmul=True), 1),
    "gru-both-stack": (both("gru", "stack", initial=0.0), 1),
    "rnn-both-concatenate": (both("rnn", "concatenate", initial=0.0), 1),
    "lstm-of-lstm": (stacked("lstm", False), 2),
    "gru-of-gru-both": (stacked("gru", True), 2),
    "rnn-of-rnn": (stacked("rnn", False), 2),
    "lstm-hoisted": (hoisted("lstm"), 1),
    "lstm-hoisted-both": (hoisted("lstm", is_bidirectional=True), 1),
    "gru-hoisted-both-no-bias": (hoisted("gru", is_bidirectional=True, has_bias=False), 1),
    "rnn-hoisted-relu": (hoisted("rnn", activation="nn.relu"), 1),
    "some-positions": (some_positions, 1),
    "encoder-and-decoder": (decoder, 2),
    "tanh-as-initial-cell": (image_captions, 1),
}


def read_inside(kind, which):
    """Something else reads a node of a step."""

    def build(r):
        layer = Unrolled(r, kind, INPUTS, HIDDEN)
        states = _states(r, kind, None)
        sequences = layer.run(positions(r, r.input(STEPS, BATCH, INPUTS)), *states)
        nodes = [node for node in r.graph.nodes if node.name == which]
        return [_stack(r, sequences[0]), nodes[len(nodes) // 2]]

    return build


def other_order(r):
    parts = positions(r, r.input(STEPS, BATCH, INPUTS))
    parts[1], parts[2] = parts[2], parts[1]
    return [_stack(r, Unrolled(r, "gru", INPUTS, HIDDEN).run(parts, *_states(r, "gru", None))[0])]


def not_all_positions(r):
    parts = positions(r, r.input(STEPS, BATCH, INPUTS))[:-1]
    return [_stack(r, Unrolled(r, "gru", INPUTS, HIDDEN).run(parts, *_states(r, "gru", None))[0])]


def masked(r):
    """States are zero past the length of a sequence."""
    layer, mask = Unrolled(r, "gru", INPUTS, HIDDEN), r.input(BATCH, 1)
    (h,) = _states(r, "gru", None)
    states = []
    for x in positions(r, r.input(STEPS, BATCH, INPUTS)):
        ((h,),) = layer.run([x], h)
        h = r.call("multiply", h, mask)
        states.append(h)
    return [_stack(r, states)]


def _clipped(r):
    return lambda node, last: r.call("clip", node, a_min=-0.5, a_max=0.5)


def _peephole(r):
    return lambda node, last: r.call(
        "add", node, r.call("multiply", last, r.constant([2.0] * HIDDEN))
    )


def changed_gates(kind, gate_op):
    return lambda r: one(kind, gate_op=gate_op(r))(r)


KEPT = {
    "weight-of-one-step": one("lstm", changed={2: 2}),
    "weight-of-the-first-step": one("gru", changed={0: 2}, initial=0.0),
    "activation": one("lstm", activation="sigmoid"),
    "activation-of-candidate": one("gru", activation="nn.relu"),
    "activation-of-rnn": one("rnn", activation="sigmoid"),
    "cell-state-read": read_inside("lstm", "tanh"),
    "gate-read": read_inside("gru", "sigmoid"),
    "order": other_order,
    "not-all-positions": not_all_positions,
    "masked": masked,
    "clip": changed_gates("gru", _clipped),
    "peephole": changed_gates("lstm", _peephole),
}


def _graph(build):
    r = Reader()
    graph = r.returns(*build(r))
    # As the importers do, which leaves nothing of the products of constant states.
    fold_constants(graph, RULES)
    graph.sort()
    return graph


def _values(graph):
    random = np.random.default_rng(3)
    inputs = [node for node in graph.nodes if node.kind == "input"]
    return [random.standard_normal(node.type.shape).astype("float32") for node in inputs]


def _ops(graph):
    return [node.name for node in graph.nodes if node.kind == CALL]


@pytest.mark.parametrize("case", FUSED)
def test_fused(case):
    build, layers = FUSED[case]
    graph = _graph(build)
    values = _values(graph)
    expected = evaluate(graph, values)
    read_recurrent_layers(graph, RULES)
    graph.sort()
    graph.verify()
    names = _ops(graph)
    assert sum(name in LAYERS for name in names) == layers
    assert not {"sigmoid", "multiply"} & set(names)
    # Each op is rounded to float32, four steps in a row.
    for result, value in zip(evaluate(graph, values), expected):
        np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", KEPT)
def test_kept(case):
    graph = _graph(KEPT[case])
    before = [str(node) for node in graph.nodes]
    read_recurrent_layers(graph, RULES)
    graph.sort()
    assert [str(node) for node in graph.nodes] == before


@pytest.mark.parametrize("name", ["dnnl.lstm", "sigmoid"])
def test_excluded(name):
    graph = _graph(one("lstm"))
    read_recurrent_layers(graph, Rules(TABLE, Options(exclude=frozenset([name]))))
    graph.sort()
    assert not set(LAYERS) & set(_ops(graph))


def _calls(steps):
    """Count the Python calls of the rewrite for two layers."""
    r = Reader()
    x = r.input(steps, BATCH, INPUTS)
    h, _ = _layer(r, x, "lstm", is_one_matmul=True)
    z, _ = _layer(r, _stack(r, h), "gru")
    graph, count = r.returns(_stack(r, z)), 0

    def profile(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    # Finalizers of what other tests left would be counted.
    gc.collect()
    gc.disable()
    sys.setprofile(profile)
    try:
        read_recurrent_layers(graph, RULES)
    finally:
        sys.setprofile(None)
        gc.enable()
    graph.sort()
    assert sum(name in LAYERS for name in _ops(graph)) == 2
    return count


def test_linear():
    small, middle, large = (_calls(steps) for steps in (10, 20, 40))
    assert large - middle < 2.1 * (middle - small)
