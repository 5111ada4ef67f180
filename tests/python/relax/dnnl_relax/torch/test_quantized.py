# SPDX-License-Identifier: Apache-2.0
"""Programs that were quantized by PT2E, or whose weights are of torchao."""

import subprocess
import sys

import numpy as np
import pytest
import tvm_dnnl

torch = pytest.importorskip("torch")
pytest.importorskip("torchao")
from torchao import quantization  # noqa: E402
from torchao.quantization.granularity import PerAxis, PerGroup  # noqa: E402
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e  # noqa: E402
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86  # noqa: E402

from dnnl_relax.torch.test_models import Bert, sentences, transformers  # noqa: E402
from dnnl_relax.torch.test_programs import resnet  # noqa: E402

nn, export = torch.nn, torch.export


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


class Layers(nn.Module):
    """Two linear layers."""

    def __init__(self, columns=128):
        super().__init__()
        self.first, self.second = nn.Linear(columns, 256), nn.Linear(256, 64, bias=False)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def quantized_program(model, args, **options):
    """Quantize a model by PT2E, calibrated with its arguments, and export it."""
    config = x86.get_default_x86_inductor_quantization_config(**options)
    quantizer = x86.X86InductorQuantizer().set_global(config)
    with torch.no_grad():
        prepared = prepare_pt2e(export.export(model, args).module(), quantizer)
        prepared(*args)
        return export.export(convert_pt2e(prepared), args)


def compiled(program, args, steps=None):
    """Compile a program; its results differ from PyTorch's by less than a step of quantization.

    Parameters
    ----------
    steps : int | None
        Of so many steps the result's range is. Default: only rounding in float32 differs.
    """
    model = tvm_dnnl.compile(program)
    with torch.no_grad():
        want = program.module()(*args)
    want = want[0] if isinstance(want, tuple) else want
    got = model(*args)
    got = np.asarray(got[0] if isinstance(got, (tuple, list)) else got)
    # float32 sums of up to 256 products, in another order.
    step = np.ptp(want.numpy()) / steps if steps else 1e-5
    assert np.abs(got - want.numpy()).max() <= step
    return model


def kinds(model):
    """Return the composites of a compiled model that compute in 8 bits or with packed weights."""
    return {
        name: count
        for name, count in model.report.composites.items()
        if "qnn" in name or "dynamic" in name or "block" in name
    }


def test_pt2e_resnet():
    """All ops are in one partition, and all convolutions compute in int8."""
    model, draw = resnet()
    args = (draw(2),)
    fast = compiled(quantized_program(model, args), args, steps=255)
    report = fast.report
    assert (report.offloaded, report.partitions) == (report.total, 1)
    assert sum(count for name, count in kinds(fast).items() if "conv2d" in name) == 7
    assert sum(report.in_8_bits.values()) == 8
    # A quantize clips at zero, but none reads the last relu.
    assert report.ops["nn.relu"] == 1


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
def test_pt2e_bert(is_dynamic):
    model, args = Bert(), sentences(2, 16)
    model.model = transformers().BertModel(model.model.config, add_pooling_layer=False)
    program = quantized_program(model.eval(), args, is_dynamic=is_dynamic)
    fast = compiled(program, args, steps=255)
    # The matmuls of both layers: queries, keys, values, the output, and two of the feed-forward.
    assert sum(kinds(fast).values()) == 12
    # Casts of the mask, which is of int64, stay on TVM.
    assert fast.report.partitions == 1 and fast.report.total - fast.report.offloaded <= 3


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("reduce_range", [False, True], ids=["8_bits", "7_bits"])
def test_pt2e_linear(is_dynamic, reduce_range):
    args = (torch.randn(3, 5, 128),)
    options = dict(is_dynamic=is_dynamic, reduce_range=reduce_range)
    fast = compiled(quantized_program(Layers().eval(), args, **options), args)
    name = "dynamic_quantized_dense" if is_dynamic and not reduce_range else "qnn.matmul"
    assert sum(count for each, count in kinds(fast).items() if name in each) == 2


