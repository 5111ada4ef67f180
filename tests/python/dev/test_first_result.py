# SPDX-License-Identifier: Apache-2.0
"""From the README to a result: its commands, on a model of the user's own. Prints the seconds."""

import os
import re
import subprocess
import time
import venv

import onnx
import pytest
from dnnl_tests.models.onnx_networks import Network

from scripts.layout import ROOT, PluginLayout
from scripts.runner import clean_environment

pytestmark = pytest.mark.slow

# By heading of the README: the language and the text of each block of code.
SECTIONS = {
    section.partition("\n")[0]: re.findall(
        r"^```(\w*)\n(.*?)^```", section, re.DOTALL | re.MULTILINE
    )
    for section in re.split("^## ", (ROOT / "README.md").read_text("utf-8"), flags=re.MULTILINE)
}


def block(heading, language="sh"):
    """Return the first block of code of a language in a section."""
    return next(text for name, text in SECTIONS[heading] if name == language)


@pytest.fixture
def checkout(tmp_path):
    """A folder with all that the checkout has, and a model of the user's own."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for path in ROOT.iterdir():
        (folder / path.name).symlink_to(path)
    net = Network("own", (1, 3, 224, 224))
    hidden = net.op("Relu", net.conv("x", 3, 1000, kernel=7, stride=16))
    result = net.op("Flatten", net.op("GlobalAveragePool", hidden))
    onnx.save(net.model(result, (1, 1000)), str(folder / "model.onnx"))
    return folder


@pytest.fixture
def environ():
    """The variables of a user who has set nothing."""
    unset = ("LD_LIBRARY_PATH", "VIRTUAL_ENV", "TVM_LIBRARY_PATH", "TVM_DNNL_LIBRARY")
    return {name: value for name, value in clean_environment().items() if name not in unset}


def run(script, folder, environ):
    """Run a script as a user types it; print the seconds and return what it printed."""
    start = time.monotonic()
    done = subprocess.run(
        ["bash", "-eu", "-c", script], cwd=folder, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    print(f"{time.monotonic() - start:5.1f} s  {script.strip().splitlines()[-1]}")
    return done.stdout


def test_relax(checkout, environ):
    """Pip builds the plug-in by pyproject.toml, with the versions that are pinned."""
    program = block("Run a model", "python")
    (checkout / "program.py").write_text(program)
    venv.create(checkout / "env", with_pip=True)
    layout = PluginLayout()
    # What it requires when it runs is in the environment of this checkout.
    (site,) = (checkout / "env/lib").glob("python*/site-packages")
    (site / "requirements.pth").write_text(f"{layout.packages}\n")
    pins = "\n".join((layout.requirements / name).read_text() for name in layout.pins)
    pins = re.findall(r"^([\w.-]+==[^\s;]+)", pins, re.MULTILINE)
    (checkout / "pins.txt").write_text("\n".join(pins))
    for name in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"):
        environ[name] = str(checkout / "pins.txt")
    if layout.core:
        # Of the objects that the tests in C++ have.
        cmake = layout.core.python.parent / "cmake"
        run(f"{cmake} --build {layout.core.cmake} --target dnnl_core", checkout, environ)
        environ["CMAKE_ARGS"] = f"-DDNNL_CORE={layout.definitions['DNNL_CORE']}"
    environ.update(PATH=f"{checkout}/env/bin:{environ['PATH']}")
    run(block("Install"), checkout, environ)
    printed = run("python program.py", checkout, environ)
    assert re.search(r"^total +(\d+) +\1  in 1 partition$", printed, re.MULTILINE), printed
    assert printed.endswith("(1, 1000)\n") and (checkout / "model.so").is_file()


@pytest.mark.skipif("TVM_HOME" in os.environ, reason="the commands are for the prebuilt tree")
def test_relay(checkout, environ):
    """The commands, then the program."""
    printed = run(block("Relay"), checkout, environ)
    assert "in 1 partition" in printed and "<svg" in (checkout / "report.html").read_text("utf-8")
    assert "mean (ms)" in printed
    (checkout / "program.py").write_text(block("Relay", "py"))
    printed = run("./dev.py exec -- python program.py", checkout, environ)
    assert "in 1 partition" in printed and (checkout / "model.so").is_file()
