# SPDX-License-Identifier: Apache-2.0
"""The checks of `dev.py lint` that are our own."""

import os
from pathlib import Path

import pytest

from scripts.console import Console
from scripts.layout import ROOT, Layout
from scripts.lint import newest_onednn, text_rules
from scripts.runner import Runner

TABLES = ROOT / "scripts" / "lint"


def write(root, name, text):
    """Write a file and return its name as lint has it."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    return Path(name)


def test_a_source_file_needs_the_licence_header(tmp_path):
    files = [
        write(tmp_path, "a.py", f"# {text_rules.HEADER}\n"),
        write(tmp_path, "scripts/a.py", f"# {text_rules.SHORT}\n"),
        write(tmp_path, "src/b.cc", f"// {text_rules.SHORT}\n"),
        write(tmp_path, "scripts/b.py", "b = 1\n"),
        write(tmp_path, "README.md", "text\n"),
    ]
    problems = list(text_rules.check_headers(tmp_path, files))
    assert problems == [f"{name}: no ASF licence header" for name in ("src/b.cc", "scripts/b.py")]


def test_long_files_are_found_unless_allowed(tmp_path):
    files = [
        write(tmp_path, "long.cc", "\n" * 401),
        write(tmp_path, "allowed.py", "\n" * 450),
        write(tmp_path, "short.py", "\n" * 10),
        write(tmp_path, "data.json", "\n" * 1000),
    ]
    table = tmp_path / "sizes.txt"
    table.write_text("# comment\n\nallowed.py  460  one table\nshort.py  500  no reason left\n")
    long, short = text_rules.check_sizes(tmp_path, files, table)
    assert long == "long.cc: 401 lines, at most 400 are allowed; split it"
    assert short == "short.py: 10 lines; take its row out of sizes.txt"


@pytest.mark.parametrize(
    "name, line",
    [
        ("a.cc", "#include <" + "regex>"),
        ("a.h", "using namespace " + "std;"),
        ("a.md", "see https://" + "pypi.org/x"),
        ("a.sh", "cd /" + "root/x"),
        ("a.py", "x = 1  "),
        ("a.txt", "numpy==1.26.4; python_version < '3.11'"),
        ("a.txt", "<" * 7 + " HEAD"),
        ("a.md", "Products of " + "matrices run there"),
        *((f"{folder}/a.py", "taken" + " = 1") for folder in ("scripts", "tests", "apps")),
    ],
)
def test_forbidden_strings_are_found(tmp_path, name, line):
    path = write(tmp_path, name, f"fine\n{line}\n")
    table = TABLES / "forbidden.txt"
    (problem,) = text_rules.check_forbidden(tmp_path, [path], table)
    assert problem.startswith(f"{name}:2: ")


def test_harmless_lines_pass(tmp_path):
    lines = ["import re", "path = 'a/work/b'", "std::string s;", "====", "https://tvm.apache.org"]
    path = write(tmp_path, "a.cc", "\n".join(lines) + "\n")
    assert not list(text_rules.check_forbidden(tmp_path, [path], TABLES / "forbidden.txt"))


def test_the_checkouts_own_tables_are_well_formed():
    for name, columns in (("sizes.txt", 3), ("forbidden.txt", 3)):
        assert all(len(row) == columns for row in text_rules._rows(TABLES / name))


@pytest.fixture
def layout(tmp_path):
    """Return a checkout of one source and one test, with the real CMake and Ninja."""
    new = Layout(tmp_path)
    new.bin = Layout().bin
    if not (new.bin / "ninja").exists():
        pytest.skip("set-up has not installed CMake and Ninja")
    write(
        tmp_path,
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.18)\nproject(small CXX)\nadd_compile_options(-Wall)\n"
        "include_directories(SYSTEM ${USE_DNNL}/include)\n"
        "add_library(dnnl_core_objs OBJECT src/a.cc)\nadd_library(tests OBJECT tests/b.cc)\n"
        "add_library(tvm_dnnl_objs OBJECT src/c.cc)\n"
        "add_library(tvm_dnnl_codegen_objs OBJECT src/c.cc)\n",
    )
    write(tmp_path, "tests/b.cc", "not C++;\n")
    write(tmp_path, "src/c.cc", "int c = 1;\n")
    write(tmp_path, "build/onednn-newest/include/version.h", "#define NEWEST 1\n")
    (tmp_path / "requirements").mkdir()
    return new


def test_the_newest_headers_are_compiled_without_a_warning(tmp_path, layout):
    def messages():
        runner = Runner(Console(open(os.devnull, "w")), layout.logs)
        return list(newest_onednn.check_compiles(runner, layout))

    write(tmp_path, "src/a.cc", '#include "version.h"\nint a = NEWEST;\n')
    assert messages() == []
    write(tmp_path, "src/a.cc", "void f() { int unused; }\n")
    for _ in range(2):
        (message,) = messages()
        assert "src/a.cc:1:16: error: unused variable" in message
    write(tmp_path, "src/a.cc", "int a = NEWEST;\n")
    (message,) = messages()
    assert "NEWEST" in message


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from tvm import relay", "tvm"),
        ("from tvm.relay import op", "tvm.relay"),
        ("import tvm.tir", "tvm.tir"),
        ("import torch", "torch"),
        ("from ...dlpack import x", "...dlpack"),
    ],
)
def test_the_shared_package_imports_no_tvm(tmp_path, text, name):
    folder = text_rules.PACKAGE
    write(tmp_path, f"{folder}/cpu.py", "import functools\n\nimport numpy as np\n")
    write(
        tmp_path,
        f"{folder}/ops/conv.py",
        "import math\n\nfrom .. import cpu\nfrom ..cpu import x\nfrom ..options import y\n",
    )
    write(tmp_path, f"{folder}/options.py", "from . import cpu\n")
    assert list(text_rules.check_package(tmp_path)) == []
    write(tmp_path, f"{folder}/partition/fuse.py", f"{text}\n")
    (message,) = text_rules.check_package(tmp_path)
    assert message.startswith(f"{folder}/partition/fuse.py:")
    assert message.endswith(f": the shared package imports {name}")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("ir/node.py", "from ..ops.table import TABLE", "ir imports ops"),
        ("ops/rules.py", "from .. import rewrites", "ops imports rewrites"),
        ("rewrites/pipeline.py", "from ..partition.fuse import x", "rewrites imports partition"),
        ("ir/node.py", "from ..compiled import x", "ir imports compiled"),
    ],
)
def test_no_import_goes_up_the_layers(tmp_path, file, text, message):
    folder = text_rules.PACKAGE
    write(tmp_path, f"{folder}/compiled.py", "from .report import page\nfrom . import cpu\n")
    write(tmp_path, f"{folder}/partition/units.py", "from ..ops import table\nfrom .. import cpu\n")
    assert list(text_rules.check_layers(tmp_path)) == []
    write(tmp_path, f"{folder}/{file}", f"import re\n\n{text}\n")
    assert list(text_rules.check_layers(tmp_path)) == [
        f"{folder}/{file}:3: {message}, a later layer"
    ]


RELAX = "python/tvm/relax/backend/contrib/_dnnl"
RELAX_IMPORTERS = "python/tvm/relax/frontend/_dnnl"
RELAY_IMPORTERS = "python/tvm/relay/frontend/onnx_repairs"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (f"{RELAX}/pipeline.py", "from tvm_dnnl._frontend import onnx", "tvm_dnnl._frontend.onnx"),
        (f"{RELAX_IMPORTERS}/onnx/pads.py", "from tvm_dnnl._dnnl.types import x", ".types.x"),
        (f"{RELAX_IMPORTERS}/torch/a.py", "import tvm.contrib.onednn.ops.table", ".ops.table"),
        (f"{RELAY_IMPORTERS}/pads.py", "from ...op.contrib import dnnl", ".op.contrib.dnnl"),
        ("python/tvm/relay/op/contrib/dnnl.py", "from ...frontend import onnx_repairs", "repairs"),
    ],
)
def test_importers_and_backend_meet_at_named_points(tmp_path, file, text, message):
    write(tmp_path, f"{RELAX}/importers.py", "from tvm_dnnl._frontend.onnx import registration\n")
    write(tmp_path, f"{RELAX_IMPORTERS}/backend.py", "from tvm_dnnl._dnnl.types import size_from\n")
    free = "from tvm.contrib.onednn import progress\nfrom tvm.contrib.onednn.frontend import pads\n"
    write(tmp_path, f"{RELAX_IMPORTERS}/onnx/x.py", f"from ..backend import dims\n{free}")
    assert list(text_rules.check_importers(tmp_path)) == []
    write(tmp_path, file, f"{text}\n")
    (found,) = text_rules.check_importers(tmp_path)
    assert found.startswith(f"{file}:1: ") and found.endswith(message)
