# SPDX-License-Identifier: Apache-2.0
"""The prebuilt tree: unpacking wheels, the hook in TVM's loader, and the overlay."""

import hashlib
import os
import pickle
import re
import subprocess
import sys
import zipfile

import pytest

from scripts.errors import SetupError
from scripts.layout import ROOT
from scripts.setup import tree, wheels

LOADER = '''import ctypes
import os
import sys
from types import SimpleNamespace

libinfo = SimpleNamespace(find_lib_path=lambda: [None])


def _load_lib():
    """Load libary by searching possible path."""
    lib_path = libinfo.find_lib_path()
    lib = ctypes.CDLL(lib_path[0], ctypes.RTLD_GLOBAL)
    return lib


_LIB = _load_lib()
'''


HOOKED = "tvm/_ffi/base.py"
HOOK = ROOT / "patches/prebuilt/load-dnnl-library.patch"


def hooked(package, text=LOADER):
    """Write a loader as TVM's package has it, and hook it; return its path."""
    path = package / HOOKED
    path.parent.mkdir(parents=True)
    path.write_text(text)
    tree.patch(package, HOOK)
    return path


@pytest.mark.parametrize("line", ["def _load_lib():\n", "    lib = ctypes.CDLL(lib_path[0], "])
def test_a_loader_without_the_anchor_is_an_error(tmp_path, line):
    with pytest.raises(SetupError, match="does not fit tvm/_ffi/base.py"):
        hooked(tmp_path, LOADER.replace(line, ""))


def run_loader(tmp_path, **environ):
    """Run a hooked loader as build/prebuilt/tvm/_ffi/base.py would run."""
    path = hooked(tmp_path / "prebuilt")
    return subprocess.run(
        [sys.executable, path], capture_output=True, text=True, env={"PATH": "", **environ}
    )


def test_the_hook_warns_when_the_library_is_missing(tmp_path):
    result = run_loader(tmp_path)
    assert result.returncode == 0
    assert f"{tmp_path}/lib/libtvm_dnnl.so is not there" in result.stderr
    assert "./dev.py setup" in result.stderr


