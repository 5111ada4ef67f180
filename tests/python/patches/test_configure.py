# SPDX-License-Identifier: Apache-2.0
"""TVM's own CMake, with the patch set applied, takes the right sources for each option."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import real_trees
from small_tree import scratch_folder

from scripts import cli
from scripts.layout import ROOT, Layout

CODEGEN = "src/relay/backend/contrib/dnnl/"
RUNTIME = "src/runtime/contrib/dnnl/"

# What TVM has for oneDNN elsewhere: it is built whenever this backend is.
OTHERS = {"src/relax/backend/contrib/dnnl/codegen.cc", "src/runtime/contrib/cblas/dnnl_blas.cc"}

# All that CMake reads, globs and compiles.
WHOLE = ("CMakeLists.txt", "cmake", "include", "src", *real_trees.PYTHON)

# What a user's config.cmake would hold; the rest keeps the test quick and alike on all machines.
CONFIG = """\
set(USE_LLVM OFF)
set(USE_LIBBACKTRACE OFF)
set(USE_GTEST OFF)
set(USE_CCACHE OFF)
set(USE_ALTERNATIVE_LINKER OFF)
"""


def find_cmake():
    """The CMake of the prepared environment, or the one on PATH."""
    ours = Layout().bin / "cmake"
    return str(ours) if ours.exists() else shutil.which("cmake")


pytestmark = pytest.mark.skipif(find_cmake() is None, reason="cmake is not installed")


class Build:
    """TVM's tree with the patch set, and a build folder that is configured again and again."""

    def __init__(self, folder: Path):
        self.tree = real_trees.copy_of("wheel", folder / "tvm", WHOLE)
        (self.tree / "3rdparty").symlink_to(real_trees.WHEEL_TREE / "3rdparty")
        cli.run(["apply", "--tvm", str(self.tree)])
        self.folder = folder / "build"
        self.folder.mkdir()
        self.onednn = folder / "onednn"
        self._make_onednn()
        self.output = ""
        # The first run tests the compiler; the ones after it take what that found out.
        assert self.configure() == 0, self.output

    def _make_onednn(self):
        """As much of an installation as the configure step looks at."""
        headers = self.onednn / "include/oneapi/dnnl"
        headers.mkdir(parents=True)
        (headers / "dnnl.hpp").touch()
        lines = (
            f"#define DNNL_VERSION_{k} {v}\n" for k, v in zip(("MAJOR", "MINOR", "PATCH"), "340")
        )
        (headers / "dnnl_version.h").write_text("".join(lines))
        (self.onednn / "lib").mkdir()
        (self.onednn / "lib/libdnnl.so.3.4").touch()
        (self.onednn / "lib/libdnnl.so").symlink_to("libdnnl.so.3.4")

    def configure(self, **options):
        """Configure with options in config.cmake, as users do; return the exit code."""
        lines = (f"set({name} {value})\n" for name, value in options.items())
        (self.folder / "config.cmake").write_text(CONFIG + "".join(lines))
        command = [find_cmake(), "-S", self.tree, "-B", self.folder, "-Wno-dev"]
        command += ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DCMAKE_BUILD_TYPE=Release"]
        command += [f"-DCMAKE_PREFIX_PATH={self.onednn}"]
        hide = ("VIRTUAL_ENV", "DNNLROOT", "CONDA_PREFIX")
        variables = {name: value for name, value in os.environ.items() if name not in hide}
        done = subprocess.run(command, capture_output=True, text=True, env=variables)
        self.output = " ".join((done.stdout + done.stderr).split())
        return done.returncode

    def commands(self):
        """The compile command of each source, by its path in the tree."""
        entries = json.loads((self.folder / "compile_commands.json").read_text())
        return {
            Path(entry["file"]).relative_to(self.tree).as_posix(): entry["command"]
            for entry in entries
        }

    def ours(self):
        """Those sources that belong to the backend."""
        return {path for path in self.commands() if path.startswith((CODEGEN, RUNTIME))}


