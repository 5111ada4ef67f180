# SPDX-License-Identifier: Apache-2.0
"""The patch set as this checkout holds it: overlay, patches, remove.list and the TVM versions."""

from __future__ import annotations

import email
import os
import re
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from scripts.errors import SetupError
from scripts.files import is_source
from scripts.layout import ROOT
from scripts.lint.text_rules import SHORT
from scripts.patchset.tree import ABSENT, STATE_DIR, State, Tree, file_state


class Kind(NamedTuple):
    """A kind of TVM tree: with Relay, or with Relax alone.

    Parameters
    ----------
    folder : str
        Where its patch set is.
    rows : tuple[str, ...]
        The first words of its lines in TVM_VERSION.
    version_files : dict[str, bytes]
        Where a tree says its version, and how; a release has the same in all of them.
    needed : tuple[str, ...]
        Other files that a tree has.
    config : str
        What users add to config.cmake.
    """

    folder: str
    rows: tuple[str, ...]
    version_files: dict[str, bytes]
    needed: tuple[str, ...]
    config: str


_DEFINED = rb'^ *# *define TVM_VERSION "([^"+]+)'
RELAY = Kind(
    "patches",
    ("pinned", "also"),
    {
        "version.py": rb'^__version__ = "([^"+]+)',
        "python/tvm/_ffi/libinfo.py": rb'^__version__ = "([^"+]+)',
        "include/tvm/runtime/c_runtime_api.h": _DEFINED,
    },
    ("CMakeLists.txt", "cmake/modules/LibInfo.cmake"),
    "set(USE_DNNL_CODEGEN ON)\nset(USE_DNNL /path/to/oneDNN)    # 3.2 or newer",
)
RELAX = Kind(
    "patches/relax",
    ("relax",),
    {"include/tvm/runtime/base.h": _DEFINED},
    ("CMakeLists.txt", "src/relax/backend/contrib/utils.cc"),
    "set(USE_DNNL /path/to/oneDNN)    # 3.2 or newer",
)


# The licence of tests in this checkout, as a comment of Python and of C++.
SHORT_HEADERS = [f"{mark} {SHORT}\n".encode() for mark in ("#", "//")]


class PatchError(Exception):
    """A patch that does not fit the file it names."""


