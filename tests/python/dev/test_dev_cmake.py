# SPDX-License-Identifier: Apache-2.0
"""DNNL.cmake: the values of its options, and which oneDNN it accepts."""

import os
import shutil
import subprocess

import pytest

from scripts.layout import ROOT

MODULE = ROOT / "cmake/modules/contrib/DNNL.cmake"
PROJECT = f"""
cmake_minimum_required(VERSION 3.18)
project(options NONE)
include({MODULE})
message(STATUS "codegen=<${{DNNL_CODEGEN}}> version=<${{DNNL_VERSION}}>")
message(STATUS "include=<${{DNNL_INCLUDE_DIR}}> library=<${{DNNL_LIBRARY}}>")
message(STATUS "linked=<${{TVM_RUNTIME_LINKER_LIBS}}>")
"""

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")


def configure(tmp_path, *options, source=None, environ=()):
    """Run CMake's configure step; return its exit code and its output on one line."""
    if source is None:
        source = tmp_path / "project"
        source.mkdir(exist_ok=True)
        (source / "CMakeLists.txt").write_text(PROJECT)
    variables = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "DNNLROOT")}
    variables.update(environ)
    command = [shutil.which("cmake"), "-S", source, "-B", tmp_path / "build", *options]
    result = subprocess.run(command, capture_output=True, text=True, env=variables)
    return result.returncode, " ".join((result.stdout + result.stderr).split())


@pytest.fixture
def prefix(tmp_path):
    """Return a maker of oneDNN prefixes that hold just enough to be found."""

    def make(version="3.2.0", library="3.2", name="onednn"):
        root = tmp_path / name
        headers = root / "include/oneapi/dnnl"
        headers.mkdir(parents=True)
        (headers / "dnnl.hpp").write_text("")
        parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
        lines = [f"#define DNNL_VERSION_{part} {number}\n" for part, number in parts]
        (headers / "dnnl_version.h").write_text("".join(lines))
        (root / "lib").mkdir()
        if library:
            (root / f"lib/libdnnl.so.{library}").write_bytes(b"")
            (root / "lib/libdnnl.so").symlink_to(f"libdnnl.so.{library}")
        return root

    return make


# USE_DNNL, USE_DNNL_CODEGEN, the codegen that is chosen.
AGREEING = [
    ("OFF", "OFF", "OFF"),
    ("", "", "OFF"),
    ("<prefix>", "", "JSON"),
    ("<prefix>", "OFF", "JSON"),
    ("<prefix>", "ON", "JSON"),
    ("<prefix>", "JSON", "JSON"),
    ("<prefix>", "json", "JSON"),
    ("<prefix>", "C_SRC", "C_SRC"),
    ("ON", "OFF", "JSON"),
    ("ON", "JSON", "JSON"),
    ("ON", "C_SRC", "C_SRC"),
    ("JSON", "", "JSON"),
    ("C_SRC", "", "C_SRC"),
    ("C_SRC", "C_SRC", "C_SRC"),
    ("OFF", "ON", "JSON"),
    ("OFF", "JSON", "JSON"),
]


def test_values_that_agree(tmp_path, prefix):
    root = prefix()
    source = tmp_path / "pairs"
    source.mkdir()
    text = PROJECT
    for number, (use_dnnl, use_codegen, _) in enumerate(AGREEING):
        use_dnnl = use_dnnl.replace("<prefix>", str(root))
        text += f'__dnnl_choose_codegen("{use_dnnl}" "{use_codegen}" chosen)\n'
        text += f'message(STATUS "{number}=<${{chosen}}>")\n'
    (source / "CMakeLists.txt").write_text(text)
    code, output = configure(tmp_path, source=source)
    assert code == 0, output
    for number, (*options, codegen) in enumerate(AGREEING):
        assert f" {number}=<{codegen}>" in output, options


PREFIX = ["-DUSE_DNNL={root}"]
# By name: the oneDNN that is there, the options, and what CMake says; it fails if an error is
# among that.
CASES = {
    "off-by-default": (None, [], ["codegen=<OFF>", "linked=<>"]),
    "prefix": (
        {},
        PREFIX,
        [
            "codegen=<JSON> version=<3.2.0>",
            "include=<{root}/include> library=<{root}/lib/libdnnl.so>",
            "linked=<{root}/lib/libdnnl.so>",
        ],
    ),
    **{
        f"wrong-codegen-{value}": (
            None,
            [f"-DUSE_DNNL_CODEGEN={value}"],
            ["Error", f'CODEGEN is "{value}"; it must be ON, JSON, C_SRC or OFF'],
        )
        for value in ("MAYBE", "/usr")
    },
    "no-directory": (
        None,
        ["-DUSE_DNNL=/no/such/place"],
        ["Error", 'USE_DNNL is "/no/such/place"', "a directory that exists"],
    ),
    **{
        f"contradiction-{one}-{other}": (
            None,
            [f"-DUSE_DNNL={one}", f"-DUSE_DNNL_CODEGEN={other}"],
            ["Error", f"USE_DNNL={one} contradicts USE_DNNL_CODEGEN={other}"],
        )
        for one, other in (("JSON", "C_SRC"), ("C_SRC", "JSON"), ("C_SRC", "ON"))
    },
    **{
        f"too-old-{version}": (
            dict(version=version, library=version),
            PREFIX,
            ["Error", f"oneDNN {version} in {{root}}/include is too old", "v3 API as of 3.2"],
        )
        for version in ("2.7.3", "3.1.1")
    },
    "too-new": (
        dict(version="4.0.0", library="4.0"),
        PREFIX,
        ["Error", "oneDNN 4.0.0", "too new"],
    ),
    **{
        f"in-range-{version}": (
            dict(version=version, library=version.rpartition(".")[0]),
            PREFIX,
            [f"version=<{version}>"],
        )
        for version in ("3.9.2", "3.13.0")
    },
    **{
        f"library-{library}": (
            dict(library=library),
            PREFIX,
            ["Error", "are version 3.2.0", f"is version {library}"],
        )
        for library in ("3.9", "2")
    },
    "major-version-alone": (dict(version="3.5.0", library="3"), PREFIX, []),
    "version-of-the-directory": (
        dict(version="3.5.0", library="3.5", name="dnnl.so.9.9"),
        PREFIX,
        [],
    ),
    "no-library": (
        dict(library=""),
        PREFIX,
        ["Error", "its library libdnnl was not found with them"],
    ),
    "no-headers": (
        None,
        ["-DUSE_DNNL={empty}"],
        ["Error", "dnnl.hpp was not found", "onednn-devel-cpu-gomp"],
    ),
    "active-environment": ({}, ["-DUSE_DNNL_CODEGEN=JSON"], ["include=<{root}/include>"]),
}


