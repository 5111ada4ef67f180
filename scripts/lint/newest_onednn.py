# SPDX-License-Identifier: Apache-2.0
"""Compiles the C++ against the headers of the newest oneDNN that is supported."""

import json
import re

from scripts.errors import SetupError
from scripts.setup.native import NativeBuild


def newest_version(layout):
    """Return "major.minor" of the newest headers."""
    text = (layout.onednn_newest / "include/oneapi/dnnl/dnnl_version.h").read_text()
    return ".".join(re.findall(r"#define DNNL_VERSION_(?:MAJOR|MINOR)\s+(\d+)", text))


class NewestBuild(NativeBuild):
    """A build that stops at the objects: there is no library for the newest headers."""

    def __init__(self, runner, layout):
        definitions = {
            "USE_DNNL": layout.onednn_newest,
            "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
            # Each source includes what it uses.
            "CMAKE_DISABLE_PRECOMPILE_HEADERS": "ON",
            "DNNL_UNITY_BUILD": "OFF",
        }
        super().__init__(runner, layout, layout.build / "newest", "-O0 -Werror", definitions)

    def objects(self):
        """Return the targets of our sources; those of the tests are left out."""
        entries = json.loads((self.folder / "compile_commands.json").read_text())
        sources = f"{self.layout.root / 'src'}/"
        return [entry["output"] for entry in entries if entry["file"].startswith(sources)]


def check_compiles(runner, layout):
    """Yield the compiler's messages, if a source does not compile, or compiles with a warning."""
    # CMake looks for a library beside the headers. Nothing is linked with it.
    library = layout.onednn_newest / "lib" / "libdnnl.so"
    library.parent.mkdir(exist_ok=True)
    library.touch()
    build = NewestBuild(runner, layout)
    try:
        with build.alone():
            build.configure()
        build.build(*build.objects(), options=("-k", "0"))
    except SetupError as error:
        yield f"{error.details}\n{error.remedy}"
