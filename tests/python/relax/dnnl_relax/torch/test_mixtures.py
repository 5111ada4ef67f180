# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts, as transformers has them."""

import importlib

import pytest

torch = pytest.importorskip("torch")
import tvm_dnnl  # noqa: E402

from dnnl_relax.torch.checking import check  # noqa: E402
from dnnl_relax.torch.test_models import Llama, is_4, prompt, transformers  # noqa: E402

nn, export = torch.nn, torch.export


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


class Mixtral(Llama):
    """A mixture of experts, which transformers multiplies by groups of tokens."""

    def __init__(self):
        nn.Module.__init__(self)
        sizes = dict(vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=1)
        heads = dict(num_attention_heads=4, num_key_value_heads=2, num_local_experts=8)
        self.model = transformers().MixtralForCausalLM(
            transformers().MixtralConfig(**sizes, **heads)
        )
        self.with_cache = False


@pytest.mark.parametrize("length", [1, 16], ids=["token", "prompt"])
def test_mixtral(length):
    """Each token is multiplied by the weights of two experts of eight, and nothing is sorted."""
    if is_4():
        pytest.skip("its experts are loops")
    model = Mixtral().eval()
    (offloaded, total, count), kinds = check(model, prompt(1, length), prompt(1, length))
    assert kinds["dnnl.attention"] == 1
    assert kinds["dnnl.expert_dense"] == 2 and count == 1 and total - offloaded < 3
    program = export.export(model, prompt(1, length))
    assert "as PyTorch computes it" in str(tvm_dnnl.compile(program).report)


def test_mixtral_of_open_sizes():
    """The number of pairs is the product of three sizes."""
    if is_4():
        pytest.skip("its experts are loops")
    dims = ({0: export.Dim("batch", min=2, max=8), 1: export.Dim("length", min=2, max=64)},)
    calls = [prompt(batch, length) for batch, length in ((2, 16), (3, 7))]
    (_, _, count), kinds = check(Mixtral().eval(), *calls, dynamic_shapes=dims)
    assert kinds["dnnl.expert_dense"] == 2 and kinds["dnnl.attention"] == 1 and count == 1


