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
"""The applier of unified diffs: strict, and of one mind with `patch` and `git apply`."""

import shutil
import subprocess

import pytest

from scripts.patchset import apply_diff

TEXT = b"a\nb\nc\nd\ne\n"


def diff(body, path="f.txt"):
    """A patch of one hunk or more."""
    return f"Subject: x\n\n--- a/{path}\n+++ b/{path}\n{body}".encode()


def run(body, text=TEXT):
    """Apply a patch to a text."""
    patch = apply_diff.parse("p", diff(body))
    return apply_diff.apply_file("p", patch.files[0], text)


CASES = {
    "add": ("@@ -2,2 +2,3 @@\n b\n+new\n c\n", b"a\nb\nnew\nc\nd\ne\n"),
    "remove": ("@@ -2,3 +2,2 @@\n b\n-c\n d\n", b"a\nb\nd\ne\n"),
    "change": ("@@ -2,3 +2,3 @@\n b\n-c\n+C\n d\n", b"a\nb\nC\nd\ne\n"),
    "two hunks": (
        "@@ -1,2 +1,3 @@\n a\n+1\n b\n@@ -4,2 +5,3 @@\n d\n+2\n e\n",
        b"a\n1\nb\nc\nd\n2\ne\n",
    ),
    "start": ("@@ -1,1 +1,2 @@\n+new\n a\n", b"new\na\nb\nc\nd\ne\n"),
    "end": ("@@ -5,1 +5,2 @@\n e\n+new\n", b"a\nb\nc\nd\ne\nnew\n"),
    "last newline goes": (
        "@@ -4,2 +4,2 @@\n d\n-e\n+e\n\\ No newline at end of file\n",
        b"a\nb\nc\nd\ne",
    ),
    "counts left out": ("@@ -5 +5 @@\n-e\n+E\n", b"a\nb\nc\nd\nE\n"),
}


@pytest.mark.parametrize("name", CASES)
def test_applies(name):
    body, expected = CASES[name]
    assert run(body) == expected


@pytest.mark.parametrize("name", CASES)
def test_reverses(name):
    body, expected = CASES[name]
    patch = apply_diff.parse("p", diff(body)).files[0].reversed()
    assert apply_diff.apply_file("p", patch, expected) == TEXT


@pytest.mark.parametrize("tool", ["patch", "git"])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with(tool, name, tmp_path):
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not on this machine")
    body, expected = CASES[name]
    (tmp_path / "f.txt").write_bytes(TEXT)
    command = {"patch": ["patch", "-p1", "--fuzz=0"], "git": ["git", "apply", "-"]}[tool]
    subprocess.run(command, input=diff(body), cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "f.txt").read_bytes() == expected


def test_moves_with_the_text():
    body, _ = CASES["add"]
    assert run(body, b"0\n0\n0\n" + TEXT) == b"0\n0\n0\na\nb\nnew\nc\nd\ne\n"


def test_other_bytes_survive():
    body, _ = CASES["add"]
    odd = b"\xef\xbc\x9a latin \xe9 lone \r return\n"
    assert run(body, odd + TEXT) == odd + b"a\nb\nnew\nc\nd\ne\n"


def test_no_fuzz():
    with pytest.raises(apply_diff.PatchError, match=r"p: does not fit f.txt near line 2"):
        run("@@ -2,2 +2,3 @@\n b\n+new\n X\n")


def test_whitespace_counts():
    with pytest.raises(apply_diff.PatchError, match="does not fit"):
        run("@@ -2,2 +2,3 @@\n b \n+new\n c\n")


def test_two_places_are_refused():
    with pytest.raises(apply_diff.PatchError, match=r"fits f.txt at lines 2, 7, want one place"):
        run("@@ -2,2 +2,3 @@\n b\n+new\n c\n", TEXT + TEXT)


def test_second_hunk_does_not_look_back():
    body = "@@ -3,1 +3,2 @@\n c\n+1\n@@ -4,1 +5,2 @@\n a\n+2\n"
    with pytest.raises(apply_diff.PatchError, match="does not fit"):
        run(body)


def test_says_when_it_is_there_already():
    body, expected = CASES["add"]
    with pytest.raises(apply_diff.PatchError, match="it is there already"):
        run(body, expected)


def test_says_when_line_ends_differ():
    with pytest.raises(apply_diff.PatchError, match="CRLF"):
        run(CASES["add"][0], TEXT.replace(b"\n", b"\r\n"))


def test_header():
    patch = apply_diff.parse(
        "p", b"Subject: s\nWhy: one\n two\nForwarded: no\n\n" + diff("@@ -1 +1 @@\n-a\n+b\n")
    )
    assert patch.header == {"Subject": "x", "Why": "one\ntwo", "Forwarded": "no"}


@pytest.mark.parametrize(
    "text, message",
    [
        (b"", "holds no diff"),
        (b"hello\n" + diff("@@ -1 +1 @@\n-a\n+b\n"), "not a header line"),
        (diff("@@ -1,3 +1,1 @@\n-a\n+b\n"), r"counts 3 and 1 lines, its body has 1 and 1"),
        (diff("@@ -0,0 +1,1 @@\n+b\n"), "could go anywhere"),
        (diff("@@ one @@\n"), "not a hunk header"),
        (diff(""), "no hunk for f.txt"),
        (b"--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+b\n", "want '--- a/PATH'"),
        (b"--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n", "want '--- a/PATH'"),
        (b"--- a/f\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n", "want '--- a/PATH'"),
        (diff("@@ -1 +1 @@\n-a\n+b\nGIT binary patch\n"), "want '--- a/PATH'"),
    ],
)
def test_bad_patch_is_refused(text, message):
    with pytest.raises(apply_diff.PatchError, match=message):
        apply_diff.parse("p", text)
