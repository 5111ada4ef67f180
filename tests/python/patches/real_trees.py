# SPDX-License-Identifier: Apache-2.0
"""Real TVM trees for the tests: the source that a wheel carries, and checkouts if there are any.

The wheel in requirements/wheel-tvm-0.19.txt holds CMakeLists.txt, cmake/, src/, 3rdparty/, the
runtime's headers and the Python package of TVM v0.19.0. It is downloaded once into build/wheels and
laid out once in build/tvm-0.19.

Set TVM_SOURCE_TREES to a folder that holds TVM checkouts named after their tags (v0.16.0 ...,
v0.26.0, main) to run the same tests on these too.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from scripts.files import Stamp, digest
from scripts.layout import Layout
from scripts.patchset.patch_set import RELAX, RELAY, PatchSet
from scripts.setup import wheels

LAYOUT = Layout()
REQUIREMENTS = LAYOUT.requirements / "wheel-tvm-0.19.txt"
WHEEL_TREE = LAYOUT.build / "tvm-0.19"
TREES = os.environ.get("TVM_SOURCE_TREES")

# Folders of the wheel that lie at the top of a TVM tree; all others belong under python/tvm.
_TOP = ("3rdparty", "cmake", "configs", "include", "src")
_TOP_FILES = ("CMakeLists.txt", "libtvm.so", "libtvm_runtime.so")
# Large, and of no use for building the runtime.
_LEFT_OUT = re.compile(
    r"tvm/(3rdparty/(?!dlpack|dmlc-core|rang|picojson|libcrc)|golang|jvm|rust|web)"
)


# The Python files by which a tree is known, and those that the patches hook into.
PYTHON = (
    "python/tvm/_ffi/libinfo.py",
    "python/tvm/_ffi/registry.py",
    "python/tvm/driver/tvmc",
    "python/tvm/relay/frontend/onnx.py",
)
# All that the patch set touches, and what lies around it.
PARTS = (
    "CMakeLists.txt",
    "version.py",
    "cmake",
    "include/tvm/runtime/c_runtime_api.h",
    *PYTHON,
    "python/tvm/relay/op/contrib",
    "python/tvm/testing",
    "src/relay/backend",
    "src/runtime/const_loader_module.cc",
    "src/runtime/contrib",
    "src/support",
    "tests/python/contrib",
    "tests/python/relay/test_json_runtime.py",
)


# Those of a tree with Relax.
PARTS_OF_TODAY = (
    "CMakeLists.txt",
    "cmake",
    "include/tvm/runtime/base.h",
    "python/tvm/backend",
    "python/tvm/relax/backend",
    "src/relax/backend",
    "src/runtime/extra/contrib",
    "tests/python/relax",
)


def place(name: str) -> str:
    """Where a file of the wheel lies in a TVM tree."""
    inner = name.removeprefix("tvm/")
    if inner.split("/")[0] in _TOP or inner in _TOP_FILES:
        return inner
    return f"python/tvm/{inner}"


def wheel() -> Path:
    """Download the wheel if it is not there yet."""
    name, version, sha256 = wheels.pinned(REQUIREMENTS)[0]
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"

    def find():
        files = LAYOUT.wheels.glob(pattern)
        return [p for p in files if hashlib.sha256(p.read_bytes()).hexdigest() == sha256]

    if not find():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--python-version=311", "--require-hashes"]
        command += ["--platform=manylinux_2_28_x86_64", "-d", LAYOUT.wheels, "-r", REQUIREMENTS]
        subprocess.run(command, check=True)
    return find()[0]


def wheel_tree() -> Path:
    """Lay the wheel out as a TVM tree if that is not done yet."""
    upstream = PatchSet().upstream
    stamp = Stamp(WHEEL_TREE / ".stamp")
    key = digest(REQUIREMENTS, Path(__file__), *sorted(upstream))
    if stamp.matches(key):
        return WHEEL_TREE
    new = WHEEL_TREE.with_name(WHEEL_TREE.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    with zipfile.ZipFile(wheel()) as archive:
        for info in archive.infolist():
            if info.is_dir() or not info.filename.startswith("tvm/"):
                continue
            path = place(info.filename)
            if _LEFT_OUT.match(info.filename):
                continue
            target = new / path
            target.parent.mkdir(parents=True, exist_ok=True)
            # Nobody needs the text of the files that ours replace: empty ones do for all tests.
            target.write_bytes(b"" if path in upstream else archive.read(info))
    Stamp(new / ".stamp").write(key)
    wheels.replace_directory(new, WHEEL_TREE)
    return WHEEL_TREE


def upstream_hashes() -> dict:
    """The sha256 of those files in the wheel that ours replace."""
    upstream = PatchSet().upstream
    with zipfile.ZipFile(wheel()) as archive:
        names = [name for name in archive.namelist() if place(name) in upstream]
        return {place(name): hashlib.sha256(archive.read(name)).hexdigest() for name in names}


def patch_set_of(tree: str) -> PatchSet:
    """Return the patch set for a tree."""
    return PatchSet(kind=RELAX if tree in PatchSet(kind=RELAX).commits else RELAY)


def copy_of(tree: str, target: Path, parts=None) -> Path:
    """Copy parts of a tree ("wheel" or a tag), for a test to change."""
    source = wheel_tree() if tree == "wheel" else Path(TREES).expanduser() / tree
    if parts is None:
        parts = PARTS_OF_TODAY if patch_set_of(tree).kind is RELAX else PARTS
    for part in parts:
        if (source / part).is_dir():
            shutil.copytree(source / part, target / part, symlinks=True)
        elif (source / part).exists():
            (target / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / part, target / part)
    return target


def available() -> list:
    """The trees that tests can have."""
    trees = ["wheel"]
    if TREES:
        tags = [*sorted(PatchSet().commits), *PatchSet(kind=RELAX).commits]
        trees += [tag for tag in tags if (Path(TREES).expanduser() / tag).is_dir()]
    return trees
