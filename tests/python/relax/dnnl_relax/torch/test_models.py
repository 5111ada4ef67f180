# SPDX-License-Identifier: Apache-2.0
"""Models of transformers and torchvision, with random weights; skipped without these packages."""

import pytest

torch = pytest.importorskip("torch")
import tvm  # noqa: E402
import tvm_dnnl  # noqa: E402

from dnnl_relax.torch.checking import check  # noqa: E402

nn, export = torch.nn, torch.export


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def transformers():
    return pytest.importorskip("transformers")


class Bert(nn.Module):
    """BERT with positional arguments."""

    def __init__(self):
        super().__init__()
        sizes = dict(hidden_size=64, num_attention_heads=4, intermediate_size=128)
        config = transformers().BertConfig(vocab_size=100, num_hidden_layers=2, **sizes)
        self.model = transformers().BertModel(config)

    def forward(self, ids, mask):
        return tuple(self.model(input_ids=ids, attention_mask=mask).to_tuple())


def sentences(batch, length):
    """Token ids and a padding mask; the first sentence is empty."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0], mask[1, length // 2 :] = 0, 0
    return torch.randint(0, 100, (batch, length)), mask


def test_bert():
    """TVM's importer: 106 of 132 ops in 3 partitions. The embedding and two casts stay."""
    figures, kinds = check(Bert().eval(), sentences(2, 16))
    assert figures == ((63, 71, 1) if is_4() else (65, 68, 1))
    assert kinds["dnnl.attention"] == 2


def test_not_modified():
    """A program can be imported again: what is folded is not added to it."""
    program = export.export(Bert().eval(), sentences(2, 16))
    before = set(program.constants), len(program.graph.nodes)
    tvm_dnnl.from_exported_program(program)
    assert (set(program.constants), len(program.graph.nodes)) == before


def test_open_bert():
    dims = {0: export.Dim("batch", min=2, max=9), 1: export.Dim("length", min=2, max=64)}
    calls = sentences(3, 16), sentences(2, 7), sentences(5, 30)
    figures, _ = check(Bert().eval(), *calls, dynamic_shapes=(dims, dims))
    assert figures[0] == (63 if is_4() else 65) and figures[2] == 1


@pytest.mark.parametrize("kind", ["Bloom", "Deberta"])
def test_open_joined_heads(kind):
    """These join the batch with the heads."""
    sizes = dict(vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2)
    heads = dict(n_layer=2, n_head=4, num_attention_heads=4, max_position_embeddings=64)
    package = transformers()
    model = Bert()
    model.model = getattr(package, f"{kind}Model")(
        getattr(package, f"{kind}Config")(**sizes, **heads)
    )
    model.model.config.use_cache = False
    dims = {0: export.Dim("batch", min=2, max=9), 1: export.Dim("length", min=2, max=64)}
    calls = sentences(3, 16), sentences(2, 7), sentences(5, 30)
    figures, _ = check(model.eval(), *calls, dynamic_shapes=(dims, dims))
    assert figures[2] == 1


def is_4():
    """Whether transformers is of version 4: its models have other ops."""
    return transformers().__version__.startswith("4.")


class Llama(nn.Module):
    """Llama with its cache, as plain tensors."""

    def __init__(self, with_cache):
        super().__init__()
        heads = dict(num_attention_heads=4, num_key_value_heads=2)
        sizes = dict(vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2)
        config = transformers().LlamaConfig(max_position_embeddings=64, **sizes, **heads)
        self.model, self.with_cache = transformers().LlamaForCausalLM(config), with_cache

    def forward(self, ids, past=None):
        cache = None if past is None else transformers().DynamicCache(past)
        out = self.model(input_ids=ids, past_key_values=cache, use_cache=self.with_cache)
        layers = out.past_key_values.layers if self.with_cache else []
        return out.logits, [(layer.keys, layer.values) for layer in layers]


def prompt(batch, length):
    return (torch.randint(0, 100, (batch, length)),)