@pytest.fixture(scope="module")
def build():
    """One tree for all tests here."""
    with scratch_folder() as folder:
        yield Build(Path(folder))


def overlay(*folders):
    """Our sources in some folders, as paths in the tree."""
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*.cc"))
    return {path.relative_to(ROOT).as_posix() for path in paths}


def told(build, name):
    """What the build tells libinfo about an option."""
    command = build.commands()["src/support/libinfo.cc"]
    return command.split(f'-DTVM_INFO_{name}=\\"', 1)[1].split('\\"', 1)[0]


def test_default_is_off(build):
    assert build.configure() == 0, build.output
    assert build.ours() == set()
    assert not OTHERS & set(build.commands())
    assert told(build, "USE_DNNL_CODEGEN") == "OFF"
    assert told(build, "DNNL_VERSION") == "NOT-FOUND"


@pytest.mark.parametrize(
    "options",
    [
        # Other values that choose the same are in `dev/test_dev_cmake.py`.
        {"USE_DNNL_CODEGEN": "JSON"},
        {"USE_DNNL": "ON"},
        {"USE_DNNL": "<path>", "USE_DNNL_CODEGEN": "ON"},
    ],
    ids=lambda options: " ".join(f"{name}={value}" for name, value in options.items()),
)
def test_json_sources(build, options):
    options = {name: value.replace("<path>", str(build.onednn)) for name, value in options.items()}
    assert build.configure(**options) == 0, build.output
    sources = build.ours()
    assert sources <= overlay(CODEGEN, RUNTIME), "a file of TVM's old backend is compiled"
    assert f"{CODEGEN}codegen.cc" in sources
    assert f"{RUNTIME}dnnl_json_runtime.cc" in sources
    assert {path for path in sources if path.startswith(f"{RUNTIME}core/ops/")}
    commands = build.commands()
    assert OTHERS <= set(commands)
    for path in sources | OTHERS:
        assert f"{build.onednn}/include" in commands[path]
    assert f"{build.onednn}/include" not in commands["src/runtime/module.cc"]
    assert told(build, "DNNL_VERSION") == "3.4.0"
    assert told(build, "USE_DNNL_CODEGEN") == options.get("USE_DNNL_CODEGEN", "OFF")


def test_the_cores_tests_are_a_target_of_their_own(build):
    """They build in a TVM tree, too, from nothing but the core and oneDNN."""
    assert build.configure(USE_DNNL_CODEGEN="ON") == 0, build.output
    tests = overlay("tests/cpp-runtime/harness", "tests/cpp-runtime/dnnl/core")
    assert tests and tests <= set(build.commands())
    command = [find_cmake(), "--build", build.folder, "--target", "help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "dnnl_core_cpptest" in done.stdout


@pytest.mark.parametrize("codegen, version", [("JSON", "3.4.0"), ("OFF", "NOT-FOUND")])
def test_libinfo_compiles(build, codegen, version):
    """libinfo.cc needs the runtime's headers only, which the wheel has."""
    assert build.configure(USE_DNNL_CODEGEN=codegen) == 0, build.output
    command = build.commands()["src/support/libinfo.cc"].split(" -o ")[0]
    source = build.tree / "src/support/libinfo.cc"
    done = subprocess.run(
        f"{command} -E -P {source}", shell=True, cwd=build.folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert f'{{"USE_DNNL_CODEGEN", "{codegen}"}}' in done.stdout
    assert f'{{"DNNL_VERSION", "{version}"}}' in done.stdout
    done = subprocess.run(
        f"{command} -fsyntax-only {source}",
        shell=True,
        cwd=build.folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_config_cmake_of_the_tree_names_the_option(build):
    text = (build.tree / "cmake/config.cmake").read_text()
    assert "\nset(USE_DNNL_CODEGEN OFF)\n" in text
