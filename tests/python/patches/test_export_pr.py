# SPDX-License-Identifier: Apache-2.0
"""`./dev.py export-pr`: the files that it writes give, by `git am`, what `apply` gives."""

import os
import shutil
import subprocess

import pytest
from small_tree import make_checkout, make_tvm, snapshot, write

from scripts import cli
from scripts.errors import SetupError
from scripts.patchset.patch_set import PatchSet

UTILS = "src/runtime/contrib/dnnl/dnnl_utils.cc"
IDENTITY = "[user]\n\tname = A Tester\n\temail = tester@example.org\n"

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not on this machine")


@pytest.fixture(autouse=True)
def identity(monkeypatch, tmp_path):
    """A user that git knows, and none of the settings of whoever runs the tests."""
    config = tmp_path / "gitconfig"
    config.write_text(IDENTITY)
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # a repository has settings, too


def git(folder, *args):
    done = subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def content(root):
    """Files of a tree, less those that git or apply keep beside them."""
    files = snapshot(root)
    return {
        name: state
        for name, state in files.items()
        if name.split("/")[0] not in (".git", ".dnnl-overlay") and state[0] != "folder"
    }


def run(tvm, checkout, out, *flags):
    return cli.run(["export-pr", "--tvm", str(tvm), "--out", str(out), *flags], PatchSet(checkout))


def am(repo, out):
    """Take a series as the command tells to."""
    files = map(str, sorted(out.iterdir()))
    git(repo, "am", "--keep-non-patch", "--empty=drop", "--quiet", *files)


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
        cli.run(["apply", "--tvm", str(tvm), *flags], PatchSet(checkout))
    before = snapshot(tvm)
    assert run(tvm, checkout, tmp_path / "out") == 0
    assert "git am" in capsys.readouterr().out
    assert snapshot(tvm) == before
    am(repo, tmp_path / "out")
    cli.run(["apply", "--tvm", str(tvm)], PatchSet(checkout))
    helper, tool = "python/tvm/testing/dnnl.py", "python/tvm/testing/prebuilt.py"
    assert (repo / helper).read_text() == "# our helpers\n"
    assert (tvm / helper).read_text() == "# our helpers\nimport prebuilt  # not for TVM\n"
    assert not (repo / tool).exists() and (tvm / tool).exists()
    mine, theirs = content(repo), content(tvm)
    assert set(mine) == set(theirs) - {tool}
    assert {path for path in mine if mine[path] != theirs[path]} == {helper}
    assert git(repo, "status", "--short") == ""


def test_one_commit_for_each_concern(tvm, checkout, repo, tmp_path):
    run(tvm, checkout, tmp_path / "out")
    am(repo, tmp_path / "out")
    log = git(repo, "log", "--reverse", "--format=%s", "HEAD~4..").splitlines()
    assert [line.split("]")[0] for line in log] == ["[DNNL", "[Runtime", "[CMake", "[Relay"]
    message = git(repo, "log", "-1", "--format=%B%n%an", "--grep=CMake")
    assert "Add the option. It is needed. Very much so." in message
    assert "A Tester" in message
    assert max(map(len, message.splitlines())) <= 72
    assert "It cannot be split." in git(repo, "log", "-1", "--format=%B", "--grep=Runtime")
    touched = git(repo, "log", "-1", "--format=", "--name-status", "--grep=old backend")
    assert touched.split() == ["D", UTILS, "D", "src/runtime/contrib/dnnl/old.h"]
    touched = git(repo, "log", "-1", "--format=", "--name-status", "--grep=Runtime")
    assert touched.split() == ["A", UTILS, "A", "src/runtime/contrib/dnnl/ops/conv.cc"]


def test_cover_letter(tvm, checkout, tmp_path):
    run(tvm, checkout, tmp_path / "out")
    text = (tmp_path / "out/0000-cover-letter.patch").read_text()
    assert "Subject: [PATCH 0/4] Support oneDNN 3\n" in text
    assert "\n\nOne paragraph.\n\n- a point\n- another one\n" in text
    assert "[CMake] Find oneDNN" in text and "CMakeLists.txt" in text


def test_settings_of_the_user_do_not_count(tvm, checkout, repo, tmp_path):
    (tmp_path / "hooks").mkdir()
    hook = tmp_path / "hooks/pre-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    with open(tmp_path / "gitconfig", "a") as config:
        config.write(
            f"[core]\n\thooksPath = {hook.parent}\n\tautocrlf = true\n"
            "[diff]\n\tnoprefix = true\n[commit]\n\tgpgSign = true\n"
        )
    run(tvm, checkout, tmp_path / "out")
    (tmp_path / "gitconfig").write_text(IDENTITY)
    am(repo, tmp_path / "out")


def test_check_writes_nothing(tvm, checkout, tmp_path, capsys):
    run(tvm, checkout, tmp_path / "out", "--check")
    rows = [row.split(maxsplit=5) for row in capsys.readouterr().out.splitlines()]
    files, tests, added, removed, subject = next(row[1:] for row in rows if row[0] == "2")
    assert subject == "[Runtime][DNNL] Rewrite the runtime"
    assert (files, tests, removed) == ("2", "0", "0") and int(added) > 0
    assert not (tmp_path / "out").exists()


def test_check_needs_no_tree(capsys):
    """The sizes of the series for Relax, of each commit and of each part."""
    assert cli.run(["export-pr", "--check"]) == 0
    commits, parts = capsys.readouterr().out.split("\n\n")
    sizes = [row.split(maxsplit=5)[:5] for row in commits.splitlines()[1:-1]]
    counts = [row.split(maxsplit=2)[:2] for row in parts.splitlines()[1:]]
    assert len(sizes) == sum(int(count) for count, _ in counts)
    total = sum(int(added) for *_, added, _ in sizes)
    assert total == sum(int(added) for _, added in counts) > 10_000
    assert "Remove the runtime for oneDNN 2" in commits


@pytest.mark.parametrize("flags", [[], ["--tvm", "tvm"], ["--out", "out"]], ids=" ".join)
def test_missing_folders_are_named(flags):
    with pytest.raises(SetupError, match="writes commits for a TVM source tree") as failure:
        cli.run(["export-pr", *flags])
    assert "--tvm DIR --out DIR" in str(failure.value)


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
    with pytest.raises(SetupError, match="git does not know who you are") as failure:
        run(tvm, checkout, tmp_path / "out")
    assert "user.email" in str(failure.value)
    assert not (tmp_path / "out").exists()