def step(batch, length):
    past = [tuple(torch.randn(batch, 2, length, 16) for _ in range(2)) for _ in range(2)]
    return torch.randint(0, 100, (batch, 1)), past


@pytest.mark.parametrize(
    "with_cache, args, figures",
    [
        (False, prompt(2, 16), (101, 103, 1)),
        (True, prompt(2, 16), (101, 103, 1)),
        (True, step(2, 9), (105, 107, 1)),
    ],
    ids=["plain", "prefill", "decode"],
)
def test_llama(with_cache, args, figures):
    """TVM's importer fails at the empty cache and at inputs that are no tensors."""
    counts, kinds = check(Llama(with_cache).eval(), args)
    assert counts == figures and kinds["dnnl.attention"] == 2


class Gpt2(Llama):
    """GPT-2 with its cache, as plain tensors."""

    def __init__(self, with_cache=True):
        nn.Module.__init__(self)
        sizes = dict(vocab_size=100, n_embd=64, n_layer=2, n_head=4, n_positions=64)
        tokens = dict(bos_token_id=0, eos_token_id=0)
        self.model = transformers().GPT2LMHeadModel(transformers().GPT2Config(**sizes, **tokens))
        self.with_cache = with_cache


class Opt(Llama):
    """OPT with its cache: its positions are a slice that begins after the past."""

    def __init__(self, with_cache=True):
        nn.Module.__init__(self)
        sizes = dict(vocab_size=100, hidden_size=64, ffn_dim=128, word_embed_proj_dim=64)
        heads = dict(num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)
        self.model = transformers().OPTForCausalLM(transformers().OPTConfig(**sizes, **heads))
        self.with_cache = with_cache


@pytest.mark.skipif(tvm.__version__.startswith("0.26"), reason="its importer adds no open sizes")
@pytest.mark.parametrize("length", [1, 3], ids=["token", "several"])
@pytest.mark.parametrize("kind, heads, partitions", [(Llama, 2, 2), (Gpt2, 4, 1), (Opt, 4, 2)])
def test_open_decoder(kind, heads, partitions, length):
    """Three steps, each with the keys and values of the one before."""
    model, dim = kind(True).eval(), export.Dim.DYNAMIC
    past = [tuple(torch.randn(1, heads, 5, 16) for _ in range(2)) for _ in range(2)]
    calls = []
    for _ in range(3):
        ids = torch.randint(0, 100, (1, length))
        calls.append((ids, past))
        with torch.no_grad():
            past = model(*calls[-1])[1]
    shapes = {1: dim} if length > 1 else None, [({2: dim},) * 2] * 2
    figures, kinds = check(model, *calls, dynamic_shapes=shapes)
    # Integers stay on TVM, and for Llama the cosines and sines, before the second partition.
    # OPT has more of these: it sums the mask up to positions.
    limit = 1 if is_4() and kind is not Opt else partitions
    assert figures[1] - figures[0] <= 24 and figures[2] <= limit
    assert kinds["dnnl.attention"] == 2 and not kinds["dnnl.softmax"]


def test_swin():
    """The masks and positions of shifted windows are constants; a roll is slices and a concat."""
    try:
        from torchvision.models import SwinTransformer
    except (ImportError, RuntimeError):  # the latter: torchvision is for another torch
        pytest.skip("torchvision cannot be imported")
    sizes = dict(embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], num_classes=10)
    model = SwinTransformer(patch_size=[4, 4], stochastic_depth_prob=0.0, **sizes).eval()
    (offloaded, total, count), _ = check(model, (torch.randn(1, 3, 64, 64),))
    assert (offloaded, count) == (total, 1)