def test_smallest_scale():
    """A dynamic scale is at least `eps`: data of a range that is smaller have few steps."""
    args = (torch.randn(4, 128) * 1e-4,)
    fast = compiled(quantized_program(Layers().eval(), args, is_dynamic=True), args)
    assert sum(kinds(fast).values()) == 2


def int4(group):
    return pytest.importorskip("torchao.prototype.quantization.int4").PrototypeInt4WeightOnlyConfig(
        group_size=group
    )


def intx(bits, granularity, **options):
    dtype = getattr(torch, f"int{bits}")
    return quantization.IntxWeightOnlyConfig(dtype, granularity=granularity, **options)


WEIGHTS = {
    "int8": quantization.Int8WeightOnlyConfig,
    "int8_affine": lambda: intx(8, PerAxis(0)),
    "int4": lambda: intx(4, PerGroup(32)),
    "int4_zero_points": lambda: intx(
        4, PerGroup(64), mapping_type=quantization.MappingType.ASYMMETRIC
    ),
    "int4_shifts": lambda: int4(32),
    "int3": lambda: intx(3, PerGroup(32)),
}


@pytest.mark.parametrize("config", WEIGHTS.values(), ids=WEIGHTS)
def test_weight_only(config):
    model, args = Layers().eval(), (torch.randn(2, 3, 128),)
    quantization.quantize_(model, config())
    fast = compiled(export.export(model, args), args)
    assert kinds(fast) == {"dnnl.block_quantized_dense": 2}
    assert (fast.report.offloaded, fast.report.partitions) == (fast.report.total, 1)


def test_weight_only_odd_rows():
    """Rows that are no multiple of a block are padded."""
    model, args = Layers(columns=50).eval(), (torch.randn(3, 50),)
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    assert kinds(compiled(export.export(model, args), args)) == {"dnnl.block_quantized_dense": 2}


def test_open_rows():
    model = Layers().eval()
    quantization.quantize_(model, WEIGHTS["int4"]())
    shapes = ({0: export.Dim("rows", min=2, max=9)},)
    program = export.export(model, (torch.randn(3, 128),), dynamic_shapes=shapes)
    fast = tvm_dnnl.compile(program)
    for rows in (2, 7):
        x = torch.randn(rows, 128)
        with torch.no_grad():
            # float32 sums of up to 256 products, in another order.
            np.testing.assert_allclose(fast(x), model(x).numpy(), atol=1e-5)
    assert kinds(fast) == {"dnnl.block_quantized_dense": 2}


def test_int8_data():
    """Data that torchao quantizes row by row are multiplied in int8."""
    model, args = Layers().eval(), (torch.randn(2, 3, 128),)
    quantization.quantize_(model, quantization.Int8DynamicActivationInt8WeightConfig())
    fast = compiled(export.export(model, args), args)
    assert sum(fast.report.in_8_bits.values()) == 2
    assert (fast.report.offloaded, fast.report.partitions) == (fast.report.total, 1)


def test_other_readers_of_a_weight():
    """An embedding reads a weight in float32, which is folded."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.layers = nn.Embedding(40, 128), Layers()

        def forward(self, ids):
            return self.layers(self.table(ids))

    model, args = Tied().eval(), (torch.tensor([[3, 39, 0]]),)
    quantization.quantize_(model, WEIGHTS["int4"](), lambda each, _: hasattr(each, "weight"))
    fast = compiled(export.export(model, args), args)
    assert kinds(fast) == {"dnnl.block_quantized_dense": 2}


def test_file(tmp_path):
    """The ops are registered when a file is loaded, as in a process that has not imported them."""
    args = (torch.randn(2, 128),)
    file = tmp_path / "model.pt2"
    export.save(quantized_program(Layers().eval(), args), file)
    script = f"import tvm_dnnl; print(dict(tvm_dnnl.compile({str(file)!r}).report.in_8_bits))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout.strip().endswith("2}"), run.stderr