def no_settings(folder: str) -> dict:
    """An environment in which git knows no settings, and no repository that is around a folder."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    parent = os.path.dirname(os.path.realpath(folder))
    env.update(HOME=folder, XDG_CONFIG_HOME=folder, GIT_CONFIG_NOSYSTEM="1", LC_ALL="C")
    return {**env, "GIT_CEILING_DIRECTORIES": parent}


@dataclass(frozen=True)
class Patch:
    """A patch of one file: its name in the series and its text."""

    name: str
    text: str

    @property
    def path(self) -> str:
        """The file that it patches."""
        match = re.search(r"^--- a/(.+)\n\+\+\+ b/\1\n@@ ", self.text, re.MULTILINE)
        if not match:
            raise SetupError(
                f"{self.name} does not change a file",
                "a patch has '--- a/PATH' and '+++ b/PATH' with the same PATH: other files come"
                " and go by overlay.list and remove.list.",
            )
        return match.group(1)

    @property
    def header(self) -> dict:
        """The fields before the diff."""
        return dict(email.message_from_string(self.text).items())

    def apply(self, data: bytes, *flags) -> bytes:
        """Apply the patch to the file's content; `-R` as a flag takes it back.

        git works on a copy in a folder of its own: inside a repository that a TVM tree may be, or
        lie in, `git apply` skips files without a word, and takes over the settings of its user.
        """
        with tempfile.TemporaryDirectory(prefix="dnnl-apply-") as name:
            folder = os.path.realpath(name)
            file = Path(folder, self.path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            command = ["git", "apply", "--whitespace=nowarn", *flags, "-"]
            try:
                done = subprocess.run(
                    command,
                    cwd=folder,
                    env=no_settings(folder),
                    input=self.text.encode(),
                    capture_output=True,
                )
            except FileNotFoundError:
                remedy = "install git and run this again."
                raise SetupError("the patches need git", remedy) from None
            if done.returncode == 0:
                return file.read_bytes()
        hint = ""
        if b"\r\n" in data:
            hint = "the file has CRLF line ends, check it out with LF; "
        elif "-R" not in flags and self._is_in(data):
            hint = "it is there already; "
        told = re.sub(r"\s+", " ", done.stderr.decode("utf-8", "replace")).strip()
        raise PatchError(f"{self.name}: does not fit {self.path} ({hint}git says: {told})")

    def _is_in(self, data):
        try:
            self.apply(data, "-R")
        except PatchError:
            return False
        return True


def read_list(path: Path) -> list:
    """Read the lines of a list file, less its comments."""
    lines = (line.split("#", 1)[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


class PatchSet:
    """All that `apply` brings to a tree.

    Parameters
    ----------
    root : Path
        The checkout. Tests pass a small one of their own.
    kind : Kind
        The kind of tree that it is for.

    Attributes
    ----------
    folder : Path
        Where its lists and patches are.
    commits : dict[str, str]
        The commit of each release or branch that it was made for.
    pinned : str
        The first of these.
    """

    def __init__(self, root: Path = ROOT, kind: Kind = RELAY):
        self.root, self.kind = root, kind
        self.folder = root / kind.folder
        versions = [line.split() for line in read_list(root / "TVM_VERSION")]
        versions = [words[1:] for words in versions if words[0] in kind.rows]
        self.commits = {tag: commit for tag, commit, *_ in versions}
        self.pinned = next(iter(self.commits))
        # The version that a tree states -> the tags; a release states its own.
        self._told: dict[str, list] = {}
        for tag, _, *told in versions:
            self._told.setdefault(told[0] if told else tag[1:], []).append(tag)
        self._rewrites = self._read_rewrites()
        self._headers = self._read_headers()
        self.overlay = self._find_overlay(read_list(self.folder / "overlay.list"))
        self.removed = read_list(self.folder / "remove.list")
        self.upstream: dict[str, set] = {}  # path in the tree -> the sha256 that TVM has there
        for line in read_list(self.folder / "upstream.sha256"):
            sha256, path = line.split(None, 1)
            self.upstream.setdefault(path, set()).add(sha256)
        both = sorted(set(self.overlay) & set(self.removed))
        if both:
            raise SetupError(
                f"{kind.folder}/remove.list names files that are in the overlay",
                f"take them out of {kind.folder}/remove.list: the overlay replaces them.",
                "\n".join(both),
            )

    @classmethod
    def of(cls, tree: Tree) -> PatchSet:
        """Return this checkout's patch set for the kind of tree that a tree is."""
        is_today = tree.read("python/tvm/relay").kind == "absent" and any(
            re.search(pattern, tree.read(path).data, re.MULTILINE)
            for path, pattern in RELAX.version_files.items()
        )
        return cls(kind=RELAX if is_today else RELAY)

    def _read_rewrites(self):
        """The pairs of texts of rewrite.list, if there is one."""
        path = self.folder / "rewrite.list"
        lines = path.read_text().splitlines() if path.is_file() else []
        return [line.split(" -> ") for line in lines if not line.startswith("#")]

    def _read_headers(self):
        """TVM's licence headers by the lines that they replace; none in a small checkout."""
        path = self.root / "patches" / "header.txt"
        header = path.read_bytes() if path.is_file() else b""
        lines = header.splitlines(keepends=True)
        in_c = b"".join([b"/*\n", *(b" *" + line[1:] for line in lines), b" */\n"])
        return dict(zip(SHORT_HEADERS, (header, in_c))) if header else {}

    def _rewritten(self, text: str) -> str:
        for old, new in self._rewrites:
            text = text.replace(old, new)
        return text

    def _find_overlay(self, entries):
        """Path in the tree -> file of the checkout."""
        left_out = tuple(entry[1:] + "/" for entry in entries if entry.startswith("!"))
        overlay = {}
        for base in (self.root / entry for entry in entries if not entry.startswith("!")):
            for source in [base] if base.is_file() else sorted(base.rglob("*")):
                path = source.relative_to(self.root).as_posix()
                if is_source(source) and not f"{path}/".startswith(left_out):
                    overlay[self._rewritten(path)] = source
        return overlay

    def state(self, path: str, link: bool) -> State:
        """What a path of the overlay or remove.list is to hold: our file, a link to it, nothing.

        A file that is rewritten for the tree cannot be a link. A copy has TVM's licence header.
        """
        if path in self.removed:
            return ABSENT
        source = self.overlay[path]
        data = source.read_bytes()
        if self._rewrites:
            data = self._rewritten(data.decode()).encode()
        if link and data == source.read_bytes():
            return State(stat.S_IFLNK | 0o777, os.fsencode(source.resolve()))
        for short, header in self._headers.items():
            if data.startswith(short):
                data = header + data[len(short) :]
        return file_state(data, executable=bool(source.stat().st_mode & 0o100))

    def objection(self, path: str, before: State, after: State, tag: str) -> str | None:
        """Say whose work would be lost if a path held another state, if it would.

        An empty file holds nothing that could be lost: such stubs are what a tree has whose files
        were emptied.
        """
        if before == ABSENT:
            return None
        if before.kind != "file":
            return "is not a plain file"
        if not before.data or before.key.split()[1] in self.upstream.get(path, ()):
            return None
        if before.key == after.key:
            return f"is ours already, but {STATE_DIR}/, which kept the original, is gone"
        if path in self.upstream:
            return f"was changed, it is not the file of TVM {tag}"
        return "is neither TVM's nor ours"

    def patches(self, tag: str) -> list:
        """Read the series for a tag, in order."""
        folder = self.folder
        patches = []
        for name in read_list(folder / "series"):
            files = [path for path in (folder / tag / name, folder / name) if path.is_file()]
            if not files:
                raise SetupError(
                    f"{self.kind.folder}/series names {name}, which is not there",
                    f"add the patch, or take its line out of {self.kind.folder}/series.",
                )
            patch = Patch(name, files[0].read_bytes().decode())
            if patch.path in self.overlay or patch.path in self.removed:
                raise SetupError(
                    f"{name} patches {patch.path}, which the overlay or remove.list deals with",
                    "a path is patched, replaced or removed, never two of them.",
                )
            patches.append(patch)
        return patches

    def tag_of(self, tree: Tree) -> str:
        """Tell which release of TVM a tree holds, from its files, without git."""
        if any(tree.read(path).kind != "file" for path in self.kind.needed):
            raise SetupError(
                f"{tree.root} is not a TVM source tree",
                "give --tvm the top folder of a TVM checkout, the one with CMakeLists.txt, cmake/"
                f" and src/: git clone --recursive --branch {self.pinned} of apache/tvm gives one.",
            )
        tags = {}
        for path, pattern in self.kind.version_files.items():
            match = re.search(pattern, tree.read(path).data, re.MULTILINE)
            if match:
                tags[path] = match.group(1).decode()
        versions = sorted(set(tags.values()))
        if len(versions) == 1 and versions[0] in self._told:
            return " or ".join(self._told[versions[0]])
        supported = ", ".join(sorted(self.commits))
        if len(versions) == 1:
            problem = f"{tree.root} is TVM {versions[0]}; the patch set is for {supported}"
        else:
            what = "the files disagree about" if versions else "cannot tell"
            problem = f"{what} the TVM version of {tree.root}"
        told = (f"{path}: {tags.get(path, 'no version')}" for path in self.kind.version_files)
        raise SetupError(
            problem,
            f"check it out again at one of {supported}, best {self.pinned}.",
            "\n".join(told),
        )
