# SPDX-License-Identifier: Apache-2.0
"""A small TVM-like tree and a small patch set, for tests that need no download."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

FILES = {
    "version.py": '__version__ = "0.19.0"\n',
    "python/tvm/_ffi/libinfo.py": '# current version\n__version__ = "0.19.0"\n',
    "CMakeLists.txt": "project(tvm)\noption(A)\noption(B)\noption(C)\n",
    "cmake/modules/LibInfo.cmake": 'A="${A}"\nB="${B}"\n',
    "cmake/modules/contrib/DNNL.cmake": "# TVM's own\n",
    "src/runtime/contrib/dnnl/dnnl_utils.cc": "// TVM's own utils\n",
    "src/runtime/contrib/dnnl/old.h": "// TVM's own header\n",
    "src/runtime/module.cc": "// nothing of ours\n",
    "tests/run.sh": "#!/bin/sh\n",
}
EXECUTABLE = ("tests/run.sh", "src/runtime/contrib/dnnl/old.h")

OVERLAY = {
    "cmake/modules/contrib/DNNL.cmake": "# ours\n",
    "src/runtime/contrib/dnnl/dnnl_utils.cc": "// our utils\n",
    "src/runtime/contrib/dnnl/ops/conv.cc": "// our convolution\n",
    "python/tvm/testing/dnnl.py": "# our helpers\nimport prebuilt\n",
    "python/tvm/testing/prebuilt.py": "# a tool of ours\n",
}

OPTION_PATCH = """\
Subject: Add the option
Why: It is needed.
 Very much so.
Forwarded: no

--- a/CMakeLists.txt
+++ b/CMakeLists.txt
@@ -2,2 +2,3 @@
 option(A)
+option(DNNL)
 option(B)
"""

LIBINFO_PATCH = """\
Subject: Tell the option
Why: People look there.
Forwarded: no

--- a/cmake/modules/LibInfo.cmake
+++ b/cmake/modules/LibInfo.cmake
@@ -1,2 +1,3 @@
 A="${A}"
+DNNL="${DNNL}"
 B="${B}"
"""


def scratch_folder():
    """A folder for trees that are made and thrown away by the hundred: in memory if possible."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2**29
    place = memory if roomy and os.access(memory, os.W_OK) else None
    return tempfile.TemporaryDirectory(dir=place, prefix="dnnl-patches-")


def write(root: Path, files: dict) -> None:
    """Write files by relative path."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def snapshot(root: Path) -> dict:
    """Everything about a tree but its times: content, links, modes and empty folders."""
    contents = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = Path(folder, name)
            if path.is_symlink():
                held = ("link", os.readlink(path))
            elif path.is_dir():
                held = ("folder", "")
            else:
                held = ("file", hashlib.sha256(path.read_bytes()).hexdigest())
            contents[path.relative_to(root).as_posix()] = (*held, oct(path.lstat().st_mode))
    return contents


def make_tvm(root: Path, version: str = "0.19.0") -> Path:
    """Lay out the small TVM-like tree."""
    files = {name: text.replace("0.19.0", version) for name, text in FILES.items()}
    write(root, files)
    for name in EXECUTABLE:
        (root / name).chmod(0o755)
    (root / "docs").symlink_to("src")
    return root


def make_checkout(root: Path) -> Path:
    """Lay out a small checkout of this project."""
    write(root, OVERLAY)
    known = [name for name in FILES if "contrib/dnnl" in name or name.endswith("DNNL.cmake")]
    hashes = (hashlib.sha256(FILES[name].encode()).hexdigest() + "  " + name for name in known)
    write(
        root,
        {
            "TVM_VERSION": "# pin\npinned v0.19.0 1234\nalso   v0.18.0 5678\n",
            "patches/series": "cmake/add-option.patch\ncmake/tell-option.patch\n",
            "patches/cmake/add-option.patch": OPTION_PATCH,
            "patches/cmake/tell-option.patch": LIBINFO_PATCH,
            "patches/remove.list": "src/runtime/contrib/dnnl/old.h  # ours has another name\n",
            "patches/overlay.list": "cmake/modules/contrib\nsrc\npython\n",
            "patches/upstream.sha256": "\n".join(hashes) + "\n",
            "README.md": "not for the tree\n",
        },
    )
    return root
