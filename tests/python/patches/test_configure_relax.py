# SPDX-License-Identifier: Apache-2.0
"""DNNL.cmake for Relax: which sources it takes, in a project like TVM's."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from small_tree import write

from scripts.patchset.patch_set import RELAX, PatchSet

SOURCES = "src/runtime/extra/contrib/"
BLAS = SOURCES + "cblas/dnnl_blas.cc"
PROJECT = """\
cmake_minimum_required(VERSION 3.18)
project(tvm CXX)
macro(tvm_file_glob glob variable)
  file(${glob} ${variable} CONFIGURE_DEPENDS ${ARGN})
endmacro()
add_library(tvm_runtime_extra SHARED extra.cc)
add_library(tvm_ffi_header INTERFACE)
add_library(tvm_runtime_extra_defs INTERFACE)
target_compile_definitions(tvm_runtime_extra_defs INTERFACE TVM_FFI_EXPORTS)
include(cmake/modules/contrib/DNNL.cmake)
"""

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")


def overlay():
    """The sources that the patch set brings, as empty files; the CMake files as they are."""
    patch_set = PatchSet(kind=RELAX)
    for path in patch_set.overlay:
        if path.startswith("cmake/"):
            yield path, patch_set.state(path, link=False).data.decode()
        elif path.endswith(".cc"):
            yield path, ""


@pytest.fixture
def tree(tmp_path):
    """A tree with the patch set, and oneDNN beside it."""
    write(
        tmp_path / "tvm", {"CMakeLists.txt": PROJECT, "extra.cc": "", BLAS: "", **dict(overlay())}
    )
    parts = zip(("MAJOR", "MINOR", "PATCH"), "340")
    headers = {
        "dnnl.hpp": "",
        "dnnl_version.h": "".join(f"#define DNNL_VERSION_{part} {n}\n" for part, n in parts),
    }
    write(tmp_path / "onednn/include/oneapi/dnnl", headers)
    write(tmp_path / "onednn/lib", {"libdnnl.so.3.4": ""})
    (tmp_path / "onednn/lib/libdnnl.so").symlink_to("libdnnl.so.3.4")
    return tmp_path / "tvm"


def configure(tree, **options):
    """Return the exit code, the output on one line, and the compile command of each source."""
    build = tree.parent / "build"
    command = ["cmake", "-S", tree, "-B", build, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    command += [f"-D{name}={value}" for name, value in options.items()]
    hide = ("VIRTUAL_ENV", "DNNLROOT", "CONDA_PREFIX")
    environ = {name: value for name, value in os.environ.items() if name not in hide}
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    database = build / "compile_commands.json"
    entries = json.loads(database.read_text()) if database.exists() else []
    commands = {Path(e["file"]).relative_to(tree).as_posix(): e["command"] for e in entries}
    return done.returncode, " ".join((done.stdout + done.stderr).split()), commands


@pytest.mark.parametrize("value", ["ON", "JSON", "<path>"])
def test_sources(tree, value):
    root = tree.parent / "onednn"
    value = value.replace("<path>", str(root))
    code, output, commands = configure(tree, USE_DNNL=value, CMAKE_PREFIX_PATH=root)
    assert code == 0, output
    assert "Build with oneDNN 3.4.0" in output
    ours = {path for path, _ in overlay() if path.endswith(".cc")}
    assert set(commands) == {"extra.cc", BLAS, *ours}
    for path in ours | {BLAS}:
        assert f"-isystem {root}/include" in commands[path]
    runtime = {path for path in ours if path.startswith("src/")}
    assert all("TVM_FFI_EXPORTS" in commands[path] for path in runtime if "/tvm/" in path)
    assert f"{root}/include" not in commands["extra.cc"]


def test_off(tree):
    code, output, commands = configure(tree, USE_DNNL="OFF")
    assert (code, set(commands)) == (0, {"extra.cc"}), output


@pytest.mark.parametrize(
    "value, message",
    [
        ("C_SRC", "Relax has no codegen that writes C source"),
        ("MAYBE", 'USE_DNNL is "MAYBE"; it must be ON, JSON or OFF, or a directory'),
        ("<empty>", "oneDNN's header oneapi/dnnl/dnnl.hpp was not found"),
    ],
)
def test_wrong_values(tree, value, message):
    (tree.parent / "empty").mkdir()
    code, output, _ = configure(tree, USE_DNNL=value.replace("<empty>", str(tree.parent / "empty")))
    assert code != 0
    assert message in output