@pytest.mark.parametrize("case", CASES)
def test_options(tmp_path, prefix, case):
    onednn, options, words = CASES[case]
    places = {"root": onednn is not None and prefix(**onednn), "empty": tmp_path / "empty"}
    places["empty"].mkdir()
    environ = {"VIRTUAL_ENV": places["root"]} if case == "active-environment" else {}
    options = [word.format(**places) for word in options]
    code, output = configure(tmp_path, *options, environ=environ)
    assert (code != 0) == ("Error" in words), output
    for word in words:
        assert word.format(**places) in output, output


PACKAGE = """
add_library(DNNL::dnnl SHARED IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}/../../../include"
  IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/../../libdnnl.so.3.2")
"""


def test_the_cmake_package_of_onednn_is_found(tmp_path, prefix):
    root = prefix()
    package = root / "lib/cmake/dnnl"
    package.mkdir(parents=True)
    (package / "dnnl-config.cmake").write_text(PACKAGE)
    code, output = configure(tmp_path, "-DUSE_DNNL=ON", f"-DCMAKE_PREFIX_PATH={root}")
    assert code == 0, output
    assert "version=<3.2.0>" in output and "libdnnl.so.3.2>" in output


def test_the_top_level_project_stops_without_a_tvm_tree(tmp_path, prefix):
    options = [f"-DUSE_DNNL={prefix()}", f"-DTVM_TREE={tmp_path}"]
    code, output = configure(tmp_path, *options, source=ROOT)
    assert code != 0
    assert "holds no libtvm.so" in output and "./dev.py setup" in output


def test_the_top_level_project_stops_when_there_is_nothing_to_build(tmp_path):
    code, output = configure(tmp_path, "-DUSE_DNNL=OFF", "-DUSE_DNNL_CODEGEN=OFF", source=ROOT)
    assert code != 0
    assert "there is nothing to build" in output


@pytest.mark.parametrize("compiler", ["", "g++"], ids=["none named", "named"])
def test_the_top_level_project_stops_without_a_compiler(tmp_path, compiler):
    """scikit-build-core names that of Python in CXX."""
    make = shutil.which("ninja") or shutil.which("make")
    options = ["-G", "Ninja" if "ninja" in make else "Unix Makefiles"]
    environ = {"PATH": str(tmp_path), "CXX": compiler}
    options.append(f"-DCMAKE_MAKE_PROGRAM={make}")
    code, output = configure(tmp_path, *options, source=ROOT, environ=environ)
    assert code != 0
    assert "there is no C++ compiler. Install one, such as with `apt-get install g++`" in output


@pytest.mark.skipif(shutil.which("setarch") is None, reason="no setarch")
def test_the_plugin_is_refused_on_other_machines(tmp_path):
    command = ["setarch", "i686", "cmake", "-S", ROOT, "-B", tmp_path, "-DSKBUILD=ON"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode != 0
    output = " ".join(result.stderr.split())
    assert "the plug-in is for Linux on x86_64, and this is Linux on i686" in output


ABI_SOURCE = """
#include <string>
namespace tvm {
int Use(const std::string& text) { return text.size(); }
}
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("abi", [0, 1])
def test_the_abi_of_a_library_is_read_from_its_symbols(tmp_path, abi):
    source, library = tmp_path / "lib.cc", tmp_path / "libtvm.so"
    source.write_text(ABI_SOURCE)
    flags = ["-shared", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]
    subprocess.run(["c++", *flags, source, "-o", library], check=True)
    assert read_abi(tmp_path, library) == (0, f"abi={abi}")


def test_a_library_that_is_not_tvms_has_no_abi(tmp_path):
    library = tmp_path / "libtvm.so"
    library.write_bytes(b"not a library")
    code, output = read_abi(tmp_path, library)
    assert code != 0
    assert f"cannot read {library}" in output


def read_abi(tmp_path, library):
    """Run the ABI detection as a script; return its exit code and output on one line."""
    script = tmp_path / "abi.cmake"
    script.write_text(
        f"include({ROOT}/cmake/TVMLibraryABI.cmake)\n"
        f'tvm_library_cxx11_abi("{library}" abi)\nmessage("abi=${{abi}}")\n'
    )
    result = subprocess.run(["cmake", "-P", script], capture_output=True, text=True)
    return result.returncode, " ".join((result.stdout + result.stderr).split())
