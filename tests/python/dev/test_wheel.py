# SPDX-License-Identifier: Apache-2.0
"""The wheel of `dev.py wheel`: what it asks for, and that it runs a model where it is installed."""

import argparse
import fcntl
import fnmatch
import os
import re
import subprocess
import venv
import zipfile

import numpy as np
import pytest
from dnnl_tests.wheel_libraries import check_libraries

from scripts.errors import SetupError
from scripts.layout import ROOT, Layout
from scripts.runner import clean_environment
from scripts.setup import environment
from scripts.wheel import wheel

LAYOUT = Layout()
pytestmark = pytest.mark.slow

# It runs in the new environment: it must see nothing of the checkout.
PROGRAM = """
import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor
from tvm.relay.op.contrib import dnnl

weight = relay.const(np.ones((4, 3, 3, 3), "float32"))
body = relay.nn.relu(relay.nn.conv2d(relay.var("x", shape=(1, 3, 8, 8)), weight))
mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(body))
assert dnnl.offload_report(mod).composites == {"dnnl.conv2d_relu": 1}
with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(mod, target=dnnl.host_target())
lib.export_library("model.so")
assert "<svg" in dnnl.offload_report(mod).to_html()
with tvm.transform.PassContext(opt_level=3, config={"relay.ext.dnnl.codegen": "C_SRC"}):
    lib = relay.build(mod, target=dnnl.host_target())
lib.export_library("c_source.so", options=dnnl.c_source_options())
for name in ("model.so", "c_source.so"):
    module = graph_executor.GraphModule(tvm.runtime.load_module(name)["default"](tvm.cpu()))
    module.set_input("x", np.ones((1, 3, 8, 8), "float32"))
    module.run()
    assert (module.get_output(0).numpy() == 27).all(), name
print(tvm.__file__)
"""


def test_requirements_take_later_patches(tmp_path):
    pins = tmp_path / "pins.txt"
    pins.write_text(
        "# why\n\nnumpy==1.26.4 \\\n    --hash=sha256:0 \\\n    --hash=sha256:1\n"
        "setuptools==75.8.2; python_version >= '3.12' --hash=sha256:2  # x\n"
    )
    required = ["numpy~=1.26.4", "setuptools~=75.8.2; python_version >= '3.12'"]
    assert wheel.requirements(pins) == required
    required = ["numpy>=1.26.4,<2", "setuptools>=75.8.2; python_version >= '3.12'"]
    assert wheel.requirements(pins, ">=", {"numpy": "2"}) == required


def test_the_newest_changes_are_of_this_version():
    first = next(line for line in (ROOT / "CHANGELOG.md").open() if line.startswith("## "))
    version, date = re.fullmatch(r"## (\d+\.\d+\.\d+), (.+)\n", first).groups()
    assert version == wheel.VERSION
    assert date == "not released yet" or re.fullmatch(r"\d{4}-\d\d-\d\d", date)


