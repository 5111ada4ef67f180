# SPDX-License-Identifier: Apache-2.0
"""TVM's command line with the target `dnnl`: compile, run, options and errors."""

import resource
import subprocess
import sys
import tarfile

import numpy as np
import onnx
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.driver.tvmc import TVMCException
from tvm.driver.tvmc.composite_target import get_codegen_by_target
from tvm.driver.tvmc.main import _main as tvmc
from tvm.relay.op.contrib import dnnl
from tvm.testing.dnnl import host_target

from dnnl_tests.marks import json_only
from dnnl_tests.models.onnx_networks import Network
from dnnl_tests.reference import conv, rand

SHAPE = (1, 3, 8, 8)
DNNL_AND_HOST = f"dnnl, {host_target()}"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Write a model of convolution, relu and softmax; return its path and its weights."""
    net = Network("small", SHAPE)
    sum_ = net.op("Relu", net.conv("x", 3, 4, kernel=3))
    proto = net.model(net.op("Softmax", sum_, axis=1), (1, 4, 8, 8))
    path = tmp_path_factory.mktemp("tvmc") / "small.onnx"
    onnx.save(proto, str(path))
    return path, [onnx.numpy_helper.to_array(item) for item in proto.graph.initializer]


def compile_with(model, tmp_path, target, *options):
    """Compile the model; return the package and the text of its executor's graph."""
    package = tmp_path / "small.tar"
    assert tvmc(["compile", f"--target={target}", *options, "-o", str(package), str(model[0])]) == 0
    with tarfile.open(package) as archive:
        return package, archive.extractfile("mod.json").read().decode()


def expected(weights, x):
    """Compute what the model computes."""
    out = np.maximum(conv(x, weights[0], {"padding": (1, 1)}) + weights[1].reshape(1, -1, 1, 1), 0)
    powers = np.exp(out - out.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def assert_runs(package, weights, tmp_path):
    """Run a package with random data, and compare."""
    x = rand(*SHAPE)
    np.savez(tmp_path / "in.npz", x=x)
    files = ["--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz")]
    assert not tvmc(["run", str(package), "--device=cpu", *files])
    result = np.load(tmp_path / "out.npz")["output_0"]
    np.testing.assert_allclose(result, expected(weights, x), rtol=1e-5, atol=1e-6)


@json_only
def test_compile_and_run(model, tmp_path):
    package, graph = compile_with(model, tmp_path, DNNL_AND_HOST)
    assert "tvmgen_default_dnnl_main_0" in graph
    assert_runs(package, model[1], tmp_path)


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_c_source(model, tmp_path, compiler):
    options = [
        "--pass-config=relay.ext.dnnl.codegen=C_SRC",
        f"--cross-compiler={compiler}",
        f"--cross-compiler-options={' '.join(dnnl.c_source_options())}",
    ]
    package, graph = compile_with(model, tmp_path, DNNL_AND_HOST, *options)
    assert "tvmgen_default_dnnl_main_0" in graph
    with tarfile.open(package) as archive:
        library = archive.extractfile("mod.so").read()
    assert b"TVMDNNLRunOp" in library and b"dnnl_json" not in library
    assert_runs(package, model[1], tmp_path)


@json_only
@pytest.mark.parametrize(
    "exclude, line",
    [
        ("nn.softmax", "3 of 4 ops run on oneDNN, in 1 partition; on TVM: nn.softmax"),
        ("", "4 of 4 ops run on oneDNN, in 1 partition"),
        (
            "nn.conv2d,nn.relu",
            "0 of 4 ops run on oneDNN; on TVM: nn.bias_add, nn.conv2d, nn.relu, ",
        ),
    ],
    ids=["one-left", "all", "none"],
)
def test_it_says_in_a_line_what_runs_where(capfd, model, tmp_path, exclude, line):
    compile_with(model, tmp_path, DNNL_AND_HOST, f"--target-dnnl-exclude={exclude}")
    said = capfd.readouterr()
    assert f"target dnnl: {line}" in said.err and "oneDNN" not in said.out


@json_only
def test_module_name_is_that_of_the_partitions(model, tmp_path):
    _, graph = compile_with(model, tmp_path, DNNL_AND_HOST, "--module-name=small")
    assert "tvmgen_small_dnnl_main_0" in graph


@json_only
@pytest.mark.parametrize(
    "target, options",
    [
        (DNNL_AND_HOST, ["--target-dnnl-exclude=nn.conv2d,nn.softmax"]),
        (f"dnnl -exclude=nn.conv2d,nn.softmax, {host_target()}", []),
    ],
    ids=["own-option", "in-target"],
)
def test_exclude(model, tmp_path, target, options):
    # What is left for oneDNN is too small.
    _, graph = compile_with(model, tmp_path, target, *options)
    assert "_dnnl_" not in graph


@json_only
@pytest.mark.parametrize("prune", ["0", "1", "false"])
def test_prune(model, tmp_path, prune):
    target = f"dnnl -exclude=nn.conv2d -prune={prune}, {host_target()}"
    _, graph = compile_with(model, tmp_path, target)
    assert ("_dnnl_" in graph) == (prune != "1")


