# SPDX-License-Identifier: Apache-2.0
"""Models of `torch.export`: what is offloaded, and what PyTorch computes.

PyTorch's wheel has more than 500 MB and asks for gigabytes of CUDA: the environment of the tests is
without it.
They run where it is installed, as by `pip install torch` in the environment of the plug-in.
"""

import subprocess
import sys

import numpy as np
import pytest
import tvm
import tvm_dnnl

from dnnl_relax.modules import compiled, composites, partitions, virtual_machine

torch = pytest.importorskip("torch")
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

nn = torch.nn


class Block(nn.Module):
    """A residual block of a ResNet."""

    def __init__(self, before, channels, stride):
        super().__init__()
        self.first = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in range(3)])
        self.shortcut = nn.Conv2d(before, channels, 1, stride, bias=False)

    def forward(self, x):
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.norms[2](self.shortcut(x)))


class ResNet(nn.Module):
    """A stem, two blocks and a head."""

    def __init__(self):
        super().__init__()
        stem = [nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
        body = [nn.MaxPool2d(3, 2, 1), Block(16, 16, 1), Block(16, 32, 2)]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(32, 10)]
        self.layers = nn.Sequential(*stem, *body, *head)

    def forward(self, x):
        return self.layers(x)


class Layer(nn.Module):
    """A layer of a decoder: causal attention and two products with a gelu between them."""

    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.norms = nn.ModuleList([nn.LayerNorm(size) for _ in range(2)])
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x):
        batch, length, size = x.shape
        shape = batch, length, self.heads, size // self.heads
        parts = self.qkv(self.norms[0](x)).chunk(3, -1)
        heads = (part.reshape(shape).transpose(1, 2) for part in parts)
        y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, size))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    """Two layers; the result is of the last position."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.layers = nn.Sequential(Layer(32, 4), Layer(32, 4), nn.LayerNorm(32))
        self.head = nn.Linear(32, 50)

    def forward(self, ids):
        return self.head(self.layers(self.embedding(ids))[:, -1])


def resnet():
    model = ResNet().train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(4, 3, 64, 64))
    return model.eval(), (lambda batch: torch.randn(batch, 3, 64, 64))


def transformer():
    return Transformer().eval(), (lambda batch: torch.randint(0, 50, (batch, 16)))


def by_tvm(is_decomposed):
    """Return TVM's importer, after PyTorch's decomposition or without it."""

    def read(program):
        return from_exported_program(
            program, unwrap_unit_return_tuple=True, run_ep_decomposition=is_decomposed
        )

    return read


def check(build, is_open, read, offloaded, partition_count):
    """Compare with PyTorch; return the composites."""
    torch.manual_seed(0)
    model, data = build()
    dims = ({0: torch.export.Dim("batch", min=1, max=8)},) if is_open else None
    program = torch.export.export(model, (data(3),), dynamic_shapes=dims)
    partitioned = tvm_dnnl.partition_for_dnnl(read(program))
    report = tvm_dnnl.offload_report(partitioned)
    assert (report.offloaded, report.total) == offloaded, report
    assert partitions(partitioned) == partition_count
    main = virtual_machine(compiled(partitioned))["main"]
    for batch in (1, 3, 5) if is_open else (3,):
        x = data(batch)
        with torch.no_grad():
            want = model(x).numpy()
        got = main(tvm.runtime.tensor(x.numpy())).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return composites(partitioned)


@pytest.mark.parametrize("is_open", [False, True], ids=["static", "open"])
def test_resnet(is_open):
    counts = check(resnet, is_open, by_tvm(True), (26, 26), 1)
    assert counts["dnnl.conv2d_bias_relu"] == 3 and counts["dnnl.conv2d_bias_sum_relu"] == 2


@pytest.mark.parametrize("is_open", [False, True], ids=["static", "open"])
def test_transformer(is_open):
    """TVM casts and reshapes the indices of the embedding."""
    counts = check(transformer, is_open, by_tvm(False), (53, 55), 1)
    assert counts["dnnl.attention"] == 2 and counts["dnnl.dense_bias_gelu_erf"] == 2


@pytest.mark.parametrize("is_open", [False, True], ids=["static", "open"])
@pytest.mark.parametrize("build, offloaded", [(resnet, (26, 26)), (transformer, (53, 55))])
def test_from_exported_program(build, offloaded, is_open):
    counts = check(build, is_open, tvm_dnnl.from_exported_program, offloaded, 1)
    assert counts["dnnl.batch_norm"] == 0 and counts["dnnl.attention"] == 2 * (build is transformer)


def test_decomposed_transformer():
    """PyTorch writes a guard for rows that are masked throughout; the attention fuses it."""
    counts = check(transformer, True, by_tvm(True), (65, 67), 1)
    assert counts["dnnl.attention"] == 2 and counts["dnnl.dense_bias_gelu_erf"] == 2


def test_file_of_a_program(tmp_path):
    """The contents of a file tell what it is; a program is verified by its example inputs."""
    model, data = nn.Linear(4, 3).eval(), torch.ones(2, 4)
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, (data,)), path)
    compiled_model = tvm_dnnl.compile(path, prune=False)
    np.testing.assert_allclose(compiled_model(data), model(data).detach(), rtol=1e-5, atol=1e-6)
    assert compiled_model.report.verified.startswith("as PyTorch computes it")
    assert tvm_dnnl.from_file(path).functions
    with pytest.raises(TypeError, match="shape is for ONNX models"):
        tvm_dnnl.compile(path, shape={"x": (2, 4)})


def test_import_without_the_package_onnx():
    """The wheel does not require it."""
    program = (
        "import sys; sys.modules['onnx'] = None\n"
        "import torch\n"
        "import tvm_dnnl\n"
        "model, data = torch.nn.Linear(4, 3).eval(), torch.ones(2, 4)\n"
        "tvm_dnnl.from_exported_program(torch.export.export(model, (data,)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_tensors_of_a_call():
    """Of those that require gradients the values are read; others are named with the reason."""
    linear = torch.nn.Linear(4, 3).eval()
    model = tvm_dnnl.compile(torch.export.export(linear, (torch.ones(2, 4),)), prune=False)
    (name,), x = model.input_names, torch.randn(2, 4, requires_grad=True)
    np.testing.assert_allclose(model(x), linear(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    for value, message in (
        (x.bfloat16(), "dtype bfloat16, but the model expects float32"),
        (torch.empty(2, 4, device="meta"), "the Tensor cannot be read as an array: .*meta"),
    ):
        with pytest.raises(TypeError, match=f"^input {name}: {message}"):
            model(value)


def test_tensors_in_bfloat16():
    relu, x = torch.nn.ReLU().eval(), torch.randn(2, 4).bfloat16()
    got = tvm_dnnl.compile(torch.export.export(relu, (x,)), prune=False)(x)
    assert got.dtype == "bfloat16"
    np.testing.assert_array_equal(got.astype("float32"), relu(x).float().numpy())


def test_a_size_that_is_no_multiple():
    """The input that has it is named, not what the model computes from it."""
    height, model = 2 * torch.export.Dim("h", max=64), torch.nn.Conv2d(2, 2, 3).eval()
    args = torch.randn(1, 2, 8, 8), torch.randn(4)

    class Model(torch.nn.Module):
        def forward(self, x, y):
            return model(x) + y.sum()

    program = torch.export.export(Model(), args, dynamic_shapes=({2: height}, None))
    compiled = tvm_dnnl.compile(program, prune=False)
    message = r"input x: shape \(1, 2, 7, 8\), but the model expects a multiple of 2 along axis 2"
    with pytest.raises(ValueError, match=message):
        compiled(np.zeros((1, 2, 7, 8), "float32"), args[1])
    assert compiled(np.zeros((1, 2, 6, 8), "float32"), args[1]).shape == (1, 2, 4, 6)
