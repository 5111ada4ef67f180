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
"""Compiles our C++ against the prebuilt tree."""

import os
import re
import shlex
import shutil

from scripts.errors import SetupError
from scripts.runner import tail
from scripts.setup import machine
from scripts.setup.stamps import Stamp, digest


def explain_build_failure(output, command, log):
    """Show the compiler's first errors rather than the last lines of the build."""
    if "No space left on device" in output:
        return SetupError("the disk is full", "free some space and run the same command again.")
    lines = output.splitlines()
    first = next(
        (i for i, line in enumerate(lines) if re.search(r"\berror:|^FAILED:|CMake Error", line)),
        None,
    )
    shown = "\n".join(lines[first : first + 40]) if first is not None else tail(output)
    return SetupError(f"`{shlex.join(command)}` failed", f"the whole log is {log}", shown)


class NativeBuild:
    """The CMake build directory of one checkout.

    Parameters
    ----------
    runner : Runner
        Runs the commands.
    layout : Layout
        The checkout.
    """

    def __init__(self, runner, layout):
        self.runner = runner
        self.layout = layout
        self.configured = Stamp(layout.cmake / ".configured")

    def configure_command(self):
        """Return CMake's command line."""
        layout = self.layout
        return [
            layout.bin / "cmake",
            "-G",
            "Ninja",
            "-S",
            layout.root,
            "-B",
            layout.cmake,
            "-DCMAKE_BUILD_TYPE=Release",
            f"-DCMAKE_MAKE_PROGRAM={layout.bin / 'ninja'}",
            f"-DCMAKE_CXX_COMPILER={machine.find_compiler()}",
            f"-DTVM_TREE={layout.tvm}",
            f"-DUSE_DNNL={layout.onednn}",
            f"-DUSE_DNNL_CODEGEN={layout.codegen.upper()}",
        ]

    def _configure_key(self):
        flags = [os.environ.get(name, "") for name in ("CXXFLAGS", "LDFLAGS")]
        build = self.layout.requirements
        trees = [build / "build.txt", build / "wheel-tvm.txt", build / "wheel-onednn.txt"]
        return digest(*map(str, self.configure_command()), *flags, *trees)

    def _sources(self):
        root = self.layout.root
        return [root / "CMakeLists.txt", root / "cmake", root / "src"]

    def _stamp(self, target):
        return Stamp(self.layout.cmake / f".built-{target}")

    def _build_key(self, target):
        sources = self._sources() + (
            [self.layout.root / "tests" / "cpp"] if "test" in target else []
        )
        return digest(self._configure_key(), *sources)

    def is_current(self, target="tvm_dnnl"):
        """Tell if a target was built from the present sources."""
        if target == "tvm_dnnl" and not self.layout.library.is_file():
            return False
        return self._stamp(target).matches(self._build_key(target))

    def build(self, target="tvm_dnnl"):
        """Configure if needed and build a target."""
        key = self._build_key(target)
        if not self.configured.matches(self._configure_key()):
            if not self.runner.dry_run:
                shutil.rmtree(self.layout.cmake, ignore_errors=True)
            self.runner.run(self.configure_command(), "cmake", explain=explain_build_failure)
            if not self.runner.dry_run:
                self.configured.write(self._configure_key())
        command = [self.layout.bin / "cmake", "--build", self.layout.cmake, "--target", target]
        self.runner.run(command, f"build-{target}", explain=explain_build_failure)
        if not self.runner.dry_run:
            self._stamp(target).write(key)
