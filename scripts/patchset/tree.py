# SPDX-License-Identifier: Apache-2.0
"""Changes to a tree of files that happen wholly or not at all, even when the process is killed.

`git apply`, `patch` and a checkout write file after file: killed between two of them, they leave a
tree that nobody can tell from an edited one. So a commit here first writes every new content into a
journal in the tree, then `undo.json`, which tells how to get back. Only then it touches the tree,
and only by renames, which need no disk space: the old file into the journal, the new one into its
place. Deleting `undo.json` ends the commit. Whoever finds an `undo.json`, the next run or this one
after an error, renames the old files back.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

from scripts.errors import SetupError

STATE_DIR = ".dnnl-overlay"
FORMAT = 2  # of the JSON files in it
_JOURNAL = STATE_DIR + "/journal"
_UNDO = _JOURNAL + "/undo.json"


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
        self._undone: dict[str, State] = {}  # what an interrupted commit changed, as it was before

    @classmethod
    def at(cls, name: str) -> Tree:
        """The tree that a user names."""
        root = Path(name).expanduser().resolve()
        if not root.is_dir():
            raise SetupError(
                f"there is no folder {root}", "give --tvm the top of a TVM source tree."
            )
        return cls(root)

    def get(self, path: str) -> State:
        """Read what a path holds."""
        full = self.root / path
        try:
            mode = os.lstat(full).st_mode
            if stat.S_ISLNK(mode):
                return State(mode, os.fsencode(os.readlink(full)))
            return State(mode, full.read_bytes() if stat.S_ISREG(mode) else b"")
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT

    def read(self, path: str) -> State:
        """Read what a path holds once an interrupted commit is undone."""
        return self._undone[path] if path in self._undone else self.get(path)

    def load(self, state: State) -> dict:
        """Read a JSON file of the state folder."""
        saved = json.loads(state.data)
        if saved["format"] != FORMAT:
            raise SetupError(
                f"{self.root / STATE_DIR} has the unknown format {saved['format']}",
                "another version of this project wrote it: run the command with that version.",
            )
        return saved

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
            self._undone = {path: self.get(old) for path, _, old in self._begun()}
            yield
        finally:
            os.close(handle)

    def interrupted(self) -> bool:
        """Whether a commit was interrupted."""
        return (self.root / _UNDO).exists()

    def recover(self) -> None:
        """Undo an interrupted commit."""
        if not self.interrupted():
            # Killed before the tree was touched, or after the commit was complete.
            self._discard_journal()
            return
        begun = self._begun()
        changed = [path for path, new, _ in begun if self.get(path).key not in (ABSENT.key, new)]
        if changed:
            raise SetupError(
                "files were changed after a run was interrupted, which this run has to undo",
                "move them out of the tree and run this again; it puts the tree right.",
                "\n".join(changed),
            )
        for path, _, old in reversed(begun):
            if self.get(old) != ABSENT:
                self._rename(old, path)
            elif self.get(path) != ABSENT:
                (self.root / path).unlink()
        os.sync()
        self._remove_empty(self.load(self.get(_UNDO))["made_dirs"])
        self._end()

    def commit(self, changes: dict, drop_dirs=()) -> None:
        """Make each path of `changes` hold its state, or on any error leave the tree as it was.

        The folders in `drop_dirs` go at the end if they are empty then.
        """
        changes = {path: new for path, new in changes.items() if self.get(path) != new}
        if not changes:
            return
        try:
            self._write_journal(changes)
            for number, (path, new) in enumerate(changes.items()):
                if self.get(path) != ABSENT:
                    os.replace(self.root / path, self.root / _JOURNAL / f"old-{number}")
                if new != ABSENT:
                    self._rename(f"{_JOURNAL}/new-{number}", path)
            os.sync()
            self._remove_empty(drop_dirs)
            self._end()
        except BaseException:
            self.recover()
            raise

    def missing_dirs(self, paths) -> list:
        """Folders that writing these paths would create, outermost first."""
        return [folder for folder in parents(paths) if not (self.root / folder).is_dir()]

    def _write_journal(self, changes):
        self._discard_journal()
        entries = [[path, self.get(path).kind, new.key] for path, new in changes.items()]
        undo = {"format": FORMAT, "made_dirs": self.missing_dirs(changes), "entries": entries}
        (self.root / _JOURNAL).mkdir(parents=True)
        for number, new in enumerate(changes.values()):
            self._store(f"{_JOURNAL}/new-{number}", new)
        self._store(_UNDO + ".draft", file_state(json.dumps(undo, indent=1).encode()))
        os.sync()  # for a power cut; a process that is killed loses nothing that it wrote
        self._rename(_UNDO + ".draft", _UNDO)
        os.sync()

    def _begun(self) -> list:
        """The changes of an interrupted commit: path, new key, where the old content is."""
        entries = self.load(self.get(_UNDO))["entries"] if self.interrupted() else []
        numbered = [(*entry, f"{_JOURNAL}/old-{n}") for n, entry in enumerate(entries)]
        return [
            (path, new, old)
            for path, kind, new, old in numbered
            if kind == "absent" or self.get(old) != ABSENT
        ]

    def _end(self):
        (self.root / _UNDO).unlink()
        # From here on the commit is complete; what is left over goes with the next run.
        with contextlib.suppress(OSError):
            self._discard_journal()

    def _discard_journal(self):
        self._undone = {}
        if (self.root / _JOURNAL).is_dir():
            shutil.rmtree(self.root / _JOURNAL)
        self._remove_empty([STATE_DIR])

    def _remove_empty(self, folders):
        for full in (self.root / folder for folder in sorted(folders, reverse=True)):
            # Somebody may have put a file of their own there: then the folder stays.
            if full.is_dir() and not full.is_symlink() and not any(full.iterdir()):
                full.rmdir()

    def _rename(self, old, new):
        (self.root / new).parent.mkdir(parents=True, exist_ok=True)
        os.replace(self.root / old, self.root / new)

    def _store(self, path, state):
        full = self.root / path
        if state.kind == "link":
            os.symlink(os.fsdecode(state.data), full)
        elif state.kind == "file":
            full.write_bytes(state.data)
            os.chmod(full, stat.S_IMODE(state.mode))
