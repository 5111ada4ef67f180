# SPDX-License-Identifier: Apache-2.0
"""`dev.py report`: what it prints, what it writes, and its errors."""

import json

import onnx
import pytest
from dnnl_tests.models.onnx_networks import Network

from scripts import cli
from scripts.errors import SetupError


@pytest.fixture
def model(tmp_path):
    """Write a model of convolution, relu and arctangent, of any batch size. Return its path."""
    net = Network("small", ("N", 3, 8, 8))
    proto = net.model(net.op("Atan", net.op("Relu", net.conv("x", 3, 4, kernel=3))), ("N", 4, 8, 8))
    onnx.save(proto, str(tmp_path / "small.onnx"))
    return str(tmp_path / "small.onnx")


def run(words):
    """Run the command as it runs in the environment; return its exit code."""
    return cli.run(["report", *words])


def words(text):
    """Return a text with single spaces between its words."""
    return " ".join(text.split())


def test_table_json_and_page(model, tmp_path, capsys):
    pytest.importorskip("graphviz")
    files = ["--html", str(tmp_path / "r.html"), "--json", str(tmp_path / "r.json")]
    assert run([model, "--shape", "x=1,3,8,8", *files]) == 0
    printed = words(capsys.readouterr().out)
    assert "atan 1 0 1 x no rule for this op (Atan_" in printed
    assert "total 4 3 in 1 partition" in printed
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["offloaded"] == 3
    (fused,) = (node for node in report["nodes"] if node["kind"] == "dnnl")
    assert [name.split("_")[0] for name in fused["sources"]] == ["Conv", "Relu"]
    assert "<h1>small.onnx on oneDNN</h1>" in (tmp_path / "r.html").read_text()


def test_options_of_the_partitioning(model, capsys):
    options = ["--exclude", "nn.conv2d", "--no-prune"]
    assert run([model, "--shape", "x=1,3,8,8", *options]) == 0
    printed = words(capsys.readouterr().out)
    assert "nn.conv2d 1 0 1 x excluded by option" in printed and "nn.relu 1 1" in printed


def test_changes_since_an_earlier_report(model, tmp_path, capsys):
    pytest.importorskip("graphviz")
    before = str(tmp_path / "before.json")
    shape = ["--shape", "x=1,3,8,8"]
    assert run([model, *shape, "--exclude", "nn.relu", "--json", before]) == 0
    page = str(tmp_path / "r.html")
    assert run([model, *shape, "--before", before, "--html", page]) == 0
    printed = words(capsys.readouterr().out)
    assert "ops on oneDNN 2 3" in printed and "nn.relu on oneDNN 0 1" in printed
    assert 'nn.relu on oneDNN</td><td class="n">0 &rarr; 1' in (tmp_path / "r.html").read_text()
    assert run([model, *shape, "--exclude", "nn.relu", "--before", before]) == 0
    assert "nothing changed" in capsys.readouterr().out


@pytest.mark.slow  # it compiles the model
def test_times(model, tmp_path, capsys):
    pytest.importorskip("graphviz")
    page = tmp_path / "r.html"
    assert run([model, "--shape", "x=1,3,8,8", "--run", "--html", str(page)]) == 0
    printed = words(capsys.readouterr().out)
    assert "nn.conv2d of dnnl.conv2d_bias_relu bias eltwise_relu" in printed
    assert "whole run" in printed and "ms a run" in page.read_text()
    assert "<b>nn.conv2d + bias + eltwise_relu</b>" in page.read_text()


def test_an_input_without_a_fixed_shape_is_named(model, capsys):
    assert run([model]) == 0
    captured = capsys.readouterr()
    assert "input x has no fixed shape" in captured.out + captured.err
    assert "--shape x=?,3,8,8" in captured.out + captured.err


@pytest.mark.parametrize(
    "options, error",
    [
        (["--shape", "y=1,3,8,8"], "has no input 'y'; its inputs are x of rank 4"),
        (["--shape", "x=1,3,8"], "--shape: the input x of rank 4 .* of rank 3"),
        (["--shape", "x=1,3,8,8", "--exclude", "nn.con"], "exclude has 'nn.con'"),
        (["--shape", "x=1,3,8,8", "--json", "/no/such/folder/r.json"], "cannot write /no/such"),
        (["--shape", "x=1,3,8,8", "--before", "/no/such.json"], "cannot read /no/such.json"),
        (["--shape", "x=1,3,8,8", "--before", "README.md"], "README.md is not a report"),
        (["--run", "--exclude", "nn.relu"], "--run measures the default options"),
    ],
    ids=["input", "rank", "exclude", "output", "no-before", "before", "run"],
)
def test_wrong_values(model, options, error):
    with pytest.raises(SetupError) as caught:
        run([model, *options])
    assert caught.match("(?s)" + error)


@pytest.mark.parametrize("text", ["x", "x=", "=1,2", "x=1,a", "x=1,-1"])
def test_wrong_shapes(model, text, capsys):
    with pytest.raises(SystemExit):
        run([model, "--shape", text])
    assert "is not like NAME=1,3,224,224" in capsys.readouterr().err


def test_files_that_are_no_models(tmp_path):
    with pytest.raises(SetupError, match="cannot read"):
        run([str(tmp_path / "none.onnx")])
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(SetupError, match="is not an ONNX model"):
        run([str(tmp_path / "text.onnx")])
