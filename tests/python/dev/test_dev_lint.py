# SPDX-License-Identifier: Apache-2.0
"""The checks of `dev.py lint` that are our own."""

from pathlib import Path

import pytest

from scripts.layout import ROOT
from scripts.lint import text_rules

TABLES = ROOT / "scripts" / "lint"


def write(root, name, text):
    """Write a file and return its name as lint has it."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    return Path(name)


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
