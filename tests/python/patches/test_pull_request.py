# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""The series for a pull request: a place for every file, and an order in which it builds."""

import ast
import os
import re

import pytest

from scripts.layout import ROOT
from scripts.patchset.export_pr import MARK, exported, owner, read_series
from scripts.patchset.patch_set import PatchSet

PATCH_SET = PatchSet()
SERIES = read_series(ROOT)
COMMITS = SERIES.sections()[1:]
PATCHED = {patch.path: patch for patch in PATCH_SET.patches(PATCH_SET.pinned)}
LEFT_OUT = {path for path in PATCH_SET.overlay if owner(SERIES, path, "left_out")}
PATHS = sorted({*PATCH_SET.overlay, *PATCHED} - LEFT_OUT)


def test_every_file_has_a_commit():
    assert [path for path in PATHS if not owner(SERIES, path)] == []
    assert [path for path in PATCH_SET.removed if not owner(SERIES, path, "removes")] == []


@pytest.mark.parametrize("name", COMMITS)
def test_every_pattern_stands_for_a_file(name):
    for pattern in SERIES[name].get("paths", "").split():
        alone = {"commit": {"paths": pattern}}
        one = type(SERIES)(interpolation=None)
        one.read_dict(alone)
        assert [p for p in PATHS if owner(one, p) and owner(SERIES, p) == name], pattern


@pytest.mark.parametrize("name", SERIES.sections())
def test_message_is_folded(name):
    section = SERIES[name]
    assert len(section["subject"]) <= 72
    lines = [*section["body"].splitlines(), *section.get("large", "").splitlines()]
    assert max(map(len, lines)) <= 72


IMPORT = re.compile(r"from \S+ import (\w+)  " + MARK)

# Folders that Python looks in, the tests' packages included.
IMPORTED_FROM = ("python/", "tests/python/contrib/", "apps/bring_your_own_codegen/")


def needs(path):
    """The files of ours that a file includes or imports."""
    text = exported(PATCH_SET.state(path, link=False)).data.decode()
    if path.endswith((".cc", ".h")):
        names = re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)
        found = {os.path.normpath(os.path.join(os.path.dirname(path), name)) for name in names}
        found.update(names)  # from the top of the tree
    elif path.endswith(".py"):
        modules = {name for node in ast.walk(ast.parse(text)) for name in imported(path, node)}
        # Importing a module runs the packages around it first.
        parts = [name.split(".") for name in modules]
        modules = {"/".join(words[:n]) for words in parts for n in range(1, len(words) + 1)}
        ends = [f"{name}{end}" for name in modules for end in (".py", "/__init__.py")]
        found = {root + end for root in IMPORTED_FROM for end in ends}
    else:
        found = set()
    return found & set(PATCH_SET.overlay)


def imported(path, node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    root = next((root for root in IMPORTED_FROM if path.startswith(root)), "")
    package = path.removeprefix(root).split("/")[: -node.level] if node.level else []
    base = [*package, *(node.module or "").split(".")]
    return [".".join(filter(None, [*base, alias.name])) for alias in node.names]


def test_files_need_no_later_commit():
    wrong = []
    for path in set(PATCH_SET.overlay) - LEFT_OUT:
        for needed in sorted(needs(path)):
            mine, other = owner(SERIES, path), owner(SERIES, needed)
            if needed in LEFT_OUT or COMMITS.index(mine) < COMMITS.index(other):
                wrong.append(f"{path} ({mine}) needs {needed} ({other})")
    assert wrong == []


def test_marked_lines_are_those_that_use_what_is_left_out():
    """One mark too many would take out what TVM needs; one too few would leave a use."""
    imports = {}
    for path in sorted(set(PATCH_SET.overlay) - LEFT_OUT):
        text = PATCH_SET.overlay[path].read_text()
        marked = [line for line in text.splitlines() if MARK in line]
        rest = exported(PATCH_SET.state(path, link=False)).data.decode()
        found = [match.group(1) for line in marked for match in [IMPORT.match(line)] if match]
        assert bool(found) == bool(marked), path
        imports.update({name: path for name in found})
        if found:
            ast.parse(rest)
            names = re.compile(r"\b(" + "|".join(found) + r")\b")
            assert all(names.search(line) for line in marked), path
            assert not names.search(rest), f"{path} still uses one of {found}"
    assert set(imports) >= {"host_target"}


def test_needs_are_seen():
    """The check above has something to check."""
    api = "python/tvm/relay/op/contrib/dnnl.py"
    assert "python/tvm/relay/op/contrib/_dnnl/pipeline.py" in needs(api)
    assert "python/tvm/relay/op/contrib/_dnnl/__init__.py" in needs(api)
    assert api in needs("tests/python/contrib/test_dnnl.py")
    shell = "src/runtime/contrib/dnnl/dnnl_json_runtime.cc"
    assert "src/runtime/contrib/json/json_runtime.h" in needs(shell)


def test_cmake_module_comes_after_all_that_it_compiles():
    cmake = COMMITS.index(owner(SERIES, "cmake/modules/contrib/DNNL.cmake"))
    sources = {owner(SERIES, path) for path in PATHS if path.startswith("src/")}
    assert max(COMMITS.index(name) for name in sources) <= cmake


def test_patched_files_need_no_later_commit():
    """What a patch hooks into a file of TVM is there in that commit."""
    for path, patch in PATCHED.items():
        added = re.findall(r"^\+from (tvm\.\S+) import", patch.text, re.MULTILINE)
        for module in added:
            needed = f"python/{module.replace('.', '/')}.py"
            assert needed in PATCH_SET.overlay, patch.name
            names = owner(SERIES, needed), owner(SERIES, path)
            assert COMMITS.index(names[0]) <= COMMITS.index(names[1]), patch.name