def test_no_other_set_up_changes_what_goes_into_it(layout, tmp_path, monkeypatch):
    """It is alone, and waits for nobody who could wait for it."""

    def is_free(lock):
        with open(os.open(lock, os.O_RDWR | os.O_CREAT)) as file:
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB) is None
            except BlockingIOError:
                return False

    def build(layout, out):
        assert (is_free(layout.lock), is_free(layout.in_use)) == (False, True)
        (out / f"tvm_dnnl-{wheel.VERSION}-py3-none-any.whl").write_text("")

    monkeypatch.delenv("TVM_HOME", raising=False)
    monkeypatch.setattr(environment, "plan", lambda *_: [])
    monkeypatch.setattr(wheel, "Layout", lambda: layout)
    monkeypatch.setattr(wheel, "build", build)
    args = argparse.Namespace(dry_run=False, no_build=False, relax=False, out=str(tmp_path))
    assert wheel.main(args) == 0


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the wheel, which auditwheel stores without compressing it a second time."""
    if os.environ.get("TVM_HOME"):
        pytest.skip("a wheel is built from the prebuilt tree")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUDITWHEEL_ZIP_COMPRESSION_LEVEL", "0")
        return wheel.build(LAYOUT, tmp_path_factory.mktemp("dist"))


def test_its_libraries_run_where_its_tag_says(built, tmp_path):
    check_libraries(built, tmp_path, {"libtvm.so", "libtvm_dnnl.so", "libdnnl.so.3"})


def test_a_wheel_without_a_tag_is_an_error(tmp_path):
    wheel.check_audited(tmp_path / "tvm_dnnl-1-py3-none-manylinux_2_35_x86_64.whl")
    with pytest.raises(SetupError, match="no manylinux tag fits tvm_dnnl-1"):
        wheel.check_audited(tmp_path / "tvm_dnnl-1-py3-none-linux_x86_64.whl")


def test_it_holds_what_a_model_needs(built):
    with zipfile.ZipFile(built) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"tvm_dnnl-{wheel.VERSION}.dist-info/METADATA").decode()
    needed = ("libtvm.so", "libtvm_dnnl.so", "libdnnl.so.3", "relay/op/contrib/dnnl.py")
    assert {f"tvm/{name}" for name in needed} <= names
    assert "dnnl_report_page/page.py" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    for name in ("CARRIED.md", "oneDNN-LICENSE.txt", "oneDNN-THIRD-PARTY-PROGRAMS.txt"):
        assert any(path.endswith(f"licenses/{name}") for path in names)
    # The order is the builder's.
    asked = re.search("^Requires-Dist: numpy(.+)$", metadata, re.MULTILINE).group(1)
    assert set(asked.split(",")) == {">=1.26.4", "<2"}
    assert "pytest" not in metadata
    assert 'Requires-Dist: graphviz~=0.21; extra == "report"' in metadata


@pytest.fixture(scope="module")
def used(built, tmp_path_factory):
    """Install the wheel in a new environment and run a model there; return the folder."""
    tmp_path = tmp_path_factory.mktemp("used")
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv/bin/python"
    environ = clean_environment()
    for name in ("TVM_LIBRARY_PATH", "TVM_DNNL_LIBRARY", "LD_LIBRARY_PATH", "VIRTUAL_ENV"):
        environ.pop(name, None)

    def run(*command):
        done = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, errors="replace"
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    # What the wheel requires is in the environment of this checkout: nothing is downloaded.
    (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    (packages,) = (LAYOUT.venv / "lib").glob("python*/site-packages")
    (site / "requirements.pth").write_text(f"{packages}\n")
    pip = [LAYOUT.python, "-m", "pip", "--disable-pip-version-check", "--python", python]
    run(*pip, "install", "--quiet", "--no-index", "--no-compile", built)
    (metadata,) = site.glob("tvm_dnnl-*.dist-info/METADATA")
    example = re.search("```python\n(.+?)```", metadata.read_text(), re.DOTALL).group(1)
    assert run(python, "-c", example).endswith("(1, 4, 6, 6)")
    assert run(python, "-c", PROGRAM) == str(site / "tvm/__init__.py")
    assert run(tmp_path / "venv/bin/tvmc", "--version").startswith("0.16")
    return tmp_path


def test_it_runs_a_model_in_a_new_environment(used):
    assert (used / "model.so").is_file()


# The libraries of an image of Debian with libgomp1.
DEBIANS = "linux-vdso ld-linux-x86-64 libc libdl libgcc_s libgomp libm libpthread librt libstdc++"
DEBIANS = {*DEBIANS.split(), "libtinfo", "libz"}


def test_the_image_of_run_model(built, used, tmp_path):
    """What its Dockerfile does, but for Docker: the two stages, and a run of the second one."""
    app = ROOT / "apps/run_model"
    lines = (app / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY")]
    context = [words[0] for words in copied if words[0] != "--from=build"]
    kept = (app / "Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in kept and {f"!{path}" for path in context} == {k for k in kept if k[0] == "!"}
    assert fnmatch.fnmatch(f"build/dist/{built.name}", context[0])

    packages, build = tmp_path / "opt/packages", tmp_path / "build"
    environ = {"PATH": os.environ["PATH"]}

    def run(*command):
        words = list(map(str, command))
        done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    pip = [LAYOUT.python, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps"]
    run(*pip, "--no-index", "--no-compile", "--target", packages, built)
    run("cmake", "-G", "Ninja", "-S", app, "-B", build, f"-DTVM_HOME={packages}/tvm")
    run("cmake", "--build", build)
    packages.rename(tmp_path / "first")
    (packages / "tvm").mkdir(parents=True)
    for path in (path for words in copied for path in words if path.startswith("/opt/packages/")):
        name = path.removeprefix("/opt/packages/")
        (tmp_path / "first" / name).rename(packages / name)

    needed = run("ldd", build / "run_model")
    assert "not found" not in needed
    ours = set(re.findall(r"=> (\S+)/tvm/", needed))
    names = {line.split()[0].rpartition("/")[2].split(".so")[0] for line in needed.splitlines()}
    assert ours == {str(packages)} and names - DEBIANS == {"libtvm", "libtvm_dnnl", "libdnnl"}
    np.ones((1, 3, 8, 8), "float32").tofile(tmp_path / "x.bin")
    run(build / "run_model", used / "model.so", ".", "x=x.bin")
    assert (np.fromfile(tmp_path / "output_0.bin", "float32") == np.full(4 * 6 * 6, 27)).all()
