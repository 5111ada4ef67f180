# SPDX-License-Identifier: Apache-2.0
"""The patch set for Relax, on a small tree: files move, and say where they are."""

import os

import pytest
from small_tree import snapshot, write

from scripts import cli
from scripts.errors import SetupError
from scripts.patchset.patch_set import RELAX, RELAY, PatchSet
from scripts.patchset.tree import Tree

TREE = {
    "CMakeLists.txt": "project(tvm)\n",
    "cmake/config.cmake": "set(A)\nset(B)\n",
    "include/tvm/runtime/base.h": '#ifndef TVM_VERSION\n#define TVM_VERSION "0.26.dev0"\n#endif\n',
    "src/relax/backend/contrib/utils.cc": "// TVM's\n",
    "src/runtime/extra/contrib/json/json_node.h": "// TVM's\n",
}
PATCH = """\
Subject: Say it
Why: People look there.
Forwarded: no

--- a/cmake/config.cmake
+++ b/cmake/config.cmake
@@ -1,2 +1,3 @@
 set(A)
+# with oneDNN
 set(B)
"""
REWRITES = """\
# Texts of paths and files.
src/core/ -> src/runtime/extra/core/
CORE_H -> EXTRA_H
"""
CHECKOUT = {
    "TVM_VERSION": "pinned v0.19.0 12\nrelax v0.26.0 34 0.26.dev0\nrelax main 56 0.26.dev0\n",
    "patches/overlay.list": "",
    "patches/remove.list": "",
    "patches/upstream.sha256": "",
    "patches/relax/overlay.list": "src\n!src/old.h\npython\n",
    "patches/relax/rewrite.list": REWRITES,
    "patches/relax/remove.list": "",
    "patches/relax/upstream.sha256": "",
    "patches/relax/series": "cmake/say-it.patch\n",
    "patches/relax/cmake/say-it.patch": PATCH,
    "src/core/a.h": "// \\file src/core/a.h\n#ifndef CORE_H\n",
    "src/core/plain.h": "// nothing to say\n",
    "src/old.h": "// stays behind\n",
    "python/tvm/relax/dnnl.py": "# ours\n",
}
MOVED = "src/runtime/extra/core/"


@pytest.fixture
def tvm(tmp_path):
    """A TVM-like tree with Relax."""
    write(tmp_path / "tvm", TREE)
    return tmp_path / "tvm"


@pytest.fixture
def patch_set(tmp_path):
    """A patch set that fits it."""
    write(tmp_path / "checkout", CHECKOUT)
    return PatchSet(tmp_path / "checkout", RELAX)


@pytest.mark.parametrize("flags", [[], ["--link"]], ids=["copy", "link"])
def test_there_and_back(tvm, patch_set, flags, capsys):
    before = snapshot(tvm)
    assert cli.run(["apply", "--tvm", str(tvm), *flags], patch_set) == 0
    said = capsys.readouterr().out
    assert "TVM v0.26.0 or main" in said and "set(USE_DNNL /path" in said
    assert "USE_DNNL_CODEGEN" not in said
    moved = tvm / MOVED / "a.h"
    assert moved.read_text() == f"// \\file {MOVED}a.h\n#ifndef EXTRA_H\n"
    assert not moved.is_symlink(), "a link would have the text that it has in the checkout"
    assert (tvm / MOVED / "plain.h").is_symlink() == bool(flags)
    assert (tvm / "python/tvm/relax/dnnl.py").is_symlink() == bool(flags)
    assert not (tvm / "src/old.h").exists()
    assert "# with oneDNN" in (tvm / "cmake/config.cmake").read_text()
    assert cli.run(["apply", "--tvm", str(tvm), "--reverse"], patch_set) == 0
    assert snapshot(tvm) == before


def test_a_copy_follows_the_checkout(tvm, patch_set):
    cli.run(["apply", "--tvm", str(tvm), "--link"], patch_set)
    (patch_set.root / "src/core/a.h").write_text("// CORE_H is new\n")
    cli.run(["apply", "--tvm", str(tvm), "--link"], patch_set)
    assert (tvm / MOVED / "a.h").read_text() == "// EXTRA_H is new\n"


def test_it_is_whole_or_not_at_all(tvm, patch_set):
    """A file of somebody's in the place of one that moves is in the way of all."""
    write(tvm, {MOVED + "a.h": "// mine\n"})
    before = snapshot(tvm)
    with pytest.raises(SetupError) as error:
        cli.run(["apply", "--tvm", str(tvm)], patch_set)
    assert f"{MOVED}a.h: is neither TVM's nor ours" in str(error.value.details)
    assert snapshot(tvm) == before


def test_the_kind_is_that_of_the_tree(tvm, tmp_path):
    assert PatchSet.of(Tree.at(tvm)).kind is RELAX
    (tvm / "python/tvm/relay").mkdir(parents=True)
    assert PatchSet.of(Tree.at(tvm)).kind is RELAY
    (tmp_path / "empty").mkdir()
    assert PatchSet.of(Tree.at(tmp_path / "empty")).kind is RELAY


@pytest.mark.parametrize(
    "files, message",
    [
        ({"include/tvm/runtime/base.h": '#define TVM_VERSION "0.9"'}, "is TVM 0.9; the patch set"),
        ({"include/tvm/runtime/base.h": ""}, "cannot tell the TVM version"),
        ({"src/relax/backend/contrib/utils.cc": None}, "is not a TVM source tree"),
    ],
    ids=["version", "no-version", "no-relax"],
)
def test_another_tree(tvm, patch_set, files, message):
    for name, text in files.items():
        if text is None:
            os.remove(tvm / name)
        else:
            write(tvm, {name: text})
    with pytest.raises(SetupError, match=message):
        cli.run(["apply", "--tvm", str(tvm)], patch_set)
