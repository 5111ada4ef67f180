# SPDX-License-Identifier: Apache-2.0
"""Errors that people meet: each names the problem and the remedy, and shows no traceback."""

import hashlib
import io
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest

from scripts.console import Console
from scripts.errors import SetupError
from scripts.layout import ROOT, Layout, PluginLayout
from scripts.runner import Runner
from scripts.setup import machine, native, steps, variables


def program(path, text):
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_compiler_error_is_shown_rather_than_the_end_of_the_log():
    lines = ["[1/9] Building a.cc.o", "a.cc:1:2: error: no such thing", *["noise"] * 200]
    error = native.explain_build_failure("\n".join(lines), ["ninja"], Path("b.log"))
    assert error.details.startswith("a.cc:1:2: error: no such thing")
    assert "b.log" in error.remedy


def test_the_compiler_that_cxx_names_is_taken_or_missed(tmp_path):
    program(tmp_path / "g++", "exit 0")
    mine = program(tmp_path / "my-c++", "exit 0")
    environ = {"PATH": str(tmp_path)}
    assert machine.find_compiler(environ).name == "g++"
    assert machine.find_compiler({**environ, "CXX": "my-c++"}) == mine
    with pytest.raises(SetupError, match="CXX names clang-99, which is not there"):
        machine.find_compiler({**environ, "CXX": "clang-99"})


def test_a_compiler_that_is_too_old(tmp_path):
    old = program(tmp_path / "g++", "echo unrecognized option -std=c++17 >&2; exit 1")
    with pytest.raises(SetupError) as caught:
        machine.check_compiler(old)
    assert "cannot build a C++17 library" in caught.value.problem
    assert "unrecognized option" in caught.value.details
    assert "GCC 11" in caught.value.remedy


def test_a_full_disk(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**10, 9 * 10**9, 10**9))
    with pytest.raises(SetupError, match="1.0 GB free, set-up needs 3 GB"):
        machine.check_disk(tmp_path)


def test_a_checkout_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot write to"):
        machine.check_writable(tmp_path / "file/build")


@pytest.mark.parametrize("system, kind", [("Darwin", "arm64"), ("Linux", "aarch64")])
def test_another_platform(monkeypatch, system, kind):
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: kind)
    with pytest.raises(SetupError, match=f"{system} on {kind}") as caught:
        machine.check_platform(Layout.min_glibc)
    assert "TVM_HOME" in caught.value.remedy


@pytest.mark.parametrize(
    "layout, libc", [(Layout, None), (Layout, "glibc 2.31"), (PluginLayout, "glibc 2.17")]
)
def test_another_c_library(monkeypatch, layout, libc):
    monkeypatch.setattr(os, "confstr", lambda _: libc)
    needed = ".".join(map(str, layout.min_glibc))
    with pytest.raises(SetupError, match=f"{libc or 'another'}.* need glibc {needed} or newer"):
        machine.check_platform(layout.min_glibc)


def test_missing_system_libraries_name_their_packages():
    def load(name):
        if name in ("libtinfo.so.6", "libgomp.so.1"):
            raise OSError(name)

    with pytest.raises(SetupError) as caught:
        machine.check_shared_libraries(load)
    assert "apt-get install libgomp1 libtinfo6" in caught.value.remedy


def test_a_python_without_venv():
    error = steps.explain_venv_failure("ensurepip is not available", ["python"], Path("v.log"))
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"apt-get install python{version}-venv" in error.remedy


def test_tvm_home_must_be_a_built_tree(tmp_path):
    environ = {"TVM_HOME": str(tmp_path)}
    with pytest.raises(SetupError, match="is not a TVM source tree"):
        variables.tvm_home(environ)
    (tmp_path / "python/tvm").mkdir(parents=True)
    (tmp_path / "python/tvm/__init__.py").write_text("")
    with pytest.raises(SetupError, match="has no libtvm.so"):
        variables.tvm_home(environ)
    (tmp_path / "build").mkdir()
    (tmp_path / "build/libtvm.so").write_bytes(b"")
    assert variables.tvm_home(environ) == tmp_path

    prepared = variables.variables(Layout(), {**environ, "PATH": "/bin"})
    ours = [Layout().root / name for name in ("tests/python/contrib", "scripts/report_page")]
    packages = [tmp_path / "python", *ours]
    assert prepared["PYTHONPATH"] == os.pathsep.join(map(str, packages))
    assert prepared["TVM_LIBRARY_PATH"] == str(tmp_path / "build")
    assert variables.tvm_home({}) is None


