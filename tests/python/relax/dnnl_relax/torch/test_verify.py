# SPDX-License-Identifier: Apache-2.0
"""`compile` compares programs of PyTorch with PyTorch, and names the first op that differs."""

import pytest

torch = pytest.importorskip("torch")
import tvm_dnnl  # noqa: E402
from tvm import relax  # noqa: E402
from tvm_dnnl.frontend._dnnl.torch import registration, views  # noqa: E402

nn = torch.nn


class Layers(nn.Module):
    """Two layers; the first normalizes what is larger than the bound of a wrong gelu."""

    def __init__(self):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(32, 64), nn.Linear(64, 8), nn.LayerNorm(64)

    def forward(self, x):
        return self.down(torch.nn.functional.gelu(self.norm(self.up(x)))), x.argmax(1)


@pytest.fixture(autouse=True)
def fixed_numbers():
    torch.manual_seed(0)


def program(model=None, *args):
    return torch.export.export((model or Layers()).eval(), args or (torch.randn(4, 32),))


@pytest.fixture
def wrong_gelu(monkeypatch):
    """Let the importer read every gelu as the one that is computed by tanh."""

    def convert(node, importer):
        return importer.block_builder.emit(relax.op.nn.gelu_tanh(importer.env[node.args[0]]))

    monkeypatch.setitem(views.CONVERTERS, "gelu.default", convert)
    assert "gelu.default" in registration.convert_map({})


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_right(precision):
    try:
        model = tvm_dnnl.compile(program(), precision=precision, prune=False)
    except ValueError as error:
        pytest.skip(str(error))
    assert "as PyTorch computes it" in model.report.verified
    assert "verified: as PyTorch" in str(model.report)


def test_wrong(wrong_gelu):
    with pytest.raises(tvm_dnnl.VerificationError) as raised:
        tvm_dnnl.compile(program(), prune=False)
    text = str(raised.value)
    assert "The first op that differs is gelu (aten.gelu.default, 4x64 float32)" in text
    assert "torch/test_verify.py" in text and "in forward" in text
    assert "the op is imported wrongly" in text and "verify=False" in text


def test_is_switched_off(wrong_gelu):
    assert tvm_dnnl.compile(program(), verify=False).report.verified == ""


def test_dtype_and_shape(monkeypatch):
    def convert(node, importer):
        x = relax.op.astype(importer.env[node.args[0]], "float64")
        return importer.block_builder.emit(x)

    monkeypatch.setitem(views.CONVERTERS, "abs.default", convert)

    class Abs(nn.Module):
        def forward(self, x):
            return x.abs() * 2

    with pytest.raises(ValueError, match=r"aten.abs.default\): .* float64 instead of float32"):
        tvm_dnnl.compile(program(Abs()))
    monkeypatch.setattr(registration, "_check_type", lambda *_: None)
    # PyTorch multiplies in float32, TVM would in float64.
    with pytest.raises(tvm_dnnl.VerificationError, match="dtype float64 instead of float32"):
        tvm_dnnl.compile(program(Abs()))


def test_fields_of_results(monkeypatch):
    """An op with several results is compared by the results that are read."""

    def convert(node, importer):
        x = importer.env[node.args[0]]
        indices = relax.op.argsort(x, 1, descending=True, dtype="int64")
        return importer.block_builder.emit(relax.Tuple([relax.op.sort(x, 1), indices]))

    monkeypatch.setitem(views.CONVERTERS, "sort.default", convert)

    class Sort(nn.Module):
        def forward(self, x):
            values, indices = x.tanh().sort(1)
            return values * 2, indices

    with pytest.raises(tvm_dnnl.VerificationError, match=r"getitem_1 \(aten.sort.default, \d+x"):
        tvm_dnnl.compile(program(Sort()))


def test_open_dimensions():
    dims = ({0: torch.export.Dim("batch", min=2, max=64)},)
    exported = torch.export.export(Layers().eval(), (torch.randn(4, 32),), dynamic_shapes=dims)
    model = tvm_dnnl.compile(exported)
    assert "as PyTorch" in model.report.verified
    assert model(torch.randn(5, 32))[0].shape == (5, 8)


def test_integers_flip_with_rounding():
    """A result that rounding decides is no difference."""

    class Ties(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(512, 512))

        def forward(self, x):
            y = x @ self.weight
            # Zero, but for rounding: large steps of its sign.
            return torch.floor(1e8 * (y - x @ (self.weight * 3) / 3))

    tvm_dnnl.compile(program(Ties(), torch.randn(64, 512)), prune=False)


def test_random_results():
    class Noisy(nn.Module):
        def forward(self, x):
            return torch.empty_like(x) * 0 + x, x + 1

    note = tvm_dnnl.compile(program(Noisy())).report.verified
    assert "as PyTorch" in note


def test_memory_that_slices_fill():
    """Keys of DeepSeek are copied to two slices of uninitialized memory; they are not random."""

    class Filled(nn.Module):
        def forward(self, x):
            y = x.new_empty(*x.shape[:-1], 2 * x.shape[-1])
            y[..., : x.shape[-1]].copy_(x)
            y[..., x.shape[-1] :].copy_(-x)
            return y

    class Partly(nn.Module):
        def forward(self, x):
            y = torch.empty_like(x)
            y[..., 1:].copy_(x[..., 1:])
            return y

    notes = [tvm_dnnl.compile(program(each)).report.verified for each in (Filled(), Partly())]
    assert "as PyTorch" in notes[0] and notes[1] == "not compared: the results are random"


def test_option_is_checked():
    mod = tvm_dnnl.from_exported_program(program())
    with pytest.raises(TypeError, match="verify must be True or False"):
        tvm_dnnl.compile(mod, verify=1)


@pytest.mark.parametrize("verify", [None, False])
def test_torch_compile(wrong_gelu, verify):
    torch._dynamo.reset()
    model, x = nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval(), torch.randn(4, 8)
    compiled = torch.compile(model, backend=tvm_dnnl.torch_backend, options={"verify": verify})
    with torch.no_grad():
        if verify is False:
            assert not torch.equal(compiled(x), model(x))
            return
        with pytest.warns(RuntimeWarning, match="runs in PyTorch: VerificationError"):
            y = compiled(x)
        assert torch.equal(y, model(x))


def test_errors_of_ops(wrong_gelu):
    result = tvm_dnnl.verify(program(), (torch.randn(4, 32).numpy(),), prune=False)
    assert [each.op for each in result.wrong] == ["aten.gelu.default"]
    assert "in forward" in result.wrong[0].where and len(result.ops) >= 5
