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
"""The patch set as this checkout holds it: overlay, patches, remove.list and the TVM versions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from scripts.errors import SetupError
from scripts.layout import ROOT
from scripts.patchset import apply_diff
from scripts.patchset.apply_tree import State, file_state, link_state
from scripts.setup.stamps import is_source

# Where a TVM tree says its version; a release has the same in all three.
_VERSION_FILES = {
    "version.py": rb'^__version__ = "([^"]+)"',
    "python/tvm/_ffi/libinfo.py": rb'^__version__ = "([^"]+)"',
    "include/tvm/runtime/c_runtime_api.h": rb'^#define TVM_VERSION "([^"]+)"',
}


def read_list(path: Path) -> list:
    """Read the lines of a list file, less its comments."""
    lines = (line.split("#", 1)[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


@dataclass(frozen=True)
class Versions:
    """What TVM_VERSION holds.

    Parameters
    ----------
    pinned : str
        The tag that the patches are written on.
    commits : dict
        Commit by tag, for every tag that the series applies to.
    """

    pinned: str
    commits: dict

    @classmethod
    def read(cls, root: Path) -> Versions:
        pinned, commits = "", {}
        for line in read_list(root / "TVM_VERSION"):
            kind, tag, commit = line.split()
            commits[tag] = commit
            pinned = tag if kind == "pinned" else pinned
        return cls(pinned, commits)


@dataclass
class PatchSet:
    """All that `apply` brings to a tree.

    Parameters
    ----------
    root : Path
        The checkout. Tests pass a small one of their own.
    """

    root: Path = ROOT
    versions: Versions = field(init=False)
    overlay: dict = field(init=False)  # path in the tree -> file of the checkout
    removed: list = field(init=False)
    upstream: dict = field(init=False)  # path in the tree -> the sha256 that TVM has there

    def __post_init__(self):
        self.root = Path(self.root)
        patches = self.root / "patches"
        self.versions = Versions.read(self.root)
        self.overlay = self._find_overlay(read_list(patches / "overlay.list"))
        self.removed = read_list(patches / "remove.list")
        self.upstream = {}
        for line in read_list(patches / "upstream.sha256"):
            sha256, path = line.split(None, 1)
            self.upstream.setdefault(path, set()).add(sha256)
        both = sorted(set(self.overlay) & set(self.removed))
        if both:
            raise SetupError(
                "patches/remove.list names files that are in the overlay",
                "take them out of patches/remove.list: the overlay replaces them.",
                "\n".join(both),
            )

    def _find_overlay(self, entries):
        found = {}
        left_out = [entry[1:] for entry in entries if entry.startswith("!")]
        for entry in entries:
            if entry.startswith("!"):
                continue
            base = self.root / entry
            for source in [base] if base.is_file() else sorted(base.rglob("*")):
                path = source.relative_to(self.root).as_posix()
                if is_source(source) and not any(_under(path, out) for out in left_out):
                    found[path] = source
        return found

    def overlay_state(self, path: str, link: bool) -> State:
        """What the overlay puts at a path: a copy of our file, or a link to it."""
        source = self.overlay[path]
        if link:
            return link_state(str(source.resolve()))
        return file_state(source.read_bytes(), executable=bool(source.stat().st_mode & 0o100))

    def patches(self, tag: str) -> list:
        """Read the series for a tag, in order."""
        folder = self.root / "patches"
        found = []
        for name in read_list(folder / "series"):
            path = folder / tag / name
            if not path.is_file():
                path = folder / name
            if not path.is_file():
                raise SetupError(
                    f"patches/series names {name}, which is not there",
                    "add the patch, or take its line out of patches/series.",
                )
            try:
                patch = apply_diff.parse(name, path.read_bytes())
            except apply_diff.PatchError as error:
                raise SetupError(str(error), "mend the patch file.") from None
            for part in patch.files:
                if part.path in self.overlay or part.path in self.removed:
                    raise SetupError(
                        f"{name} patches {part.path}, which the overlay or remove.list deals with",
                        "a path is patched, replaced or removed, never two of them.",
                    )
            found.append(patch)
        return found

    def knows(self, path: str, state: State) -> bool:
        """Whether nobody's work is lost if this state of the path is replaced.

        An empty file holds nothing that could be lost: such stubs are what a tree has whose files
        were emptied.
        """
        if state.kind == "absent":
            return True
        if state.kind != "file":
            return False
        return not state.data or state.sha256 in self.upstream.get(path, ())


def _under(path, folder):
    return path == folder or path.startswith(folder + "/")


def tree_tag(read, root, versions: Versions) -> str:
    """Tell which release of TVM a tree holds, from its files, without git.

    Parameters
    ----------
    read : callable
        Gives the State of a path.
    root : Path
        The tree, for messages.
    versions : Versions
        The releases that are supported.

    Returns
    -------
    str
        The tag, such as "v0.19.0".
    """
    if read("CMakeLists.txt").kind != "file" or read("cmake/modules/LibInfo.cmake").kind != "file":
        raise SetupError(
            f"{root} is not a TVM source tree",
            "give --tvm the top folder of a TVM checkout, the one with CMakeLists.txt, cmake/ and"
            f" src/: git clone --recursive --branch {versions.pinned} of apache/tvm gives one.",
        )
    found = {}
    for path, pattern in _VERSION_FILES.items():
        match = re.search(pattern, read(path).data, re.MULTILINE)
        if match:
            # A development build adds its commit after a plus sign.
            found[path] = match.group(1).decode().split("+")[0]
    supported = ", ".join(sorted(versions.commits))
    if not found:
        raise SetupError(
            f"cannot tell the TVM version of {root}",
            "one of these should say it: " + ", ".join(_VERSION_FILES) + ". Check the tree out"
            f" again at one of {supported}.",
        )
    if len(set(found.values())) > 1:
        raise SetupError(
            f"the files of {root} disagree about its TVM version",
            f"check it out again at one of {supported}.",
            "\n".join(f"{version} in {path}" for path, version in found.items()),
        )
    tag = "v" + next(iter(found.values()))
    if tag not in versions.commits:
        raise SetupError(
            f"{root} is TVM {tag[1:]}; the patch set is for {supported}",
            f"check out one of these, best {versions.pinned}.",
        )
    return tag
