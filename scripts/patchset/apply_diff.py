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
"""Unified diffs, applied with zero fuzz.

Our own applier rather than `patch` or `git apply`: a user's machine may lack the first, the second
skips files without a word when the tree lies inside another repository, and both take the nearest
of several places where a hunk fits. Here a hunk must fit at exactly one place, wherever that is,
with every line of its context. That is what lets one patch serve several releases of TVM safely.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_NEWLINE = b"\\ No newline at end of file"


def _lines(text: bytes) -> list:
    return re.findall(rb"[^\n]*\n|[^\n]+", text)


class PatchError(Exception):
    """A patch that cannot be read, or that does not fit the file it names."""


@dataclass(frozen=True)
class Hunk:
    """One hunk: the lines that it wants to find, and the lines that it leaves."""

    line: int  # first line of `old` as the header says, from 1; only used in messages
    old: tuple
    new: tuple

    def reversed(self):
        return Hunk(self.line, self.new, self.old)


@dataclass(frozen=True)
class FilePatch:
    """All hunks for one file."""

    path: str
    hunks: tuple

    def reversed(self):
        return FilePatch(self.path, tuple(hunk.reversed() for hunk in self.hunks))


@dataclass(frozen=True)
class Patch:
    """A patch file: its text, its header fields and its file patches."""

    name: str
    source: bytes
    header: dict
    files: tuple


def parse(name: str, text: bytes) -> Patch:
    """Read a patch file.

    Parameters
    ----------
    name : str
        The patch's name in the series, for messages.
    text : bytes
        Header lines such as `Subject: ...` (continued by lines that begin with a space), then
        unified diffs that change existing files. Other files come and go by the overlay and by
        remove.list, so a diff that creates, deletes or renames is refused.
    """
    lines = _lines(text)
    at = 0
    header: dict[str, str] = {}
    field = None
    while at < len(lines) and not lines[at].startswith(b"--- "):
        line = lines[at].decode("utf-8").rstrip()
        if line.startswith(" ") and field:
            header[field] += "\n" + line[1:]
        elif ": " in line:
            field, value = line.split(": ", 1)
            header[field] = value
        elif line:
            raise PatchError(f"{name}:{at + 1}: not a header line: {line!r}")
        at += 1

    files = []
    while at < len(lines):
        path = _path(name, lines, at)
        at += 2
        hunks = []
        while at < len(lines) and lines[at].startswith(b"@@"):
            hunk, at = _parse_hunk(name, lines, at)
            hunks.append(hunk)
        if not hunks:
            raise PatchError(f"{name}:{at + 1}: no hunk for {path}")
        files.append(FilePatch(path, tuple(hunks)))
    if not files:
        raise PatchError(f"{name}: holds no diff")
    return Patch(name, text, header, tuple(files))


def _path(name, lines, at):
    old = lines[at].rstrip().decode("utf-8")
    new = lines[at + 1].rstrip().decode("utf-8") if at + 1 < len(lines) else ""
    match = re.fullmatch(r"--- a/(.+)", old)
    if not match or new != f"+++ b/{match.group(1)}":
        raise PatchError(
            f"{name}:{at + 1}: want '--- a/PATH' and '+++ b/PATH' with the same PATH,"
            f" found {old!r} and {new!r}"
        )
    return match.group(1)


def _parse_hunk(name, lines, at):
    match = _HUNK.match(lines[at])
    if not match:
        raise PatchError(f"{name}:{at + 1}: not a hunk header: {lines[at]!r}")
    where = at + 1
    want_old = int(match.group(2) or 1)
    want_new = int(match.group(4) or 1)
    old: list[bytes] = []
    new: list[bytes] = []
    at += 1
    while at < len(lines) and (len(old) < want_old or len(new) < want_new):
        line = lines[at]
        # Editors and mailers strip the space of an empty context line; git and patch take it too.
        mark, rest = (b" ", line) if line.strip(b"\r\n") == b"" else (line[:1], line[1:])
        if mark not in (b" ", b"-", b"+"):
            break
        if mark != b"+":
            old.append(rest)
        if mark != b"-":
            new.append(rest)
        at += 1
        if at < len(lines) and lines[at].startswith(_NO_NEWLINE):
            for side in (old,) if mark == b"-" else (new,) if mark == b"+" else (old, new):
                side[-1] = side[-1].rstrip(b"\r\n")
            at += 1
    if len(old) != want_old or len(new) != want_new:
        raise PatchError(
            f"{name}:{where}: the hunk's header counts {want_old} and {want_new} lines,"
            f" its body has {len(old)} and {len(new)}"
        )
    if not old:
        raise PatchError(f"{name}:{where}: a hunk without any context could go anywhere")
    return Hunk(int(match.group(1)), tuple(old), tuple(new)), at


def apply_file(name: str, patch: FilePatch, text: bytes) -> bytes:
    """Apply one file's hunks to the file's text; `name` is the patch's, for messages.

    Raises
    ------
    PatchError
        A hunk fits nowhere, or at more than one place.
    """
    lines = _lines(text)
    done: list[bytes] = []
    start = 0
    for hunk in patch.hunks:
        at = _locate(name, patch.path, hunk, lines, start)
        done += lines[start:at]
        done += hunk.new
        start = at + len(hunk.old)
    return b"".join(done + lines[start:])


def _locate(name, path, hunk, lines, start):
    size = len(hunk.old)
    wanted = list(hunk.old)
    places = [at for at in range(start, len(lines) - size + 1) if lines[at : at + size] == wanted]
    if len(places) == 1:
        return places[0]
    shown = b"".join(hunk.old).decode("utf-8", "replace").rstrip("\n")
    if places:
        numbers = ", ".join(str(at + 1) for at in places)
        raise PatchError(f"{name}: fits {path} at lines {numbers}, want one place only:\n{shown}")
    hint = ""
    if any(line.endswith(b"\r\n") for line in lines):
        hint = " (the file has CRLF line ends; check it out with LF)"
    elif _contains(lines, list(hunk.new)):
        hint = " (it is there already)"
    raise PatchError(
        f"{name}: does not fit {path} near line {hunk.line}{hint}; it wants to find\n{shown}"
    )


def _contains(lines, wanted):
    size = len(wanted)
    return any(lines[at : at + size] == wanted for at in range(len(lines) - size + 1))
