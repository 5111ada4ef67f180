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
"""Changes to a tree of files that happen wholly or not at all, even when the process is killed.

A commit first writes every new content and a copy of every old one into a journal inside the tree,
then `undo.json`, which tells how to get back. Only then it touches the tree, and only by renames,
which need no disk space. Deleting `undo.json` ends the commit. Whoever finds an `undo.json` (the
next run, or this one after an error) renames the old contents back.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from scripts.errors import SetupError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

STATE_DIR = ".dnnl-overlay"
_JOURNAL = STATE_DIR + "/journal"
_UNDO = _JOURNAL + "/undo.json"


@dataclass(frozen=True)
class State:
    """What a path holds: nothing, a file, or a symbolic link."""

    kind: str  # "absent", "file", "link", or "other" for what this module never writes
    data: bytes = b""  # a file's content, a link's target
    mode: int = 0  # a file's permission bits

    def same(self, other: State) -> bool:
        """Whether both hold the same. Permission bits do not count: nothing is lost with them."""
        return (self.kind, self.data) == (other.kind, other.data)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def to_json(self) -> dict:
        return {"kind": self.kind, "sha256": self.sha256, "mode": self.mode}

    def matches(self, saved: dict) -> bool:
        """Whether this is the state that `to_json` described."""
        return (self.kind, self.sha256) == (saved["kind"], saved["sha256"])


ABSENT = State("absent")


def file_state(data: bytes, executable: bool = False) -> State:
    """A file of ours, with the permission bits that git would give it."""
    return State("file", data, 0o755 if executable else 0o644)


def link_state(target: str) -> State:
    """Describe a symbolic link."""
    return State("link", os.fsencode(target))


class Tree:
    """The files under one folder, named by relative paths with forward slashes."""

    def __init__(self, root):
        self.root = Path(root)

    def full(self, path: str) -> Path:
        return self.root.joinpath(*path.split("/"))

    def get(self, path: str) -> State:
        """Read what a path holds."""
        full = self.full(path)
        try:
            info = os.lstat(full)
            if stat.S_ISLNK(info.st_mode):
                return State("link", os.fsencode(os.readlink(full)))
            if stat.S_ISREG(info.st_mode):
                return State("file", full.read_bytes(), stat.S_IMODE(info.st_mode))
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        return State("other")

    @contextlib.contextmanager
    def locked(self):
        """Keep a second run out of the tree for the length of a `with`."""
        if fcntl is None:
            yield
            return
        handle = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise SetupError(
                f"another run is changing {self.root}", "wait for it to end and run this again."
            ) from None
        try:
            yield
        finally:
            os.close(handle)

    # The journal -----------------------------------------------------------------------------

    def interrupted(self) -> dict:
        """What an interrupted commit changes back: the state of each path before it began."""
        if not self.full(_UNDO).exists():
            return {}
        return {path: before for path, before, _, _ in self._undo_entries()[0]}

    def recover(self) -> bool:
        """Undo an interrupted commit. True if there was one."""
        if not self.full(_UNDO).exists():
            # Killed before the tree was touched, or after the commit was complete.
            self._discard_journal()
            return False
        entries, made_dirs = self._undo_entries()
        touched = [path for path, before, after, _ in entries if not self._is(path, before, after)]
        if touched:
            raise SetupError(
                "files were changed after a run was interrupted, which this run has to undo",
                "move them out of the tree and run this again; it puts the tree right.",
                "\n".join(touched),
            )
        for path, before, _, saved in reversed(entries):
            now = self.get(path)
            if now.same(before) and now.mode == before.mode:
                continue
            full = self.full(path)
            if before.kind == "absent":
                full.unlink()
            else:
                full.parent.mkdir(parents=True, exist_ok=True)
                os.replace(self.full(saved), full)
            _sync_dir(full.parent)
        self._remove_empty(made_dirs)
        self._end()
        return True

    def commit(self, changes: dict, drop_dirs=()) -> None:
        """Make each path hold its state, or on any error leave the tree as it was.

        Parameters
        ----------
        changes : dict
            State by path.
        drop_dirs : iterable of str
            Folders to remove at the end if they are empty then.
        """
        changes = {path: new for path, new in changes.items() if self.get(path) != new}
        if not changes:
            return
        try:
            self._write_journal(changes)
            for number, (path, new) in enumerate(changes.items()):
                full = self.full(path)
                if new.kind == "absent":
                    full.unlink()
                else:
                    full.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(self.full(f"{_JOURNAL}/new-{number}"), full)
            for folder in {self.full(path).parent for path in changes}:
                _sync_dir(folder)
            self._remove_empty(drop_dirs)
            self._end()
        except BaseException as error:
            try:
                self.recover()
            except OSError as another:
                raise SetupError(
                    f"{error}; and undoing what was done so far failed: {another}",
                    "see to the disk and run the same command again; it first puts the tree right.",
                ) from error
            raise

    def missing_dirs(self, paths) -> list:
        """Folders that writing these paths would create, outermost first."""
        found = set()
        for path in paths:
            parts = path.split("/")[:-1]
            for size in range(1, len(parts) + 1):
                folder = "/".join(parts[:size])
                if not self.full(folder).is_dir():
                    found.add(folder)
        return sorted(found)

    def _write_journal(self, changes):
        self._discard_journal()
        made_dirs = self.missing_dirs(changes)
        journal = self.full(_JOURNAL)
        journal.mkdir(parents=True)
        (journal.parent / ".gitignore").write_bytes(b"*\n")
        entries = []
        for number, (path, new) in enumerate(changes.items()):
            before = self.get(path)
            _store(self.full(f"{_JOURNAL}/new-{number}"), new)
            _store(self.full(f"{_JOURNAL}/old-{number}"), before)
            entries.append({"path": path, "before": before.to_json(), "after": new.to_json()})
        draft = journal / "undo.draft"
        text = json.dumps({"format": 1, "made_dirs": made_dirs, "entries": entries}, indent=1)
        _store(draft, State("file", text.encode(), 0o644))
        _sync_dir(journal)
        os.replace(draft, self.full(_UNDO))
        for folder in (journal, journal.parent, self.root):
            _sync_dir(folder)

    def _undo_entries(self):
        undo = json.loads(self.full(_UNDO).read_text())
        if undo["format"] != 1:
            raise SetupError(
                f"{self.full(_UNDO)} has the unknown format {undo['format']}",
                "a newer version of this project wrote it: run the command with that version.",
            )
        entries = []
        for number, entry in enumerate(undo["entries"]):
            path, saved = entry["path"], f"{_JOURNAL}/old-{number}"
            before = ABSENT
            if entry["before"]["kind"] != "absent":
                # Once renamed back into place, the path itself is the copy.
                before = self.get(saved)
                if before.kind == "absent":
                    before = self.get(path)
                if not before.matches(entry["before"]):
                    before = State("other")
            entries.append((path, before, entry["after"], saved))
        return entries, undo["made_dirs"]

    def _is(self, path, before, after):
        now = self.get(path)
        return before.kind != "other" and (now.same(before) or now.matches(after))

    def _end(self):
        self.full(_UNDO).unlink()
        # From here on the commit is complete; what is left over goes with the next run.
        with contextlib.suppress(OSError):
            _sync_dir(self.full(_JOURNAL))
            self._discard_journal()

    def _discard_journal(self):
        if self.full(_JOURNAL).is_dir():
            shutil.rmtree(self.full(_JOURNAL))
        folder = self.full(STATE_DIR)
        if folder.is_dir() and {item.name for item in folder.iterdir()} <= {".gitignore"}:
            (folder / ".gitignore").unlink(missing_ok=True)
            folder.rmdir()

    def _remove_empty(self, dirs):
        for folder in sorted(dirs, reverse=True):
            try:
                self.full(folder).rmdir()
            except OSError as error:
                # Somebody may have put a file of their own there: then the folder stays.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise


def _store(full, state):
    """Write a state under a name in the journal, on disk before anything relies on it."""
    if state.kind == "link":
        os.symlink(os.fsdecode(state.data), full)
    elif state.kind == "file":
        with open(full, "wb") as handle:
            handle.write(state.data)
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(full, state.mode)


def _sync_dir(folder):
    """Make renames in a folder survive a power cut, where the system can do that."""
    if os.name == "nt" or not os.path.isdir(folder):
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