def test_the_hook_opens_the_library_that_lies_beside_the_tree(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libtvm_dnnl.so").write_text("not a library")
    result = run_loader(tmp_path)
    assert result.returncode != 0
    path = f"{tmp_path}/lib/libtvm_dnnl.so"
    assert f"ImportError: the oneDNN backend {path} cannot be opened: {path}: file" in result.stderr
    assert "LD_LIBRARY_PATH" in result.stderr


@pytest.fixture
def overlay(tmp_path):
    """Return an overlay with one file, over a tree with two files of the wheel."""
    source, target = tmp_path / "python", tmp_path / "prebuilt"
    originals = {"tvm/a.py": b"wheel a", "tvm/b.py": b"wheel b", tree.REPLACED[0]: b"wheel old"}
    for name in ("tvm/a.py", "tvm/b.py"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(originals[name])
    (source / "tvm").mkdir(parents=True)
    (source / "tvm/a.py").write_text("ours a")
    return tree.Overlay(lambda: tree.sources(source), target, originals.get)


def source(overlay):
    return overlay.target.parent / "python"


def test_the_overlay_is_copied_and_then_up_to_date(overlay):
    assert overlay.changes() == (["tvm/a.py"], [])
    overlay.sync()
    assert (overlay.target / "tvm/a.py").read_text() == "ours a"
    assert overlay.changes() == ([], [])


def test_what_leaves_the_overlay_gives_way_to_the_wheels_file(overlay):
    (source(overlay) / "tvm/new").mkdir()
    (source(overlay) / "tvm/new/c.py").write_text("ours c")
    overlay.sync()
    (source(overlay) / "tvm/a.py").unlink()
    (source(overlay) / "tvm/new/c.py").unlink()
    assert overlay.changes() == ([], ["tvm/a.py", "tvm/new/c.py"])
    overlay.sync()
    assert (overlay.target / "tvm/a.py").read_text() == "wheel a"
    assert not (overlay.target / "tvm/new/c.py").exists()
    assert overlay.changes() == ([], [])


def test_a_file_of_the_wheel_that_ours_replaces_never_comes_back(overlay):
    ours = source(overlay) / tree.REPLACED[0]
    ours.parent.mkdir(parents=True)
    ours.write_text("ours")
    overlay.sync()
    ours.unlink()
    overlay.sync()
    assert not (overlay.target / tree.REPLACED[0]).exists()


def make_wheel(path, files):
    """Write a zip file with these names and contents."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


PATCH = """\
Subject: Add a line
Why: It is missing.
Forwarded: no

--- a/python/tvm/relay/x.py
+++ b/python/tvm/relay/x.py
@@ -1,2 +1,3 @@
 first
+second
 third
"""


def sides(path):
    """Return the name of a patched file, and the lines of the hunks before and after."""
    head, *hunks = re.split("^@@ .*\n", path.read_text(), flags=re.MULTILINE)
    lines = [line for hunk in hunks for line in hunk.splitlines(keepends=True)]
    old, new = ("".join(line[1:] for line in lines if line[0] != mark) for mark in "+-")
    return re.search("^--- a/python/(.+)$", head, re.MULTILINE).group(1), old, new


def test_a_tree_is_patched(tmp_path):
    (tmp_path / "a.patch").write_text(PATCH)
    ours = sorted((ROOT / "patches/prebuilt").glob("*.patch"))
    before, after = (
        {"tvm/relay/x.py": text} for text in ("first\nthird\n", "first\nsecond\nthird\n")
    )
    for name, old, new in map(sides, ours):
        before[name], after[name] = before.get(name, "") + old, after.get(name, "") + new
    wheel = make_wheel(tmp_path / "t.whl", before)
    new = tmp_path / "new"
    tree.unpack(wheel, new, [tmp_path / "a.patch", *ours])
    assert {name: (new / name).read_text() for name in after} == after


def test_no_patched_file_is_overlaid():
    patched = {sides(path)[0] for path in tree.patches(ROOT)}
    assert HOOKED in patched and not patched & set(tree.for_relay(ROOT))


def test_a_patch_that_does_not_fit_is_an_error(tmp_path):
    patch = tmp_path / "a.patch"
    patch.write_text(PATCH)
    wheel = make_wheel(tmp_path / "t.whl", {"tvm/relay/x.py": "third\n"})
    with pytest.raises(SetupError, match="a.patch: does not fit"):
        tree.unpack(wheel, tmp_path / "prebuilt", [patch])


def test_only_a_wheel_with_the_pinned_hash_counts_as_fetched(tmp_path):
    wheel = make_wheel(tmp_path / "some_tree-1.0-py3-none-any.whl", {"a": "b"})
    good = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert wheels._find(tmp_path, "some-tree", "1.0", good) == wheel
    assert wheels._find(tmp_path, "some-tree", "1.0", "0" * 64) is None
    assert wheels._find(tmp_path, "some-tree", "1.1", good) is None


def test_pins_must_have_a_version_and_a_hash(tmp_path):
    pins = tmp_path / "pins.txt"
    pins.write_text("# why\n\nsome-tree==1.0 --hash=sha256:" + "a" * 64 + "\n")
    assert wheels.pinned(pins) == [("some-tree", "1.0", "a" * 64)]
    pins.write_text("some-tree>=1.0\n")
    with pytest.raises(SetupError, match="not a pinned wheel"):
        wheels.pinned(pins)


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_an_import_has_nothing_to_do_with_the_folder_it_is_in(tmp_path):
    cache = (
        tmp_path / "kept/.pkl_memoize_py3/topi.nn.winograd_matrices.winograd_transform_matrices.pkl"
    )
    cache.parent.mkdir(parents=True)
    cache.write_bytes(pickle.dumps(Trap(tmp_path / "unpickled")))
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "kept"):
        command = [sys.executable, "-c", "from tvm import relay"]
        subprocess.run(command, cwd=tmp_path / folder, check=True)
    assert not list((tmp_path / "empty").iterdir()) and not (tmp_path / "unpickled").exists()
