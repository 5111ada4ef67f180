# SPDX-License-Identifier: Apache-2.0
"""The variables of the commands that run in the environment, and the TVM tree that it is of."""

import os
from pathlib import Path

from scripts.errors import SetupError
from scripts.runner import prepend

LIBRARY_PLACES = ("build", "lib", "build/Release", "python/tvm")
# Variables that lead to a tree with Relay.
_OF_TREE = ("TVM_HOME", "TVM_LIBRARY_PATH", "TVM_DNNL_LIBRARY")


def tvm_home(environ=None):
    """Return the source-built TVM tree that TVM_HOME names, or None.

    A tree without Python files or without libtvm.so is an error here, before anything starts.
    """
    value = (os.environ if environ is None else environ).get("TVM_HOME", "").strip()
    if not value:
        return None
    home = Path(value).expanduser().absolute()
    if not (home / "python" / "tvm" / "__init__.py").is_file():
        raise SetupError(
            f"TVM_HOME={value} is not a TVM source tree: it has no python/tvm/__init__.py",
            "set TVM_HOME to the root of a TVM checkout, or unset it to use the prebuilt tree.",
        )
    find_libtvm(home)
    return home


def find_libtvm(home):
    """Return the directory of libtvm.so in a source-built tree."""
    for place in LIBRARY_PLACES:
        if (home / place / "libtvm.so").is_file():
            return home / place
    raise SetupError(
        f"TVM_HOME={home} has no libtvm.so (looked in {', '.join(LIBRARY_PLACES)})",
        "build it: in TVM_HOME, `mkdir -p build && cp cmake/config.cmake build && cd build && "
        "cmake .. && make -j`; or unset TVM_HOME to use the prebuilt tree.",
    )


def variables(layout, environ=None):
    """Return the environment variables of commands that run in the prepared environment."""
    environ = dict(os.environ if environ is None else environ)
    home = tvm_home(environ) if layout.has_tree else None
    if environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        # The checkout stays without bytecode. A process that finds none compiles all that it
        # imports of TVM, half of the time that it takes to start.
        environ["PYTHONPYCACHEPREFIX"] = str(layout.build / "pycache")
    for name in ("PYTHONHOME", *(() if layout.has_tree else _OF_TREE)):
        environ.pop(name, None)
    prepend(environ, "PATH", layout.bin)
    if not layout.has_tree:
        # Before any TVM that is on the caller's path.
        prepend(environ, "PYTHONPATH", layout.packages)
    prepend(environ, "PYTHONPATH", layout.report_page)
    # What the commands share with the tests: networks, random graphs, the table of ops.
    prepend(environ, "PYTHONPATH", layout.root / "tests" / "python" / "contrib")
    environ["VIRTUAL_ENV"] = str(layout.venv)
    if not layout.has_tree:
        prepend(environ, "PYTHONPATH", layout.root / "tests" / "python" / "relax")
        return environ
    prepend(environ, "PYTHONPATH", home / "python" if home else layout.prebuilt)
    # The tree's own libtvm.so, whatever else LD_LIBRARY_PATH or PATH may offer.
    environ["TVM_LIBRARY_PATH"] = str(find_libtvm(home) if home else layout.tvm)
    if layout.native != layout.build:
        environ["TVM_DNNL_LIBRARY"] = str(layout.library)
    return environ


def newer_onednn(layout, environ):
    """Return the variables with which a process opens the newer library of oneDNN."""
    first = [str(layout.onednn_newer / "lib"), *filter(None, [environ.get("LD_LIBRARY_PATH")])]
    return {**environ, "LD_LIBRARY_PATH": os.pathsep.join(first)}