class Routed(nn.Module):
    """Two experts of a token, by the op that transformers has for groups of rows."""

    def __init__(self, is_sorted_back, choose=None):
        super().__init__()
        self.choose = choose or (lambda logits: logits.softmax(-1).topk(2))
        self.router = nn.Parameter(torch.randn(8, 4))
        self.weight, self.bias = nn.Parameter(torch.randn(4, 8, 6)), nn.Parameter(torch.randn(4, 6))
        self.is_sorted_back = is_sorted_back

    def forward(self, x):
        weights, experts = self.choose(x @ self.router)
        scores = (x @ self.router).gather(1, experts)
        ids, order = experts.reshape(-1).sort()
        offsets = torch.histc(ids.float(), 4, 0, 3).cumsum(0, dtype=torch.int32)
        rows = torch.ops.transformers.grouped_mm_fallback(x[order // 2], self.weight, offsets)
        rows = (rows + self.bias[ids]).relu() * weights.reshape(-1)[order][:, None]
        if not self.is_sorted_back:
            return rows, scores
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(len(order))
        return rows[inverse].reshape(-1, 2, 6).sum(1), scores


@pytest.mark.parametrize("is_sorted_back", [True, False])
def test_routed_rows(is_sorted_back):
    """The order of the rows stays where it is a result."""
    if is_4():
        pytest.skip("it has no such op")
    importlib.import_module("transformers.integrations.moe")
    calls = [(torch.randn(7, 8),) for _ in range(2)]
    (offloaded, total, _), _ = check(Routed(is_sorted_back).eval(), *calls, prune=False)
    assert (offloaded == total) == is_sorted_back


def one_after_the_other(logits):
    """Choose the largest, and the largest of the others, as PhiMoE does."""
    weights, experts = [], []
    for _ in range(2):
        largest, index = logits.max(-1, keepdim=True)
        experts.append(index)
        close = logits.masked_fill(largest - logits > 1.0, float("-inf"))
        weights.append(close.softmax(-1).gather(-1, index))
        logits = logits.scatter(-1, index, float("-inf"))
    return torch.cat(weights, -1), torch.cat(experts, -1)


def test_experts_chosen_one_after_the_other():
    if is_4():
        pytest.skip("it has no such op")
    importlib.import_module("transformers.integrations.moe")
    calls = [(torch.randn(7, 8),) for _ in range(2)]
    # The largest elements of several may be equal: the first one is chosen.
    calls.append((torch.zeros(7, 8),))
    model = Routed(True, one_after_the_other).eval()
    (offloaded, total, count), _ = check(model, *calls, prune=False)
    assert (offloaded, count) == (total, 1)


def of_groups(logits):
    """Choose two experts of one group of two, as DeepSeek V3 and GLM-4 MoE do."""
    scores = logits.sigmoid()
    groups = scores.view(-1, 2, 2).topk(2, dim=-1)[0].sum(-1)
    chosen = torch.topk(groups, k=1, dim=-1, sorted=False)[1]
    mask = torch.zeros_like(groups).scatter(1, chosen, 1)
    mask = mask.unsqueeze(-1).expand(-1, 2, 2).reshape(-1, 4)
    experts = scores.masked_fill(~mask.bool(), float("-inf")).topk(2, dim=-1, sorted=False)[1]
    return scores.gather(1, experts), experts


def test_experts_of_groups():
    if is_4():
        pytest.skip("it has no such op")
    importlib.import_module("transformers.integrations.moe")
    calls = [(torch.randn(7, 8),) for _ in range(2)]
    # Of equal groups and experts the first ones are chosen, as PyTorch's sort does here.
    calls.append((torch.zeros(7, 8),))
    (offloaded, total, count), _ = check(Routed(True, of_groups).eval(), *calls, prune=False)
    assert (offloaded, count) == (total, 1)


class CountedParts(nn.Module):
    """Experts as JetMoE has them: each multiplies as many of the sorted rows as have chosen it."""

    def __init__(self, order_is_read):
        super().__init__()
        self.router, self.order_is_read = nn.Linear(8, 4, bias=False), order_is_read
        self.first = nn.Parameter(torch.randn(4, 6, 8))
        self.second = nn.Parameter(torch.randn(4, 5, 6))

    def forward(self, x):
        scores, chosen = self.router(x).topk(2, dim=1)
        counts = torch.zeros(x.shape[0], 4).scatter(1, chosen, 1).long().sum(0).tolist()
        order = chosen.flatten().sort(0)[1]
        rows = order.div(2, rounding_mode="trunc")

        def products(x, weight):
            parts = enumerate(x.split(counts, dim=0))
            return torch.cat([nn.functional.linear(part, weight[k]) for k, part in parts], dim=0)

        pairs = torch.zeros(2 * x.shape[0], 6).index_add(0, order, products(x[rows], self.first))
        pairs = products(pairs.tanh()[order], self.second) * scores.flatten()[order][:, None]
        result = torch.zeros(x.shape[0], 5).index_add(0, rows, pairs)
        return (result, order.sum()) if self.order_is_read else result


@pytest.mark.parametrize("order_is_read", [False, True])
def test_experts_of_counted_rows(order_is_read):
    """The sizes of the parts depend on the values of tensors, those of the products do not."""
    model, calls = CountedParts(order_is_read).eval(), [(torch.randn(9, 8),) for _ in range(2)]
    (offloaded, total, count), kinds = check(model, *calls, prune=False)
    assert kinds["dnnl.expert_dense"] == 2
    # Nothing is sorted unless something else reads the order.
    assert order_is_read or (offloaded, count) == (total, 1)
