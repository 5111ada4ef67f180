# SPDX-License-Identifier: Apache-2.0
"""Attention of PyTorch: masks of all kinds, rows that are masked as a whole, and shared heads."""

import pytest

torch = pytest.importorskip("torch")
from tvm_dnnl.frontend._dnnl.torch.simplify import is_true  # noqa: E402

from dnnl_relax.torch.checking import check  # noqa: E402

aten = torch.ops.aten
nn, functional = torch.nn, torch.nn.functional
BATCH, HEADS, LENGTH, SIZE = 3, 4, 8, 16


class Attention(nn.Module):
    """Attention with what else its call is given."""

    def __init__(self, mask=None, **options):
        super().__init__()
        self.options = options
        self.register_buffer("mask", mask)

    def forward(self, query, key, value, mask=None):
        mask = self.mask if mask is None else mask
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, **self.options
        )


def rows(heads=HEADS, length=LENGTH, batch=BATCH):
    return torch.randn(batch, heads, length, SIZE)


def padding(dtype=torch.bool):
    """A mask of lengths; the first sequence is empty."""
    kept = torch.arange(LENGTH)[None] < torch.tensor([0, 5, LENGTH])[:, None]
    kept = kept[:, None, None]
    return kept if dtype is torch.bool else torch.zeros(kept.shape).masked_fill(~kept, -torch.inf)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(
    "options", [{}, {"scale": 0.5}, {"is_causal": True}], ids=["plain", "scale", "causal"]
)
def test_attention(options):
    """TVM's importer ignores the scale."""
    (offloaded, total, count), kinds = check(Attention(**options), (rows(), rows(), rows()))
    kernels = kinds["dnnl.softmax"] + kinds["dnnl.attention"]
    assert (offloaded, count, kernels) == (total, 1, 1)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32], ids=["bool", "float"])
@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "input"])
def test_masked_rows(dtype, is_constant):
    """A row without any position is 0 in PyTorch; a softmax of -inf would be NaN."""
    mask = padding(dtype)
    model = Attention(mask if is_constant else None)
    args = (rows(), rows(), rows(), *(() if is_constant else (mask,)))
    (offloaded, total, count), kinds = check(model, args)
    kernels = kinds["dnnl.softmax"] + kinds["dnnl.attention"]
    assert (offloaded, count, kernels) == (total, 1, 1)


class Layers(nn.Module):
    """Layers with a causal mask and padding, as of a batch of a decoder."""

    def forward(self, x, kept):
        causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        mask = causal & kept.bool()[:, None, None]
        for _ in range(3):
            x = x + functional.scaled_dot_product_attention(x, x, x, mask)
        return x


def test_layers_with_padding():
    """The mask is computed once, and each attention is one kernel that guards its rows."""
    kept = torch.ones(BATCH, LENGTH, dtype=torch.long)
    kept[-1, :2] = 0
    (_, _, count), kinds = check(Layers(), (rows(), kept))
    assert (count, kinds["dnnl.attention"], kinds["dnnl.where"]) == (1, 3, 1)


@pytest.mark.parametrize("is_masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize("rank", [2, 3, 5, 6])
def test_ranks(rank, is_masked):
    """Of two dimensions, there is no head; of more than four, several are batches."""
    shape = (2, 1, 2, HEADS, LENGTH, SIZE)[6 - rank :]
    args = tuple(torch.randn(shape) for _ in range(3))
    mask = torch.rand(*shape[:-2], LENGTH, LENGTH) < 0.5 if is_masked else None
    check(Attention(), (*args, *([mask] if is_masked else [])), prune=False)


class Repeated(nn.Module):
    """Keys and values that are repeated for the queries, as models of transformers do it."""

    def forward(self, query, key, value):
        def repeat(x):
            batch, heads, length, size = x.shape
            shape = batch, heads, HEADS // heads, length, size
            return x[:, :, None].expand(shape).reshape(batch, HEADS, length, size)

        return functional.scaled_dot_product_attention(query, repeat(key), repeat(value))


class RepeatedInTurn(nn.Module):
    """As many repeats as heads: 0, 1, 0, 1, as JetMoE has them, and not 0, 0, 1, 1."""

    def forward(self, query, key, value):
        key, value = (each.repeat(1, 2, 1, 1) for each in (key, value))
        return functional.scaled_dot_product_attention(query, key, value)


def test_heads_repeated_in_turn():
    """Their order is not that of the queries' groups."""
    query, *pair = torch.randn(2, 4, 16, 8), torch.randn(2, 2, 16, 8), torch.randn(2, 2, 16, 8)
    _, kinds = check(RepeatedInTurn().eval(), (query, *pair), prune=False)
    assert kinds["dnnl.attention"] == 1


@pytest.mark.parametrize("is_causal", [False, True], ids=["", "causal"])
def test_shared_heads(is_causal):
    model = Attention(is_causal=is_causal, enable_gqa=True)
    (offloaded, total, count), _ = check(model, (rows(), rows(2), rows(2)))
    assert (offloaded, count) == (total, 1)


@pytest.mark.parametrize("is_open", [False, True], ids=["static", "open"])
def test_repeated_heads(is_open):
    """The keys are broadcast: a broadcast_to would stay on TVM, between two partitions."""
    calls = [tuple(rows(heads, n, n) for heads in (HEADS, 2, 2)) for n in (3, 5)]
    dims = {0: torch.export.Dim("n", min=2, max=9), 2: torch.export.Dim("n", min=2, max=9)}
    shapes = (dims, dims, dims) if is_open else None
    (offloaded, total, count), _ = check(
        Repeated(), *calls[: 1 + is_open], dynamic_shapes=shapes, prune=False
    )
    assert (offloaded, count) == (total, 1)


@pytest.mark.parametrize("start, step, expected", [(0, 1, True), (0, -1, False), (-1, 1, False)])
def test_a_range_that_is_not_negative(start, step, expected):
    """Only one that begins at 0 and ascends makes a mask that is always True."""
    graph = torch.fx.Graph()
    length = graph.placeholder("length")
    values = graph.call_function(aten.arange.start_step, (start, length, step))
    assert is_true(graph.call_function(aten.ge.Scalar, (values, 0)), {}) == expected
