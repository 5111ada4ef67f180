# SPDX-License-Identifier: Apache-2.0
"""A patch goes onto a file strictly, whatever repository, settings or variables are around."""

import os
import subprocess

import pytest
from small_tree import snapshot

from scripts import cli
from scripts.errors import SetupError
from scripts.patchset.patch_set import Patch, PatchError

TEXT = b"a\nb\nc\nd\ne\nf\ng\nh\n"
ADD = "@@ -2,6 +2,7 @@\n b\n c\n d\n+new\n e\n f\n g\n"
ADDED = b"a\nb\nc\nd\nnew\ne\nf\ng\nh\n"


def diff(body, path="f.txt"):
    """A patch of one hunk or more."""
    return Patch("p", f"Subject: x\n\n--- a/{path}\n+++ b/{path}\n{body}")


CASES = {
    "add": (ADD, ADDED),
    "two hunks": (
        "@@ -1,2 +1,3 @@\n a\n+1\n b\n@@ -7,2 +8,3 @@\n g\n+2\n h\n",
        b"a\n1\nb\nc\nd\ne\nf\ng\n2\nh\n",
    ),
    "start": ("@@ -1,3 +1,4 @@\n+new\n a\n b\n c\n", b"new\n" + TEXT),
    "end": ("@@ -6,3 +6,4 @@\n f\n g\n h\n+new\n", TEXT + b"new\n"),
    "last newline goes": (
        "@@ -6,3 +6,3 @@\n f\n g\n-h\n+h\n\\ No newline at end of file\n",
        TEXT[:-1],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_there_and_back(name):
    body, expected = CASES[name]
    assert diff(body, "some/folder/f.txt").apply(TEXT) == expected
    assert diff(body, "some/folder/f.txt").apply(expected, "-R") == TEXT


@pytest.mark.parametrize("before", [b"0\n0\n0\n", b"\xef\xbc\x9a latin \xe9 lone \r return\n"])
def test_moves_with_the_text_and_keeps_other_bytes(before):
    assert diff(ADD).apply(before + TEXT) == before + ADDED
    assert diff(ADD).apply(before + ADDED, "-R") == before + TEXT


@pytest.mark.parametrize("wrong", [ADD.replace(" g\n", " X\n"), ADD.replace(" g\n", " g \n")])
def test_no_fuzz(wrong):
    with pytest.raises(PatchError, match=r"p: does not fit f.txt \(git says: .*f.txt:2"):
        diff(wrong).apply(TEXT)


def test_says_when_it_is_there_already():
    with pytest.raises(PatchError, match="it is there already"):
        diff(ADD).apply(ADDED)


def test_says_when_line_ends_differ():
    with pytest.raises(PatchError, match="CRLF"):
        diff(ADD).apply(TEXT.replace(b"\n", b"\r\n"))


def test_header():
    patch = Patch("p", "Subject: s\nWhy: one\n two\nForwarded: no\n\n" + diff(ADD).text[12:])
    assert patch.path == "f.txt"
    assert patch.header == {"Subject": "s", "Why": "one\n two", "Forwarded": "no"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        diff("").text,
        "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+b\n",
        "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n",
        "--- a/f\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n",
    ],
)
def test_patch_that_changes_no_file_is_refused(text):
    with pytest.raises(SetupError, match="p does not change a file"):
        Patch("p", text).apply(TEXT)


@pytest.mark.parametrize(
    "text, message",
    [
        (diff("@@ -1,3 +1,1 @@\n-a\n+b\n").text, "corrupt patch"),
        (diff(ADD).text + diff(ADD, "g.txt").text, "g.txt: No such file"),
    ],
)
def test_bad_patch_is_refused(text, message):
    with pytest.raises(PatchError, match=message):
        Patch("p", text).apply(TEXT)


def test_settings_of_the_user_do_not_count(tmp_path, monkeypatch):
    """`git apply` mends white space, or overlooks it, where its user has it so."""
    wishes = "[apply]\n\twhitespace = fix\n\tignoreWhitespace = change\n[core]\n\tautocrlf = true\n"
    (tmp_path / ".gitconfig").write_text(wishes)
    (tmp_path / ".gitattributes").write_text("* text eol=crlf\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / ".gitconfig"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    body = ADD.replace("+new\n", "+new \n")
    expected = ADDED.replace(b"new", b"new ")
    assert diff(body).apply(TEXT) == expected
    assert diff(body).apply(expected, "-R") == TEXT
    with pytest.raises(PatchError):
        diff(ADD).apply(TEXT.replace(b"b", b"b "))


def git_init(folder):
    folder.mkdir(exist_ok=True)
    subprocess.run(["git", "init", "--quiet", "."], cwd=folder, check=True)


def test_temporary_folder_inside_a_repository(tmp_path, monkeypatch):
    git_init(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert diff(ADD).apply(TEXT) == ADDED


@pytest.mark.parametrize("where", ["tarball", "checkout", "inside another", "ignored by another"])
def test_tree_inside_a_repository(where, tvm, patch_set):
    """There, `git apply` in the tree would skip what is not in its index without a word."""
    if where != "tarball":
        git_init(tvm if where == "checkout" else tvm.parent)
    if where == "ignored by another":
        (tvm.parent / ".gitignore").write_text("*\n")
    before = snapshot(tvm)
    cli.run(["apply", "--tvm", str(tvm)], patch_set)
    assert "option(DNNL)" in (tvm / "CMakeLists.txt").read_text()
    assert "DNNL" in (tvm / "cmake/modules/LibInfo.cmake").read_text()
    cli.run(["apply", "--tvm", str(tvm), "--reverse"], patch_set)
    assert snapshot(tvm) == before


def test_git_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="install git"):
        diff(ADD).apply(TEXT)
    assert os.environ["PATH"] == str(tmp_path)
