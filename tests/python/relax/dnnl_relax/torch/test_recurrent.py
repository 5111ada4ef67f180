# SPDX-License-Identifier: Apache-2.0
"""PyTorch's LSTM, GRU and RNN, which are one op a layer."""

import pytest

torch = pytest.importorskip("torch")
from dnnl_relax.torch.checking import check  # noqa: E402

nn = torch.nn
BATCH, STEPS, SIZE, HIDDEN = 2, 6, 3, 5

LAYERS = {
    "LSTM": (nn.LSTM, {}),
    "GRU": (nn.GRU, {}),
    "RNN": (nn.RNN, {}),
    "RNN-relu": (nn.RNN, {"nonlinearity": "relu"}),
}
OPTIONS = {
    "plain": {},
    "batch-first": dict(batch_first=True),
    "bidirectional": dict(bidirectional=True),
    "two-layers": dict(num_layers=2, bidirectional=True, batch_first=True, dropout=0.5),
    "no-bias": dict(bias=False),
}


class Model(nn.Module):
    """A layer, all results of which are returned."""

    def __init__(self, kind, **options):
        super().__init__()
        make, own = LAYERS[kind]
        self.layer = make(SIZE, HIDDEN, **own, **options)

    def forward(self, data, states=None):
        return self.layer(data, states)


def layers(kind, counts):
    return counts[f"dnnl.{kind.split('-')[0].lower()}"]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", LAYERS)
def test_options(kind, options):
    own = OPTIONS[options]
    model = Model(kind, **own).eval()
    _, counts = check(model, (torch.randn(BATCH, STEPS, SIZE),), prune=False)
    assert layers(kind, counts) == own.get("num_layers", 1)


@pytest.mark.parametrize("kind", LAYERS)
def test_initial_states(kind):
    model = Model(kind, num_layers=2, bidirectional=True).eval()
    states = [torch.randn(4, BATCH, HIDDEN) for _ in range(2 if kind == "LSTM" else 1)]
    states = tuple(states) if kind == "LSTM" else states[0]
    _, counts = check(model, (torch.randn(STEPS, BATCH, SIZE), states), prune=False)
    assert layers(kind, counts) == 2


def test_projections_are_unrolled():
    model = Model("LSTM", proj_size=2).eval()
    _, counts = check(model, (torch.randn(STEPS, BATCH, SIZE),), prune=False)
    assert layers("LSTM", counts) == 0


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_loop_of_cells_is_one_layer(kind):
    """PyTorch exports the steps: only the rewrite of the graph makes a layer of them."""

    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = getattr(nn, f"{kind}Cell")(SIZE, HIDDEN)

        def forward(self, data):
            state, states = None, []
            for step in data:
                state = self.cell(step, state)
                states.append(state[0] if kind == "LSTM" else state)
            return torch.stack(states)

    _, counts = check(Cells().eval(), (torch.randn(STEPS, BATCH, SIZE),), prune=False)
    assert layers(kind, counts) == 1 and not any("dense" in name for name in counts)
