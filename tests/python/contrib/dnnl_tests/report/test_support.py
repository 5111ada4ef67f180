# SPDX-License-Identifier: Apache-2.0
"""The table of what runs on oneDNN: that it is up to date, and how it is made."""

import pathlib

import pytest
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.ops.table import TABLE

from dnnl_tests.report import faults, support

PATH = pathlib.Path(__file__).parents[5] / "docs" / "supported_ops.md"


@pytest.mark.skipif(not PATH.exists(), reason="a TVM source tree has no docs of ours")
def test_the_table_is_up_to_date():
    assert PATH.read_text(encoding="utf-8") == support.text(), "run ./dev.py ops --write"


@pytest.mark.skipif(not PATH.exists(), reason="a TVM source tree has no docs of ours")
def test_the_faults_are_those_of_the_runtime():
    page = PATH.with_name("numerics.md").read_text(encoding="utf-8")
    table = page.partition(faults.MARKS[0])[2].partition(faults.MARKS[1])[0]
    assert table == faults.text(), "run ./dev.py ops --write"


def test_reasons_lose_their_numbers():
    reason = support.template("weight has shape (3, ?), not (2, 3) with axis=[0, -1] of -2.5")
    assert reason == "weight has shape (...), not (...) with axis=[...] of n"
    reason = support.template("along W, the last window of 3 holds padding, from H=4 to 9")
    assert reason == "along an axis, the last window of n holds padding, from n to n"
    assert support.template("the data of conv2d is int32") == "the data of conv2d is int32"


def test_layouts_of_an_op():
    conv = support.Support(TABLE["nn.conv2d"])
    assert conv.layouts == "`NCHW`, `NHWC`; any order of `OIHW`"


def test_types_on_this_cpu():
    types = {"float32", *filter(cpu.computes, cpu.REAL)}
    assert support.Support(TABLE["nn.conv2d"]).dtypes == types


def test_qnn_ops():
    """Of what reads them, those that TVM has, with the name that TVM has."""
    sums, others = support.qnn_ops().values()
    assert "qnn.conv2d" in sums and "qnn.dense" in sums and "nn.dense" not in others
    assert {"qnn.add", "qnn.requantize", "qnn.sigmoid"} <= {*others}
    assert not {*sums}.intersection(others) and "qnn.dequantize" not in others


RARELY_LEGAL = ("nn.matmul", "image.resize1d", "nn.upsampling3d")


@pytest.mark.parametrize("name", ["nn.conv2d", "dnnl.swish", *RARELY_LEGAL])
def test_types_are_those_of_the_rule(name, monkeypatch):
    """What random calls are refused for need not be the type."""
    monkeypatch.setattr(cpu, "computes", lambda dtype: dtype in cpu.REAL)
    assert support.Support(TABLE[name]).dtypes == {"float32", "bfloat16", "float16"}


@pytest.mark.parametrize(
    "name,dtypes",
    [
        ("qnn.quantize", {"float32"}),
        ("qnn.dequantize", {"uint8", "int8", "int32"}),
        ("reshape", {"float32", "uint8", "int8"}),
        ("nn.max_pool2d", {"float32", "uint8", "int8"}),
        ("nn.avg_pool2d", {"float32"}),
    ],
)
def test_types_of_8_bits(name, dtypes, monkeypatch):
    monkeypatch.setattr(cpu, "computes", lambda dtype: dtype == "float32")
    assert support.Support(TABLE[name]).dtypes == dtypes