@json_only
@pytest.mark.parametrize(
    "target, options",
    [
        (DNNL_AND_HOST, ["--target-dnnl-num_threads=3"]),
        (f"dnnl -num_threads=3, {host_target()}", []),
    ],
    ids=["own-option", "in-target"],
)
def test_num_threads(model, tmp_path, target, options):
    package, _ = compile_with(model, tmp_path, target, *options)
    with tarfile.open(package) as archive:
        library = archive.extractfile("mod.so").read()
    # The graph of the partition says so of each kernel.
    assert b'"num_threads":3' in b"".join(library.split())
    assert_runs(package, model[1], tmp_path)


@json_only
@pytest.mark.skipif(not cpu.computes("bfloat16"), reason="this CPU has no bfloat16")
def test_precision(model, tmp_path):
    _, graph = compile_with(model, tmp_path, DNNL_AND_HOST, "--target-dnnl-precision=bfloat16")
    assert "tvmgen_default_dnnl_main_0" in graph


@pytest.mark.parametrize("precision", ["bfloat16", "half"])
def test_precision_that_there_is_not(capsys, model, tmp_path, precision, monkeypatch):
    monkeypatch.setattr(cpu, "computes", lambda dtype: dtype == "float32")
    target = f"dnnl -precision={precision}, {host_target()}"
    assert "target dnnl: precision" in error_of(capsys, model, tmp_path, f"--target={target}")


def error_of(capsys, model, tmp_path, *arguments):
    """Run `tvmc compile` and return its error."""
    assert tvmc(["compile", *arguments, "-o", str(tmp_path / "no.tar"), str(model[0])]) == 4
    return capsys.readouterr().err


def test_unknown_name_in_exclude(capsys, model, tmp_path):
    error = error_of(
        capsys, model, tmp_path, f"--target={DNNL_AND_HOST}", "--target-dnnl-exclude=nn.dens"
    )
    assert "target dnnl: exclude has 'nn.dens'" in error
    assert "did you mean 'nn.dense'?" in error


def test_last_target_must_be_tvms(capsys, model, tmp_path):
    assert "The last target needs to be a TVM target" in error_of(
        capsys, model, tmp_path, "--target=dnnl"
    )


def test_option_without_the_target(capsys, model, tmp_path):
    error = error_of(capsys, model, tmp_path, f"--target={host_target()}", "--target-dnnl-prune=0")
    assert "Passed --target-dnnl-prune but did not specify dnnl target" in error


def test_tvm_without_the_code_generator(monkeypatch):
    monkeypatch.setattr(dnnl, "is_dnnl_available", lambda: False)
    x = relay.var("x", shape=(1,))
    partition = get_codegen_by_target("dnnl")["pass_pipeline"]
    with pytest.raises(TVMCException, match="USE_DNNL_CODEGEN"):
        partition(tvm.IRModule.from_expr(relay.nn.relu(x)), mod_name="default")


@json_only
@pytest.mark.parametrize("old", ["old", None])
def test_a_full_disk_leaves_the_old_package_or_none(model, tmp_path, old):
    package, _ = compile_with(model, tmp_path, DNNL_AND_HOST)
    size = package.stat().st_size
    package.unlink()
    if old:
        package.write_text(old)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # It is larger than all that goes into it, so it is the package that has no room.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, limits[1]))
    try:
        with pytest.raises(OSError):
            compile_with(model, tmp_path, DNNL_AND_HOST)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    left = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert left == ({package.name: old} if old else {})


# It waits in the middle of the package.
SLOW = """
import sys, tarfile
from tvm.driver.tvmc.main import _main

add = tarfile.TarFile.add

def add_slowly(archive, *args):
    add(archive, *args)
    archive.fileobj.flush()
    print("writing", flush=True)
    sys.stdin.readline()

tarfile.TarFile.add = add_slowly
_main(["compile", *sys.argv[1:]])
"""


@json_only
def test_a_kill_leaves_the_old_package(model, tmp_path):
    package = tmp_path / "small.tar"
    package.write_text("old")
    words = [f"--target={DNNL_AND_HOST}", "-o", package, model[0]]
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", SLOW, *words], stdin=pipe, stdout=pipe)
    assert any(line == b"writing\n" for line in process.stdout)
    assert package.read_text() == "old"
    process.kill()
    process.communicate()
    assert package.read_text() == "old"


@json_only
def test_a_link_stays_one(model, tmp_path):
    link, package = tmp_path / "link.tar", tmp_path / "small.tar"
    link.symlink_to(package)
    assert not tvmc(["compile", f"--target={DNNL_AND_HOST}", "-o", str(link), str(model[0])])
    assert link.is_symlink() and tarfile.is_tarfile(package)


def test_inputs_without_a_fixed_shape_are_named(tmp_path, capsys):
    x = relay.var("x", shape=(relay.Any(), 3, 8, 8))
    mod = tvm.IRModule.from_expr(relay.nn.relu(x))
    get_codegen_by_target("dnnl")["pass_pipeline"](mod, {})
    assert "input x has no fixed shape" in (text := capsys.readouterr().err)
    assert '--input-shapes "x:[?,3,8,8]"' in text
