# SPDX-License-Identifier: Apache-2.0
"""The series for a pull request: a place for every file, and an order in which it builds."""

import ast
import fnmatch
import functools
import os
import re

import pytest

from scripts.patchset.export_pr import MARK, exported, read_series
from scripts.patchset.patch_set import RELAX, RELAY, PatchSet


class Series:
    """The series of one kind of tree, and what the commits have."""

    def __init__(self, kind, imported_from):
        self.patch_set = PatchSet(kind=kind)
        self.ini = read_series(self.patch_set.folder)
        self.commits = self.ini.sections()[1:]
        patches = self.patch_set.patches(self.patch_set.pinned)
        self.patched = {patch.path: patch for patch in patches}
        overlay = self.patch_set.overlay
        self.left_out = {path for path in overlay if self.ini.owner(path, "left_out")}
        self.kept = sorted(set(overlay) - self.left_out)
        self.paths = sorted({*self.kept, *self.patched})
        self.owners = {path: self.ini.owner(path) for path in self.paths}
        # Folders that Python looks in, the tests' packages included.
        self.imported_from = imported_from

    def place(self, path):
        return self.commits.index(self.owners[path])

    def text(self, path):
        return exported(self.patch_set.state(path, link=False)).data.decode()


KINDS = {
    "relay": (RELAY, ("python/", "tests/python/contrib/", "apps/bring_your_own_codegen/")),
    "relax": (RELAX, ("python/", "tests/python/relax/", "tests/python/graph/")),
}


@functools.cache
def series_of(kind):
    return Series(*KINDS[kind])


@pytest.fixture(params=KINDS)
def series(request):
    """Both series in turn."""
    return series_of(request.param)


def test_every_file_has_a_commit(series):
    assert [path for path in series.paths if not series.owners[path]] == []
    removed = series.patch_set.removed
    assert [path for path in removed if not series.ini.owner(path, "removes")] == []


def test_every_pattern_stands_for_a_file(series):
    unused = []
    for name in series.commits:
        own = [path for path in series.paths if series.owners[path] == name]
        patterns = series.ini[name].get("paths", "").split()
        unused += [(name, pattern) for pattern in patterns if not fnmatch.filter(own, pattern)]
    assert unused == []


def test_messages_are_folded(series):
    for name in series.ini.sections():
        section = series.ini[name]
        assert len(section["subject"]) <= 72, name
        lines = [*section["body"].splitlines(), *section.get("large", "").splitlines()]
        assert max(map(len, lines)) <= 72, name


IMPORT = re.compile(r"from \S+ import (\w+)  " + MARK)


def needs(series, path):
    """The files of ours that a file includes or imports."""
    text = series.text(path)
    if path.endswith((".cc", ".h")):
        names = re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)
        needed = {os.path.normpath(os.path.join(os.path.dirname(path), name)) for name in names}
        needed.update(names)  # from the top of the tree
    elif path.endswith(".py"):
        modules = {
            name for node in ast.walk(ast.parse(text)) for name in imported(series, path, node)
        }
        # Importing a module runs the packages around it first.
        parts = [name.split(".") for name in modules]
        modules = {"/".join(words[:n]) for words in parts for n in range(1, len(words) + 1)}
        ends = [f"{name}{end}" for name in modules for end in (".py", "/__init__.py")]
        needed = {root + end for root in series.imported_from for end in ends}
    else:
        needed = set()
    return needed & set(series.patch_set.overlay)


