# SPDX-License-Identifier: Apache-2.0
"""`./dev.py export-pr`: an offer becomes a branch, or an error says why not."""

import argparse
import subprocess
from pathlib import Path

import pytest
import real_trees
import small_tree

from scripts.errors import SetupError
from scripts.patchset import export_pr

FIRST = """\
Subject: Return two
Why: One is wrong.
 Two is right.
Forwarded: no

--- a/python/a.py
+++ b/python/a.py
@@ -1,1 +1,1 @@
-one
+two
--- a/tests/a.py
+++ b/tests/a.py
@@ -1,1 +1,2 @@
 test
+test two
"""
SECOND = FIRST.replace("two", "three").replace("one", "two")
SECOND = SECOND.replace("1,1 +1,2 @@\n test\n", "1,2 +1,3 @@\n test\n test two\n")


def git(folder, *args):
    """Run git in a folder; return what it prints."""
    command = ["git", "-C", folder, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """The author of commits."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.com")


@pytest.fixture
def tree(tmp_path):
    """A repository of TVM."""
    tree = tmp_path / "tvm"
    small_tree.write(tree, {"python/a.py": "one\n", "tests/a.py": "test\n"})
    git(tree, "init", "-q", "-b", "main")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "base")
    return tree


@pytest.fixture
def run(tmp_path, tree):
    """The command, with an offer of these patches."""

    def run(*patches, dry_run=False, base="HEAD"):
        folder = f"{export_pr.FOLDER}/offer"
        files = {f"{folder}/{number}.patch": text for number, text in enumerate(patches)}
        small_tree.write(tmp_path, {**files, f"{folder}/pull_request.md": "# Title\n"})
        args = argparse.Namespace(name="offer", tvm=str(tree), base=base, dry_run=dry_run)
        return export_pr.main(args, tmp_path)

    return run


def test_a_commit_per_patch(run, tree, capsys):
    assert run(FIRST, SECOND) == 0
    assert git(tree, "log", "--format=%s", "main..offers/offer").split("\n")[:2] == [
        "Return three",
        "Return two",
    ]
    message = git(tree, "log", "-1", "--format=%B", "offers/offer~")
    assert message == "Return two\n\nOne is wrong.\nTwo is right.\n\n"
    assert git(tree, "show", "offers/offer:python/a.py") == "three\n"
    # Neither the checkout nor its index is touched.
    assert git(tree, "status", "--porcelain") == "" and git(tree, "branch", "--show-current")
    text = capsys.readouterr().out
    assert "# Title" in text and "| Return two | 2 | 1 |" in text and "| all | 4 | 2 |" in text


def test_dry_run_writes_nothing(run, tree, capsys):
    objects = git(tree, "count-objects")
    assert run(FIRST, dry_run=True) == 0
    assert git(tree, "count-objects") == objects and git(tree, "branch", "--list", "offers/*") == ""
    assert "One is wrong.\nTwo is right." in capsys.readouterr().out


def test_refused(run, tree):
    with pytest.raises(SetupError, match="1.patch does not apply to") as error:
        run(FIRST, FIRST)
    assert "patch failed: python/a.py:1" in error.value.details
    with pytest.raises(SetupError, match="0.patch has no test"):
        run(FIRST.replace("/tests/", "/python/t/").split("--- a/python/t")[0])
    with pytest.raises(SetupError, match="git rev-parse failed"):
        run(FIRST, base="no-such")
    many = "".join(f"+{number}\n" for number in range(export_pr.MOST_LINES))
    with pytest.raises(SetupError, match="0.patch has 502 lines"):
        run(FIRST.replace("+1,2 @@", "+1,501 @@").replace("+test two\n", many))
    assert git(tree, "branch", "--list", "offers/*") == ""


def test_a_branch_is_kept(run):
    run(FIRST)
    with pytest.raises(SetupError, match="has a branch offers/offer already"):
        run(FIRST)


@pytest.mark.parametrize("name", export_pr.offers())
def test_headers(name):
    folder = export_pr.offers()[name]
    assert (folder / "pull_request.md").read_text().startswith("# [Relax]")
    for patch in export_pr.patches(folder):
        assert list(patch.header) == ["Subject", "Why", "Forwarded"], patch.name
        assert len(patch.header["Subject"]) <= 72 and patch.header["Subject"].startswith("[Relax]")


@pytest.mark.skipif(real_trees.TREES is None, reason="TVM_SOURCE_TREES is not set")
@pytest.mark.parametrize("name", export_pr.offers())
def test_applies_to_main(name, tmp_path):
    """The commits apply to TVM's main in order, and each alone."""
    tree = Path(real_trees.TREES, "main")
    if not (tree / ".git").exists():
        pytest.skip(f"{tree} is no git repository")
    args = argparse.Namespace(name=name, tvm=str(tree), base="HEAD", dry_run=True)
    assert export_pr.main(args) == 0
    for number, patch in enumerate(export_pr.patches(export_pr.offers()[name])):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        export_pr.Branch(tree, "HEAD", str(scratch), keep=False).commit(patch)
