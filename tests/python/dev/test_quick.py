# SPDX-License-Identifier: Apache-2.0
"""Which tests `dev.py test --quick` runs: those of what changed."""

import subprocess

import pytest

from scripts.layout import ROOT
from scripts.test import quick

RELAY = "python/tvm/relay/op/contrib/_dnnl/"
SHARED = "python/tvm/contrib/onednn/"


def test_every_stage_is_in_a_rule():
    """A stage that no rule can choose would be tested by changes of itself only."""
    for place in (RELAY, SHARED):
        for folder in (ROOT / place).iterdir():
            if folder.is_dir() and folder.name != "__pycache__":
                assert quick.choose(ROOT, [f"{place}{folder.name}/x.py"])[0]
    for folder in (ROOT / "src").rglob("*"):
        if folder.is_dir():
            assert quick.choose(ROOT, [f"{folder.relative_to(ROOT)}/x.cc"])[1]


@pytest.fixture
def repository(tmp_path):
    def git(*words):
        name = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", tmp_path, *name, *words], check=True, capture_output=True)

    git("init", "-b", "main")
    for name in ("first", "second"):
        (tmp_path / name).write_text(name)
        git("add", ".")
        git("commit", "-m", name)
    return tmp_path, git


def test_what_changed(repository):
    root, git = repository
    assert quick.changed(root) == ["second"], "on main, what the last commit changed"
    (root / "new").write_text("")
    assert quick.changed(root) == ["new"]
    git("checkout", "-b", "branch")
    git("add", ".")
    git("commit", "-m", "new")
    (root / "first").write_text("other")
    assert quick.changed(root) == ["first", "new"], "since the branch left main"
    assert quick.changed(root, "HEAD") == ["first"]