def imported(series, path, node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    root = next((root for root in series.imported_from if path.startswith(root)), "")
    package = path.removeprefix(root).split("/")[: -node.level] if node.level else []
    base = [*package, *(node.module or "").split(".")]
    return [".".join(filter(None, [*base, alias.name])) for alias in node.names]


def test_files_need_no_later_commit(series):
    wrong = []
    for path in series.kept:
        for needed in sorted(needs(series, path)):
            if needed in series.left_out or series.place(path) < series.place(needed):
                names = series.owners[path], series.owners.get(needed)
                wrong.append(f"{path} ({names[0]}) needs {needed} ({names[1]})")
    assert wrong == []


def test_marked_lines_are_those_that_use_what_is_left_out(series):
    """One mark too many would take out what TVM needs; one too few would leave a use."""
    imports = {}
    for path in series.kept:
        text = series.patch_set.overlay[path].read_text()
        marked = [line for line in text.splitlines() if MARK in line]
        rest = series.text(path)
        modules = [match.group(1) for line in marked for match in [IMPORT.match(line)] if match]
        assert bool(modules) == bool(marked), path
        imports.update({name: path for name in modules})
        if modules:
            ast.parse(rest)
            names = re.compile(r"\b(" + "|".join(modules) + r")\b")
            assert all(names.search(line) for line in marked), path
            assert not names.search(rest), f"{path} still uses one of {modules}"
    assert set(imports) >= {"to_html"}


def test_long_commits_say_why(series):
    """A commit over the series' limit, what goes not counted, has a reason."""
    cover = series.ini[series.ini.sections()[0]]
    limit = cover.getint("limit", 2000)
    lines = dict.fromkeys(series.commits, 0)
    for path in set(series.kept) - set(cover.get("grows", "").split()):
        lines[series.owners[path]] += len(series.text(path).splitlines())
    long = [name for name, count in lines.items() if count > limit]
    assert [name for name in long if not series.ini[name].get("large")] == []
    reasons = [name for name in series.commits if "large" in series.ini[name]]
    needless = [name for name in reasons if name not in long]
    assert [name for name in needless if "removes" not in series.ini[name]] == []
    if series is series_of("relax"):
        assert long == [], "commits are for one sitting"


def test_needs_are_seen():
    """The check above has something to check."""
    relay, relax = series_of("relay"), series_of("relax")
    api = "python/tvm/relay/op/contrib/dnnl.py"
    needed = needs(relay, api)
    assert "python/tvm/relay/op/contrib/_dnnl/pipeline.py" in needed
    assert "python/tvm/relay/op/contrib/_dnnl/__init__.py" in needed
    assert api in needs(relay, "tests/python/contrib/test_dnnl.py")
    shell = "src/runtime/contrib/dnnl/dnnl_json_runtime.cc"
    assert "src/runtime/contrib/json/json_runtime.h" in needs(relay, shell)
    folder = "python/tvm/relax/backend/contrib/"
    needed = needs(relax, folder + "dnnl.py")
    assert {f"{folder}_dnnl/pipeline.py", "python/tvm/contrib/onednn/ops/table.py"} <= needed
    folder = "src/runtime/extra/contrib/dnnl/"
    assert f"{folder}json/json_binary.h" in needs(relax, f"{folder}tvm/json_runtime.cc")


def test_cmake_module_comes_after_all_that_it_compiles():
    series = series_of("relay")
    sources = [path for path in series.paths if path.startswith("src/")]
    cmake = series.place("cmake/modules/contrib/DNNL.cmake")
    assert max(map(series.place, sources)) <= cmake


def test_the_first_commit_for_relax_stands_alone():
    """It builds with oneDNN 3, and is short."""
    series = series_of("relax")
    paths = [path for path in series.paths if series.place(path) == 0]
    assert {path.split("/")[0] for path in paths} == {"cmake"}
    lines = sum(len(series.text(path).splitlines()) for path in paths if path in series.kept)
    assert lines < 300


def test_patched_files_need_no_later_commit(series):
    """What a patch hooks into a file of TVM is there in that commit."""
    for path, patch in series.patched.items():
        added = re.findall(r"^\+ *from (tvm\.\S+) import (\w+)", patch.text, re.MULTILINE)
        for module, name in added:
            base = f"python/{module.replace('.', '/')}"
            needed = f"{base}.py" if f"{base}.py" in series.paths else f"{base}/{name}.py"
            assert needed in series.patch_set.overlay, patch.name
            assert series.place(needed) <= series.place(path), patch.name
