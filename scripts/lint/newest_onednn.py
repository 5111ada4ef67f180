# SPDX-License-Identifier: Apache-2.0
"""Compiles the C++ against the headers of the newest oneDNN that is supported."""

import re

from scripts.errors import SetupError
from scripts.setup.native import NativeBuild


def newest_version(layout):
    """Return "major.minor" of the newest headers."""
    text = (layout.onednn_newest / "include/oneapi/dnnl/dnnl_version.h").read_text()
    return ".".join(re.findall(r"#define DNNL_VERSION_(?:MAJOR|MINOR)\s+(\d+)", text))


class NewestBuild(NativeBuild):
    """A build that writes no code: there is no library for the newest headers.

    Several sources are read at once. That each includes what it uses is for cpplint and the usual
    build to tell. Warnings that need code, as of unused functions, are those of
    `tests/python/patches/test_runtime_only.py`.
    """

    TARGETS = ("dnnl_core_objs", "tvm_dnnl_objs", "tvm_dnnl_codegen_objs")
    # Optimized, as cpu_clones.h demands then that unity builds leave out the sources that need it.
    COMMAND = (
        "<CMAKE_CXX_COMPILER> <DEFINES> <INCLUDES> <FLAGS> -O1 -fsyntax-only -c <SOURCE>",
        "<CMAKE_COMMAND> -E touch <OBJECT>",
    )

    def __init__(self, runner, layout):
        definitions = {
            "USE_DNNL": layout.onednn_newest,
            "CMAKE_CXX_COMPILE_OBJECT": " && ".join(self.COMMAND),
            "CMAKE_DISABLE_PRECOMPILE_HEADERS": "ON",
            "DNNL_UNITY_BUILD": "ON",
        }
        super().__init__(runner, layout, layout.build / "newest", "-Werror", definitions)

    def check(self):
        """Have the compiler read all sources, also after an error."""
        self.build(*self.TARGETS, options=("-k", "0"))


def check_compiles(runner, layout):
    """Yield the compiler's messages, if a source does not compile, or compiles with a warning."""
    # CMake looks for a library beside the headers. Nothing is linked with it.
    library = layout.onednn_newest / "lib" / "libdnnl.so"
    library.parent.mkdir(exist_ok=True)
    library.touch()
    try:
        NewestBuild(runner, layout).check()
    except SetupError as error:
        yield f"{error.details}\n{error.remedy}"