@pytest.fixture
def checkout(tmp_path):
    """Return a copy of the checkout's entry point, with nothing prepared."""
    for name in ("dev.py", "python/tvm/contrib/onednn/progress.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run_dev(checkout, *arguments, **environ):
    """Run the checkout's dev.py; return its exit code and what it printed."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "TVM_", "PYTHON"))}
    clean.pop("CXX", None)
    result = subprocess.run(
        [sys.executable, checkout / "dev.py", *arguments],
        capture_output=True,
        text=True,
        env={**clean, **environ},
    )
    assert "Traceback" not in result.stderr, result.stderr
    return result.returncode, result.stdout + result.stderr


def test_set_up_without_a_compiler(checkout):
    (checkout / "empty").mkdir()
    code, output = run_dev(checkout, "setup", PATH=str(checkout / "empty"))
    assert code == 1
    assert "error: there is no C++ compiler" in output and "apt-get install g++" in output


def small_wheel(folder):
    """Write the wheel of an empty package `small`; return its SHA-256."""
    path = folder / "small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("small-1.0.dist-info/METADATA", "Name: small\nVersion: 1.0\n")
        archive.writestr("small-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("small-1.0.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_package_needs_its_hash(tmp_path, monkeypatch):
    layout = Layout(tmp_path)
    runner = Runner(Console(io.StringIO()), layout.logs)
    steps.VirtualEnvironment(runner, layout).run()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    right = small_wheel(tmp_path)
    layout.requirements.mkdir()

    def install(line):
        (layout.requirements / "small.txt").write_text(f"{line}\n")
        steps.Packages(runner, layout, ["small"]).run()

    with pytest.raises(SetupError) as caught:
        install("small==1.0")
    assert "Hashes are required" in caught.value.details
    with pytest.raises(SetupError, match="DO NOT MATCH THE HASHES"):
        install(f"small==1.0 --hash=sha256:{'0' * 64}")
    assert not list(tmp_path.glob("build/venv/lib/*/site-packages/small*"))
    install(f"small==1.0 --hash=sha256:{right}")
    assert list(tmp_path.glob("build/venv/lib/*/site-packages/small*"))


def test_set_up_without_network(checkout):
    code, output = run_dev(
        checkout,
        "setup",
        PIP_CONFIG_FILE=os.devnull,
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_RETRIES="1",
        PIP_NO_CACHE_DIR="1",
    )
    assert code == 1
    assert "Failed to establish a new connection" in output
    assert "PIP_INDEX_URL=" in output and "pip-packages.log" in output


def test_a_full_disk_while_set_up_writes(checkout, monkeypatch):
    (checkout / "scripts/setup/setup.py").write_text(
        "def add_arguments(parser): pass\ndef main(args): raise OSError(28, 'no space')\n"
    )
    code, output = run_dev(checkout, "setup")
    assert code == 1 and "error: the disk is full" in output


SLOW = """
import subprocess, time
from pathlib import Path
from scripts.runner import Runner
from scripts.console import Console

class Popen(subprocess.Popen):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        time.sleep(SECONDS)

def add_arguments(parser): pass

def main(args):
    subprocess.Popen = Popen
    Runner(Console(), Path("logs")).run(["sh", "-c", "echo $$ > pid; exec sleep 600"], "sleep")
"""


def ends(stat, seconds=50):
    """Tell if a process ends within some seconds; one that nobody has waited for yet has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("seconds", [0, 2], ids=["runs", "starts"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_takes_the_command_along(checkout, number, seconds):
    """Also one that comes while it is started."""
    (checkout / "scripts/setup/setup.py").write_text(SLOW.replace("SECONDS", str(seconds)))
    process = subprocess.Popen(
        [sys.executable, checkout / "dev.py", "setup"],
        cwd=checkout,
        stderr=subprocess.PIPE,
        text=True,
        # The tests may run in the background, where a shell has these ignored.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    pid = checkout / "pid"
    deadline = time.monotonic() + 100
    while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, printed = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "the next run goes on from here" in printed and "Traceback" not in printed
    assert ends(Path(f"/proc/{pid.read_text().strip()}/stat"))
