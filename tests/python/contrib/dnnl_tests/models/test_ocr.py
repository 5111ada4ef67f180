# SPDX-License-Identifier: Apache-2.0
"""Reading text with the PP-OCR models on oneDNN: the same text as onnxruntime reads."""

from collections import Counter

import numpy as np
import pytest
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import nightly_after
from dnnl_tests.models import ocr, workloads

pytestmark = pytest.mark.slow

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("PIL")

# All fit the recogniser at this width, so that it is compiled once.
WIDTH = 384
LINES = [
    "Hello, oneDNN 3.2!",
    "The quick brown fox",
    "0123456789",
    "TVM Relay BYOC",
    "a+b=c; x<y?",
    "user@example.com",
    "50% off / 24h",
    "Room 101, Floor 7",
    "[1] {2} #3 & *4*",
    "Don't panic!",
    "ABCdefGHJkmn",
    "3.14159 > 22/7",
]
# Outputs are probabilities; float32 sums in another order differ by far less.
RTOL = 1e-4


# The detector's probability from which a spatial position is text.
IS_TEXT = 0.3
# Half as large a page as usual has room for a line.
PAGE = 320


class Model:
    """An OCR model whose partitions run on DNNL, and the same in onnxruntime."""

    def __init__(self, name, width=None, precision="float32"):
        self.workload = workloads.ocr(name, width)
        self.mod, self.params = self.workload.load()
        self.original = testing.offload(self.mod).host_ops
        self.partitioned = dnnl.partition_for_dnnl(self.mod, self.params, precision=precision)
        self.runner = direct.Runner(self.partitioned, self.params)
        self.session = workloads.onnx_session(self.workload.onnx_path(), is_plain=True)

    def inputs(self, image):
        return {ocr.INPUT: ocr.to_input(image, self.workload.shape[3])}

    def run(self, image):
        """Return the outputs of DNNL and of onnxruntime."""
        inputs = self.inputs(image)
        return self.runner(inputs), self.session.run(None, inputs)


@pytest.fixture(scope="module")
def cls():
    return Model("cls")


@pytest.fixture(scope="module")
def rec():
    return Model("rec", WIDTH)


@pytest.fixture(scope="module")
def classes():
    return ocr.characters()


@pytest.mark.parametrize("text", nightly_after(3, LINES))
def test_reads_what_onnxruntime_reads(rec, classes, text):
    image = ocr.draw_line(text)
    assert ocr.natural_width(image) <= WIDTH
    outputs, expected = rec.run(image)
    testing.assert_close(outputs, expected, RTOL)
    read, confidence = ocr.decode(outputs[0], classes)
    assert read == ocr.decode(expected[0], classes)[0]
    # The picture was legible: equal nonsense would prove little.
    assert read.replace(" ", "") == text.replace(" ", "")
    assert confidence > 0.8


@pytest.mark.parametrize("turned", [False, True], ids=["upright", "turned"])
@pytest.mark.parametrize("text", nightly_after(1, LINES[:4]))
def test_sees_the_angle_that_onnxruntime_sees(cls, text, turned):
    image = ocr.draw_line(text)
    outputs, expected = cls.run(image.rotate(180) if turned else image)
    testing.assert_close(outputs, expected, RTOL)
    assert ocr.is_upside_down(outputs[0]) == turned


def test_agrees_with_onnxruntime_where_the_angle_is_unclear(cls):
    # On text the classifier is so sure that its outputs are 0 and 1; on noise it is not.
    inputs = cls.workload.inputs()
    expected = cls.session.run(None, inputs)
    assert 0.1 < expected[0].min() < expected[0].max() < 0.9
    testing.assert_close(cls.runner(inputs), expected, RTOL)


@pytest.mark.parametrize("precision", nightly_after(1, ["float32", "bfloat16"]))
def test_detects_what_onnxruntime_detects(precision):
    if not cpu.computes(precision):
        pytest.skip(f"oneDNN has no {precision} on this CPU")
    det = Model("det", PAGE, precision)
    inputs = {ocr.INPUT: ocr.to_page(ocr.draw_line("TVM Relay", 24), PAGE)}
    (output,), (expected,) = det.runner(inputs), det.session.run(None, inputs)
    is_text = expected > IS_TEXT
    assert 0.005 < is_text.mean() < 0.1
    if precision == "float32":
        testing.assert_close([output], [expected], RTOL)
    else:
        # A bfloat16 has 8 bits: what is near the threshold falls on the other side of it.
        assert (np.asarray(output > IS_TEXT) != is_text).sum() < 0.05 * is_text.sum()
    *_, last = [p for p in testing.plans(det.runner)[-1]["primitives"] if p["kind"] != "reorder"]
    assert (last["op"], last["variant"]) == ("nn.conv2d_transpose", "1x1 convolution")


@pytest.mark.parametrize("name", ["cls", "rec"])
def test_convolutions_run_on_dnnl(name, request):
    model = request.getfixturevalue(name)
    report = dnnl.offload_report(model.partitioned)
    offload = testing.offload(model.partitioned)
    assert offload.partitions > 0
    assert offload.partitions == report.partitions
    # The report counts the ops of the model; what is left of a batch norm is an add.
    left = model.original["nn.batch_norm"]
    assert report.ops + report.folded == model.original + Counter({"add": left})
    assert offload.composites == report.composites
    assert offload.ops["nn.conv2d"] == model.original["nn.conv2d"]
    assert not offload.host_ops["nn.conv2d"]
    assert sum(n for c, n in offload.composites.items() if c.startswith("dnnl.conv2d")) > 0
    # The library holds what the module says, and all of it ran.
    image = ocr.draw_line("oneDNN")
    model.runner(model.inputs(image))
    plans = testing.plans(model.runner)
    assert len(plans) == offload.partitions
    # A matmul may be a convolution, too.
    steps = [primitive for plan in plans for primitive in plan["primitives"]]
    convs = [step for step in steps if (step["kind"], step["op"]) == ("convolution", "nn.conv2d")]
    assert len(convs) == offload.ops["nn.conv2d"]


@pytest.mark.nightly
def test_recogniser_without_dnnl_agrees(rec):
    inputs = rec.inputs(ocr.draw_line(LINES[0]))
    reference = testing.run(rec.mod, inputs, rec.params, opt_level=1)
    testing.assert_close(rec.runner(inputs), reference, RTOL)


@pytest.mark.nightly
def test_exported_recogniser_runs_in_a_new_process(rec, classes, tmp_path):
    path = tmp_path / "rec.so"
    testing.export(testing.build(rec.partitioned, rec.params), path)
    inputs = rec.inputs(ocr.draw_line(LINES[0]))
    outputs = testing.run_in_new_process(path, inputs)
    testing.assert_close(outputs, rec.runner(inputs), 1e-6)
    assert ocr.decode(outputs[0], classes)[0] == LINES[0]
