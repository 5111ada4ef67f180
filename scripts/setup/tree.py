# SPDX-License-Identifier: Apache-2.0
"""The prebuilt TVM tree: unpacked, patched, and overlaid with our Python."""

import json
import re

from scripts.errors import SetupError
from scripts.files import is_source, write_atomically
from scripts.setup import wheels

# Files of the wheel that our overlay replaces as a whole. They are never unpacked.
REPLACED = ("tvm/relay/op/contrib/dnnl.py",)
# Those of patches/ that the prebuilt tree, which was on its way to v0.16, needs beside those of
# patches/prebuilt: they hook into Python files.
PATCHES = (
    "v0.16.0/driver/offer-dnnl-in-tvmc.patch",
    "driver/refuse-codegens-alone.patch",
    "ffi/list-global-functions-once.patch",
    "frontend/repair-onnx-converters.patch",
)


def patches(root):
    """Return the patches of the prebuilt tree in their order."""
    folder = root / "patches"
    return [*sorted((folder / "prebuilt").glob("*.patch")), *(folder / name for name in PATCHES)]


def patch(package, path):
    """Apply a patch to the Python file that a TVM source tree has below python/.

    Set-up must not need git, and this file is known to the byte: exact replacements will do.
    `package` is the directory that holds the package `tvm`.
    """
    head, *hunks = re.split(r"^@@ .*\n", path.read_text(), flags=re.MULTILINE)
    match = re.search(r"^--- a/python/(.+)$", head, re.MULTILINE)
    if match is None:
        raise SetupError(
            f"{path.name} names no file of python/", "a patch has '--- a/python/PATH' on a line."
        )
    name = match.group(1)
    file = package / name
    text = file.read_text()
    for lines in (hunk.splitlines(keepends=True) for hunk in hunks):
        old, new = ("".join(s[1:] for s in lines if s[0] != mark) for mark in "+-")
        if text.count(old) != 1:
            raise SetupError(
                f"{path.name}: does not fit {name} of the prebuilt tree",
                "the wheel is not the pinned one: remove build/ and run again.",
            )
        text = text.replace(old, new)
    file.write_text(text)


def unpack(wheel, folder, patches=()):
    """Unpack the wheel into a folder and patch it there."""
    wheels.unpack_tree(wheel, folder, skip=REPLACED)
    for path in patches:
        patch(folder, path)


def sources(folder):
    """Return the files below a folder that people wrote, by their names below it."""
    files = (path for path in folder.rglob("*") if is_source(path))
    return {path.relative_to(folder).as_posix(): path for path in files}


def for_relay(root):
    """Return what of a checkout's python/ goes into a tree with Relay, by name."""
    lines = (root / "patches" / "overlay.list").read_text().splitlines()
    left_out = tuple(line[1:] + "/" for line in lines if line.startswith("!"))
    files = sources(root / "python").items()
    return {name: path for name, path in files if not f"python/{name}".startswith(left_out)}


class Overlay:
    """Keeps copies of files in a tree up to date.

    `wanted` returns the files by their names in the tree `target`. `original` returns the bytes of
    a file that the tree had without us by its name, or None.
    """

    def __init__(self, wanted, target, original=lambda name: None):
        self._wanted = wanted
        self.target = target
        self.original = original
        self.manifest = target / ".overlay.json"

    def _known(self):
        try:
            return set(json.loads(self.manifest.read_text()))
        except (FileNotFoundError, ValueError):
            return set()

    def changes(self):
        """Return (names to copy, names to take away) without touching anything."""
        wanted = self._wanted()
        copy = []
        for name, path in sorted(wanted.items()):
            target = self.target / name
            if not target.is_file() or target.read_bytes() != path.read_bytes():
                copy.append(name)
        return copy, sorted(self._known() - set(wanted))

    def sync(self):
        """Copy what changed; remove what left the overlay, or put the wheel's file back."""
        wanted = self._wanted()
        copy, gone = self.changes()
        # Names are recorded before files change: an interrupted sync forgets none of them.
        names = json.dumps(sorted(self._known() | set(wanted)))
        write_atomically(self.manifest, names, parents=True)
        for name in copy:
            self._put(name, wanted[name].read_bytes())
        for name in gone:
            original = None if name in REPLACED else self.original(name)
            if original is None:
                (self.target / name).unlink(missing_ok=True)
            else:
                self._put(name, original)
        write_atomically(self.manifest, json.dumps(sorted(wanted)))
        return copy, gone

    def _put(self, name, data):
        write_atomically(self.target / name, data, parents=True)
