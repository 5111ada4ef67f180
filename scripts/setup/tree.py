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
"""The prebuilt TVM tree: unpacked, hooked to load our library, and overlaid with our Python."""

import json
import os
import re
import shutil

from scripts.errors import SetupError
from scripts.setup import wheels
from scripts.setup.stamps import is_source, write_atomic

HOOKED = "tvm/_ffi/base.py"
# Files of the wheel that our overlay replaces as a whole. They are never unpacked.
REPLACED = ("tvm/relay/op/contrib/dnnl.py",)
# Those of patches/ that the prebuilt tree, which was on its way to v0.16, needs too: they hook into
# Python files.
PATCHES = (
    "v0.16.0/driver/offer-dnnl-in-tvmc.patch",
    "frontend/repair-onnx-converters.patch",
)
# By file: lines of the wheel that are wrong, each with what it should be.
MENDED = {
    # Its RPC client sends three arguments where its server takes one, so `tvmc run` and remote
    # modules always failed.
    "tvm/rpc/server.py": (
        (
            "    def load_module(file_name):\n",
            '    def load_module(file_name, options="", cc=""):\n',
        ),
    ),
    # When Relay was imported, a cache that is not to be saved made a folder where Python was
    # started, and unpickled what it found there.
    "tvm/contrib/pickle_memoize.py": (
        (
            '        cache_dir = f".pkl_memoize_py{sys.version_info[0]}"\n',
            """        self.cache, self.dirty, self.save_at_exit = {}, False, save_at_exit
        if not save_at_exit:
            return
        cache_dir = f".pkl_memoize_py{sys.version_info[0]}"
""",
        ),
    ),
    "tvm/relay/frontend/onnx.py": (
        # A product with a matrix that is no constant, such as dequantized weights, became a
        # batch_matmul of rank 2. Releases of TVM write a dense.
        (
            "            output = _op.nn.batch_matmul(inputs[0], inputs[1], transpose_b=False)\n",
            """            if isinstance(inputs[1], relay.Constant):
                output = _op.nn.batch_matmul(inputs[0], inputs[1], transpose_b=False)
            else:
                a = flatten_to_nd(inputs[0], a_shape, 2)
                output = _op.nn.dense(a, _op.transpose(inputs[1]), out_dtype=out_dtype)
""",
        ),
        # A pool of rows became one of images, with padding for columns that are not there, or an
        # error where an attribute has its default. Releases of TVM have a pool of rows.
        (
            "        if len(input_shape) == 3:\n            input_shape = [*input_shape, 1]\n",
            "        if False:\n            input_shape = [*input_shape, 1]\n",
        ),
    ),
}

_ANCHOR_FUNCTION = "def _load_lib():\n"
_ANCHOR_LOAD = "    lib = ctypes.CDLL(lib_path[0], ctypes.RTLD_GLOBAL)\n"
_CALL = "    _load_dnnl_library()\n"
_FUNCTION = '''def _load_dnnl_library():
    """Open the oneDNN backend before any module collects the registered functions."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # Beside libtvm.so in an installed package, else where set-up builds it.
    path = os.path.join(package, "libtvm_dnnl.so")
    if not os.path.isfile(path):
        path = os.path.normpath(os.path.join(package, "..", "..", "lib", "libtvm_dnnl.so"))
    path = os.environ.get("TVM_DNNL_LIBRARY", path)
    if not os.path.isfile(path):
        sys.stderr.write(
            "warning: no oneDNN backend: %s is not there. Run `./dev.py setup`, or set "
            "TVM_DNNL_LIBRARY to libtvm_dnnl.so.\\n" % (path or "TVM_DNNL_LIBRARY is empty, so it")
        )
        return
    try:
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ImportError(
            "the oneDNN backend %s cannot be opened: %s. Is oneDNN's library on the library path "
            "(LD_LIBRARY_PATH), of the version that it was built with?" % (path, error)
        ) from error


'''


def add_hook(text):
    """Return the text of `tvm/_ffi/base.py` with the loading of our library added.

    Parameters
    ----------
    text : str
        The original text.

    Returns
    -------
    str
        The hooked text; the same text if it has the hook already.
    """
    if _FUNCTION in text and _CALL in text:
        return text
    text = replace_line(HOOKED, text, _ANCHOR_FUNCTION, _FUNCTION + _ANCHOR_FUNCTION)
    return replace_line(HOOKED, text, _ANCHOR_LOAD, _ANCHOR_LOAD + _CALL)


def replace_line(name, text, line, new):
    """Return the text of the wheel's file `name` with its only line `line` replaced."""
    if text.count(line) != 1:
        raise SetupError(
            f"{name} of the prebuilt tree has the line `{line.strip()}` "
            f"{text.count(line)} times, it should be there once",
            "the wheel is not the pinned one: remove build/ and run again.",
        )
    return text.replace(line, new)


def patch(package, path):
    """Apply a patch to the Python file that a TVM source tree has below python/.

    Set-up must not need git, and this file is known to the byte: exact replacements will do.

    Parameters
    ----------
    package : Path
        The directory that holds the package `tvm`.
    path : Path
        The patch.
    """
    head, *hunks = re.split(r"^@@ .*\n", path.read_text(), flags=re.MULTILINE)
    name = re.search(r"^--- a/python/(.+)$", head, re.MULTILINE).group(1)
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


def unpack(wheel, target, patches=()):
    """Unpack the wheel and hook it, beside `target` first, so that `target` is never half done."""
    new = target.with_name(target.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    wheels.unpack_tree(wheel, new, skip=REPLACED)
    base = new / HOOKED
    base.write_text(add_hook(base.read_text()))
    for name, lines in MENDED.items():
        file = new / name
        for line, mended in lines:
            file.write_text(replace_line(name, file.read_text(), line, mended))
    for path in patches:
        patch(new, path)
    return new


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

    Parameters
    ----------
    wanted : callable
        Gives the files by their names in the tree.
    target : Path
        The tree.
    original : callable
        Gives the bytes of a file that the tree had without us by its name, or None.
    """

    def __init__(self, wanted, target, original):
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
        if HOOKED in wanted:
            raise SetupError(f"the overlay must not hold {HOOKED}: set-up hooks it")
        copy, gone = self.changes()
        # Names are recorded before files change: an interrupted sync forgets none of them.
        write_atomic(self.manifest, json.dumps(sorted(self._known() | set(wanted))))
        for name in copy:
            self._put(name, wanted[name].read_bytes())
        for name in gone:
            original = None if name in REPLACED else self.original(name)
            if original is None:
                (self.target / name).unlink(missing_ok=True)
            else:
                self._put(name, original)
        write_atomic(self.manifest, json.dumps(sorted(wanted)))
        return copy, gone

    def _put(self, name, data):
        target = self.target / name
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(target.name + ".tmp")
        temporary.write_bytes(data)
        os.replace(temporary, target)