class Positions(nn.Module):
    """A layer of wav2vec2: a convolution whose padding an item more has is added to its data."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(4, 8, 5, stride=2), nn.Conv1d(8, 8, 4, padding=2)
        self.dense = nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x)
        x = (x + self.second(x)[..., :-1]).transpose(1, 2)
        return self.dense(x).view(x.shape[0], -1, 2, 4)


def test_sums_of_open_sizes():
    """TVM does not see that both operands are of one length."""
    dims = ({0: export.Dim.DYNAMIC, 2: export.Dim.DYNAMIC},)
    calls = [(torch.randn(2, 4, length),) for length in (33, 50)]
    (_, _, count), kinds = check(Positions().eval(), *calls, dynamic_shapes=dims)
    assert count == 2 and kinds["dnnl.dense_bias"] == 1


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        return x + self.count


class Ragged(nn.Module):
    """Parts of sizes that are an input."""

    def forward(self, x, sizes):
        return torch.cat([part * 2 for part in x.split(sizes.tolist())])


def test_refused_sizes():
    args = torch.randn(6, 4), torch.tensor([2, 4])
    program = export.export(Ragged().eval(), args, strict=False)
    with pytest.raises(ValueError, match="a size depends on the values of tensors"):
        tvm_dnnl.from_exported_program(program)


def test_refused():
    """What TVM's importer would read as something else."""
    x = torch.randn(2, 3, 4, 4)
    for model in (nn.BatchNorm2d(3), nn.Dropout()):
        with pytest.raises(ValueError, match="training mode; call model.eval()"):
            tvm_dnnl.from_exported_program(export.export(model.train(), (x,)))
    with pytest.raises(ValueError, match="changes count"):
        tvm_dnnl.from_exported_program(export.export(Counter().eval(), (x,)))


class Skip(nn.Module):
    """A level of a UNet: the result of a lower resolution is joined with that of the higher one."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(4, 8, 3, 2, 1), nn.Conv2d(12, 4, 3, padding=1)

    def forward(self, x):
        low = nn.functional.interpolate(self.down(x), scale_factor=2.0, mode="nearest")
        return self.up(torch.cat([x, low], 1))


class Heads(nn.Module):
    """Keys of DeepSeek V3, which have an axis of one where their view has the length."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 8)

    def forward(self, x):
        batch, length, _ = x.shape
        x = self.linear(x.view(batch, 1, length, 4))
        return x.view(batch, length, -1, 2).transpose(1, 2)


def test_a_view_of_an_open_size_where_the_data_have_one():
    dims = ({0: export.Dim("batch", max=9), 1: export.Dim("length", max=64)},)
    calls = [(torch.randn(*sizes, 4),) for sizes in ((2, 7), (3, 5))]
    (offloaded, total, count), _ = check(Heads().eval(), *calls, dynamic_shapes=dims, prune=False)
    assert (offloaded, count) == (total, 1)


def test_multiples_of_open_sizes():
    """Height and width are even, as PyTorch asks for."""
    height, width = (2 * export.Dim(name, min=2, max=64) for name in ("h", "w"))
    dims = ({0: export.Dim("batch", max=9), 2: height, 3: width},)
    calls = [(torch.randn(*sizes),) for sizes in ((2, 4, 16, 24), (1, 4, 8, 6), (3, 4, 20, 32))]
    (offloaded, total, count), _ = check(Skip().eval(), *calls, dynamic_shapes=dims)
    assert (offloaded, count) == (total, 1)


@pytest.mark.parametrize("rank", [2, 3])
def test_adaptive_pools_of_unequal_windows(rank):
    """Windows that begin at 0, 1, 3, 4 and 6 of 8 elements, which no pool of oneDNN has."""
    conv, pool = getattr(nn, f"Conv{rank}d"), getattr(nn, f"AdaptiveAvgPool{rank}d")
    model = nn.Sequential(conv(2, 4, 3), pool((5, 4, 3)[:rank]), conv(4, 3, 2)).eval()
    call = (torch.randn(2, 2, *(10, 12, 9)[:rank]),)
    (offloaded, total, count), _ = check(model, call)
    assert (offloaded, count) == (total, 1)
