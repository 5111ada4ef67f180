# SPDX-License-Identifier: Apache-2.0
"""`torch.compile`: what is compiled, what is compiled again, and what PyTorch runs instead."""

import importlib
import logging
import subprocess
import sys
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import tvm_dnnl  # noqa: E402

nn = torch.nn
LOGGER = "tvm_dnnl"


class Perceptron(nn.Module):
    """Two layers with a graph break between them, and a result that is no tensor."""

    def __init__(self, breaks=True):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(64, 256), nn.Linear(256, 64), nn.BatchNorm1d(64)
        self.breaks = breaks

    def forward(self, x):
        y = torch.relu(self.up(x))
        if self.breaks:
            torch._dynamo.graph_break()
        return self.norm(self.down(y)), 3


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def compiled(model, **options):
    return torch.compile(model, backend=tvm_dnnl.torch_backend, options=options)


def check(compiled_model, model, *args):
    """Compare a call with PyTorch; no graph may run in PyTorch."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", "tvm_dnnl", RuntimeWarning)
        got, want = compiled_model(*args), model(*args)
    for one, other in zip(got, want):
        if isinstance(other, torch.Tensor):
            # float32 sums in another order; the values are of the order of 1.
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5)
        else:
            assert one == other


def logged(caplog):
    """Return how many ops of each graph that was compiled run on oneDNN."""
    counts = [r.args for r in caplog.records if r.name == LOGGER]
    caplog.clear()
    return counts


@pytest.mark.parametrize("breaks", [False, True], ids=["whole", "breaks"])
def test_model(breaks, caplog):
    caplog.set_level(logging.INFO, LOGGER)
    model = Perceptron(breaks).eval()
    fast = compiled(model)
    for _ in range(2):
        check(fast, model, torch.randn(8, 64))
    counts = logged(caplog)
    assert len(counts) == 1 + breaks and all(own == total for own, total in counts), counts


def test_weights_change(caplog):
    """A graph is compiled again for other weights: in place, replaced, or of another layer."""
    caplog.set_level(logging.INFO, LOGGER)
    model, x = Perceptron(False).eval(), torch.randn(8, 64)
    fast = compiled(model)
    check(fast, model, x)
    with torch.no_grad():
        model.down.weight.mul_(2.0)
    check(fast, model, x)
    model.down.weight.data = torch.randn(64, 256)
    check(fast, model, x)
    model.norm.running_mean.add_(1.0)
    check(fast, model, x)
    assert len(logged(caplog)) == 4


def test_weights_change_uncounted():
    """Writes through `.data` or numpy leave the version of a tensor as it is."""
    model, x = Perceptron(False).eval(), torch.randn(8, 64)
    fast = compiled(model)
    check(fast, model, x)
    model.down.weight.data.copy_(torch.randn(64, 256))
    check(fast, model, x)
    model.up.bias.data[3] += 1
    check(fast, model, x)
    model.up.weight.detach().numpy()[:] *= 0.5
    check(fast, model, x)


def test_one_weight_changes_uncounted():
    """A single element of a large weight is noticed later, with a warning."""
    model, x = nn.Linear(512, 256).eval(), torch.ones(1, 512)
    fast = compiled(model)
    with torch.no_grad():
        fast(x)
        model.weight.data[100, 3] += 100
        with pytest.warns(RuntimeWarning, match="through `.data`"):
            for _ in range(8):
                fast(x)
    check(fast, model, x)


def test_recurrent(caplog):
    """By default, TorchDynamo skips these layers: the entry point lets it trace them."""
    caplog.set_level(logging.INFO, LOGGER)
    assert importlib.import_module("tvm_dnnl.dynamo").torch_backend is tvm_dnnl.torch_backend
    model = nn.LSTM(8, 16, batch_first=True).eval()
    fast = compiled(model)
    check(lambda x: fast(x)[:1], lambda x: model(x)[:1], torch.randn(2, 5, 8))
    assert [own == total for own, total in logged(caplog)] == [True]


def test_shapes(caplog):
    """Other shapes compile again, and those of before do not."""
    caplog.set_level(logging.INFO, LOGGER)
    model = Perceptron(False).eval()
    fast = compiled(model)
    for batch in (8, 5, 3, 8, 3):
        check(fast, model, torch.randn(batch, 64))
    assert len(logged(caplog)) >= 3
    check(fast, model, torch.randn(5, 64))
    assert not logged(caplog)


def test_unaligned_and_strided():
    model = Perceptron(False).eval()
    fast = compiled(model)
    check(fast, model, torch.randn(8 * 64 + 1)[1:].reshape(8, 64))
    check(fast, model, torch.randn(64, 8).t())


def test_no_copy():
    """The results are memory of TVM, and stay what they are when the graph is called again."""
    fast = compiled(Perceptron(False).eval())
    with torch.no_grad():
        first, _ = fast(torch.ones(8, 64))
        kept = first.clone()
        second, _ = fast(torch.zeros(8, 64))
    assert torch.equal(first, kept) and not torch.equal(first, second)


def test_gradients():
    model, x = Perceptron(False).eval(), torch.randn(8, 64)
    with pytest.warns(RuntimeWarning, match="gradients are enabled"):
        compiled(model)(x)[0].sum().backward()
    assert model.up.weight.grad is not None


class Weird(nn.Module):
    """Ops that TVM's importer does not know."""

    def forward(self, x):
        return torch.special.bessel_j0(x) + 1


class View(nn.Module):
    def forward(self, x):
        return x.relu(), x.view(-1)


class InPlace(nn.Module):
    def forward(self, x):
        x.add_(1)
        return x * 2


@pytest.mark.parametrize(
    "model, reason",
    [(Weird(), "special_bessel_j0"), (View(), "result 1 is a view"), (InPlace(), "changes")],
    ids=["unsupported", "view", "in_place"],
)
def test_fallback(model, reason):
    """PyTorch runs the graph, once for a call, and the warning says why."""
    x = torch.randn(2, 32)
    given = x.clone()
    with torch.no_grad(), pytest.warns(RuntimeWarning, match=f"runs in PyTorch: .*{reason}"):
        got = compiled(model)(x)
    want = model(given)
    assert torch.equal(x, given)
    for one, other in zip(
        torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want)
    ):
        assert torch.equal(one, other)


def test_options():
    model, x = Perceptron(False).eval(), torch.randn(8, 64)
    check(compiled(model, exclude=["nn.relu"], target="llvm"), model, x)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="nonsense"):
        compiled(model, nonsense=1)(x)


def test_entry_point():
    """The name that the wheel's metadata gives it, without an import of TorchDynamo by ours."""
    code = "import tvm_dnnl, sys; print('torch._dynamo' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
    torch._dynamo.register_backend(tvm_dnnl.torch_backend, name="tvm_dnnl")
    model, x = Perceptron(False).eval(), torch.randn(8, 64)
    check(torch.compile(model, backend="tvm_dnnl"), model, x)
