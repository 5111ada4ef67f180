# SPDX-License-Identifier: Apache-2.0
"""The profile's table and the plots."""

import argparse

import pytest

from scripts import options
from scripts.bench import plot, profile


def row(node="dnnl_0, node 3 nn.conv2d", impl="brgconv:avx512_core", flops=2e6, time=20.0):
    return {
        "node": node,
        "op": "nn.conv2d",
        "kind": "convolution",
        "impl": impl,
        "reference": impl.startswith("ref"),
        "variant": "oneDNN's layouts",
        "post_ops": ["bias", "eltwise_relu"],
        "src": "acdb",
        "dst": "aBcd16b",
        "flops": flops,
        "microseconds": time,
    }


def test_cells_and_totals():
    cells = profile.cells(row(), row(time=16.0), total=200.0, peak=200.0)
    assert cells[2:] == [
        "brgconv:avx512_core",
        "oneDNN's layouts",
        "acdb > aBcd16b",
        *("20", "16", "10.0%", "100", "50%"),
    ]
    # Plain loops are flagged, and an op without floating-point work has no rate.
    cells = profile.cells(row(impl="ref:any", flops=0), row(), total=200.0, peak=200.0)
    assert cells[2] == "ref:any (slow)" and cells[-2:] == ["", ""]
    rows = [row(time=10.0), row(impl="jit:avx2", time=30.0), row(time=10.0)]
    assert profile.totals(rows) == [
        ["convolution, jit:avx2", "1", "30", "60.0%"],
        ["convolution, brgconv:avx512_core", "2", "20", "40.0%"],
    ]


@pytest.mark.parametrize(
    "name, part", [("x.gif", "must end in .png"), ("no/x.png", "cannot write")]
)
def test_a_plot_that_cannot_be_written_is_refused_before_the_measurement(tmp_path, name, part):
    with pytest.raises(argparse.ArgumentTypeError, match=part):
        options.picture(str(tmp_path / name))


def test_the_plots(tmp_path):
    pytest.importorskip("matplotlib", reason="the benchmark's packages are not installed")
    plot.primitives([row(), row(time=5.0)], str(tmp_path / "a.svg"), "a model")
    labels = [
        ("a model", "float32", "DNNL"),
        ("a model", "float32", "other"),
        ("a model", "int8", "DNNL"),
        ("another", "float32", "DNNL"),
        ("another", "float32", "other"),
    ]
    rows = [{"median_ms": each} for each in (1.0, 2.0, 0.5, 4.0)] + [{"reason": "no kernels"}]
    plot.backends(labels, rows, str(tmp_path / "b.svg"), "2 threads")
    assert "<svg" in (tmp_path / "a.svg").read_text()
    # matplotlib writes each text beside its outlines, as a comment.
    drawn = (tmp_path / "b.svg").read_text()
    for text in ("float32", "int8", "a model", "another", "DNNL", "other", "0.5"):
        assert f"<!-- {text} -->" in drawn, text
