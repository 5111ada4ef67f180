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
"""`./dev.py export-pr`: the files that it writes give, by `git am`, what `apply` gives."""

import os
import shutil
import subprocess

import pytest
from small_tree import make_checkout, make_tvm, snapshot, write

from scripts.errors import SetupError
from scripts.patchset import apply, export_pr
from scripts.patchset.apply_patchset import PatchSet

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not on this machine")


@pytest.fixture(autouse=True)
def identity(monkeypatch, tmp_path):
    """A user that git knows, and none of the settings of whoever runs the tests."""
    config = tmp_path / "gitconfig"
    config.write_text("[user]\n\tname = A Tester\n\temail = tester@example.org\n")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path))


def git(folder, *args):
    done = subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def content(root):
    """Files of a tree, less those that git or apply keep beside them."""
    found = snapshot(root)
    return {
        name: state
        for name, state in found.items()
        if name.split("/")[0] not in (".git", ".dnnl-overlay") and state[0] != "folder"
    }


def run(tvm, checkout, out, *flags):
    return export_pr.main(["--tvm", str(tvm), "--out", str(out), *flags], PatchSet(checkout))


@pytest.fixture
def repo(tmp_path):
    """The small tree as a git repository, as `git clone` of TVM gives it."""
    root = make_tvm(tmp_path / "repo")
    git(root, "init", "--quiet", ".")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "TVM")
    return root


@pytest.mark.parametrize("state", ["pristine", "applied", "linked"])
def test_am_gives_what_apply_gives(state, tvm, checkout, repo, tmp_path, capsys):
    if state != "pristine":
        flags = ["--link"] if state == "linked" else []
        apply.main(["--tvm", str(tvm), *flags], PatchSet(checkout))
    before = snapshot(tvm)
    assert run(tvm, checkout, tmp_path / "out") == 0
    assert "git am" in capsys.readouterr().out
    assert snapshot(tvm) == before
    files = sorted((tmp_path / "out").iterdir())
    git(repo, "am", "--keep-non-patch", "--quiet", *map(str, files))
    apply.main(["--tvm", str(tvm)], PatchSet(checkout))
    assert content(repo) == content(tvm)
    assert git(repo, "status", "--short") == ""


def test_one_commit_for_each_concern(tvm, checkout, repo, tmp_path):
    run(tvm, checkout, tmp_path / "out")
    git(repo, "am", "--keep-non-patch", "--quiet", *map(str, sorted((tmp_path / "out").iterdir())))
    log = git(repo, "log", "--reverse", "--format=%s", "HEAD~3..").splitlines()
    assert [subject.split("]")[0] + "]" for subject in log] == ["[Runtime]", "[CMake]", "[Relay]"]
    message = git(repo, "log", "-1", "--format=%B%n%an", "--grep=CMake")
    assert "Add the option. It is needed. Very much so." in message
    assert "A Tester" in message
    assert max(map(len, message.splitlines())) <= 72
    touched = git(repo, "log", "-1", "--format=", "--name-status", "--grep=Runtime")
    assert "D\tsrc/runtime/contrib/dnnl/old.h" in touched
    assert "A\tsrc/runtime/contrib/dnnl/core/ops/conv.cc" in touched


def test_check_writes_nothing(tvm, checkout, tmp_path, capsys):
    run(tvm, checkout, tmp_path / "out", "--check")
    assert "[Runtime][DNNL] Rewrite the runtime for oneDNN 3: 3 files" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_full_folder_is_refused(tvm, checkout, tmp_path):
    write(tmp_path, {"out/0001-mine.patch": "mine"})
    with pytest.raises(SetupError, match="is there already"):
        run(tvm, checkout, tmp_path / "out")


def test_path_without_a_commit_is_named(tvm, tmp_path):
    checkout = make_checkout(tmp_path / "other")
    write(checkout, {"elsewhere/a.txt": "x", "patches/overlay.list": "elsewhere\n"})
    with pytest.raises(SetupError) as failure:
        run(tvm, checkout, tmp_path / "out")
    assert "elsewhere/a.txt" in str(failure.value)


def test_unknown_user_is_explained(tvm, checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.delenv("EMAIL", raising=False)
    with pytest.raises(SetupError, match="git commit failed") as failure:
        run(tvm, checkout, tmp_path / "out")
    assert "user.email" in str(failure.value)
    assert not (tmp_path / "out").exists()


def test_every_overlay_path_has_a_commit():
    patch_set = PatchSet()
    paths = [*patch_set.overlay, *patch_set.removed]
    for patch in patch_set.patches(patch_set.versions.pinned):
        paths += [part.path for part in patch.files]
    assert [path for path in paths if export_pr.commit_of(path) is None] == []
