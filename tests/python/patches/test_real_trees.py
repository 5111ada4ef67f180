# SPDX-License-Identifier: Apache-2.0
"""The patch set goes onto real TVM trees and comes off again."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import real_trees
from small_tree import scratch_folder, snapshot

from scripts import cli
from scripts.patchset.patch_set import RELAY, PatchSet
from scripts.patchset.tree import Tree

PATCH_SET = PatchSet()
RELAY_TREES = [
    name for name in real_trees.available() if real_trees.patch_set_of(name).kind is RELAY
]


@pytest.fixture(params=real_trees.available())
def real(request):
    """The name of a real tree, and a copy of it."""
    with scratch_folder() as folder:
        yield request.param, real_trees.copy_of(request.param, Path(folder, "tvm"))


@pytest.mark.parametrize("flags", [[], ["--link"]], ids=["copy", "link"])
def test_there_and_back(real, flags):
    name, tree = real
    patch_set = real_trees.patch_set_of(name)
    tag = "v0.19.0" if name == "wheel" else name
    before = snapshot(tree)
    assert cli.run(["apply", "--tvm", str(tree), *flags]) == 0
    once = snapshot(tree)
    assert cli.run(["apply", "--tvm", str(tree), *flags]) == 0
    assert snapshot(tree) == once
    for path in patch_set.overlay:
        assert Tree(tree).read(path).data == patch_set.state(path, link=bool(flags)).data
    assert not any((tree / path).exists() for path in patch_set.removed)
    patched = {patch.path for patch in patch_set.patches(tag)}
    assert all(once[path] != before[path] for path in patched)
    ours = {*patch_set.overlay, *patch_set.removed, *patched}
    others = {path: state for path, state in before.items() if path not in ours}
    assert {path: once.get(path) for path in others} == others
    assert cli.run(["apply", "--tvm", str(tree), "--reverse"]) == 0
    assert snapshot(tree) == before


@pytest.mark.parametrize("real", RELAY_TREES, indirect=True)
def test_libinfo_tells_every_option(real):
    """TVM's own lint (tests/lint/check_cmake_options.py) wants just these lines."""
    _, tree = real
    cli.run(["apply", "--tvm", str(tree)])
    options = re.findall(r"tvm_option\((\S+) ", (tree / "CMakeLists.txt").read_text())
    assert "USE_DNNL_CODEGEN" in options
    told = (tree / "src/support/libinfo.cc").read_text()
    assert [o for o in options if f'      {{"{o}", TVM_INFO_{o}}},' not in told] == []
    given = (tree / "cmake/modules/LibInfo.cmake").read_text()
    assert [o for o in options if f'    TVM_INFO_{o}="${{{o}}}"' not in given] == []


def test_hunks_fit_at_one_place_where_they_say(real):
    """Git takes the nearest of several places: so there must not be another one."""
    name, tree = real
    patch_set = real_trees.patch_set_of(name)
    tag = patch_set.pinned if name == "wheel" else name
    for patch in patch_set.patches(tag):
        text = (tree / patch.path).read_text()
        parts = re.split(r"^@@ -(\d+),.*\n", patch.text, flags=re.MULTILINE)[1:]
        for line, hunk in zip(parts[::2], parts[1::2]):
            old = "".join(s[1:] for s in hunk.splitlines(True) if not s.startswith("+"))
            assert text.count(old) == 1, f"{patch.name}, line {line}"
            if tag == patch_set.pinned:
                assert text[: text.index(old)].count("\n") + 1 == int(line), patch.name


@pytest.mark.parametrize("tool", ["patch", "git"])
def test_other_tools_take_the_series_too(real, tool):
    """The patches are plain unified diffs: apply is convenient, but not the only way."""
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not on this machine")
    name, tree = real
    expected = shutil.copytree(tree, tree.with_name("expected"), symlinks=True)
    cli.run(["apply", "--tvm", str(expected)])
    patch_set = real_trees.patch_set_of(name)
    tag = patch_set.pinned if name == "wheel" else name
    commands = {"patch": ["patch", "-p1", "--fuzz=0"], "git": ["git", "apply", "-"]}
    for patch in patch_set.patches(tag):
        text = patch.text.encode()
        done = subprocess.run(commands[tool], cwd=tree, input=text, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert b"fuzz" not in done.stdout
        assert (tree / patch.path).read_bytes() == (expected / patch.path).read_bytes()


def test_hashes_are_those_of_the_release():
    hashes = real_trees.upstream_hashes()
    assert len(hashes) >= 17
    for path, sha256 in hashes.items():
        assert sha256 in PATCH_SET.upstream[path], path
