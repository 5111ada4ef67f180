# SPDX-License-Identifier: Apache-2.0
"""The files of a tree, and changes to them that a killed run leaves to the next one to finish.

A change first stages every new content in the tree's state folder, so that a full disk is an error
before anything is touched. After that the tree changes by renames only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

from scripts.errors import SetupError

STATE_DIR = ".dnnl-overlay"
_STAGED = STATE_DIR + "/staged"


class State(NamedTuple):
    """The contents of a path: nothing, a file, or a symbolic link."""

    mode: int = 0  # as lstat gives it; 0 where there is nothing
    data: bytes = b""  # a file's content, a link's target

    @property
    def kind(self) -> str:
        names = {0: "absent", stat.S_IFREG: "file", stat.S_IFLNK: "link"}
        return names.get(stat.S_IFMT(self.mode), "folder")

    @property
    def key(self) -> str:
        """Equal for equal content. Permission bits do not count: nothing is lost with them."""
        return f"{self.kind} {hashlib.sha256(self.data).hexdigest()}"


ABSENT = State()


def file_state(data: bytes, executable: bool = False) -> State:
    """A file of ours, with the permission bits that git would give it."""
    return State(stat.S_IFREG | (0o755 if executable else 0o644), data)


def parents(paths) -> list:
    """The folders around some paths, outermost first."""
    folders = {str(folder) for path in paths for folder in Path(path).parents}
    return sorted(folders - {"."})


class Tree:
    """The files under one folder, named by relative paths with forward slashes."""

    def __init__(self, root):
        self.root = Path(root)

    @classmethod
    def at(cls, name: str) -> Tree:
        """The tree that a user names."""
        root = Path(name).expanduser().resolve()
        if not root.is_dir():
            raise SetupError(
                f"there is no folder {root}", "give --tvm the top of a TVM source tree."
            )
        return cls(root)

    def read(self, path: str) -> State:
        """Read what a path holds."""
        full = self.root / path
        try:
            mode = os.lstat(full).st_mode
            if stat.S_ISLNK(mode):
                return State(mode, os.fsencode(os.readlink(full)))
            return State(mode, full.read_bytes() if stat.S_ISREG(mode) else b"")
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT

    @contextlib.contextmanager
    def locked(self):
        """Keep a second run out of the tree for the length of a `with`."""
        handle = os.open(self.root, os.O_RDONLY)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                remedy = "wait for it to end and run this again."
                raise SetupError(f"another run is changing {self.root}", remedy) from None
            yield
        finally:
            os.close(handle)

    def missing_dirs(self, paths) -> list:
        """Folders that writing these paths would create, outermost first."""
        return [folder for folder in parents(paths) if not (self.root / folder).is_dir()]

    def write(self, changes: dict) -> None:
        """Make each path of `changes` hold its state, in their order."""
        changes = {path: new for path, new in changes.items() if self.read(path) != new}
        staged = {path: f"{_STAGED}/{number}" for number, path in enumerate(changes)}
        self._discard_staged()
        try:
            for path, new in changes.items():
                self._store(staged[path], new)
            for path, new in changes.items():
                if new == ABSENT:
                    (self.root / path).unlink()
                else:
                    (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(self.root / staged[path], self.root / path)
            if changes:
                os.sync()  # for a power cut; a process that is killed loses nothing that it wrote
        finally:
            self._discard_staged()

    def remove_empty(self, folders) -> None:
        """Remove those folders that are empty: somebody may have put a file of their own there."""
        for full in (self.root / folder for folder in sorted(folders, reverse=True)):
            if full.is_dir() and not full.is_symlink() and not any(full.iterdir()):
                full.rmdir()

    def _discard_staged(self):
        if (self.root / _STAGED).is_dir():
            shutil.rmtree(self.root / _STAGED)
        self.remove_empty([STATE_DIR])

    def _store(self, path, state):
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        if state.kind == "link":
            os.symlink(os.fsdecode(state.data), full)
        elif state.kind == "file":
            full.write_bytes(state.data)
            os.chmod(full, stat.S_IMODE(state.mode))
