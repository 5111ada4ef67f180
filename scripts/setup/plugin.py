# SPDX-License-Identifier: Apache-2.0
"""Installs the plug-in for Relax, which pip builds by pyproject.toml."""

import os

from scripts.files import Stamp, digest
from scripts.setup import machine, native
from scripts.setup.steps import CompileLibrary


def build_settings(layout):
    """Return what CMake is told, as settings of scikit-build-core."""
    definitions = {"CMAKE_CXX_COMPILER": machine.find_compiler(), **layout.definitions}
    launcher = machine.compiler_launcher(layout.root)
    if launcher:
        definitions["CMAKE_CXX_COMPILER_LAUNCHER"] = ";".join(launcher)
    settings = {f"cmake.define.{name}": value for name, value in definitions.items()}
    return {"build-dir": layout.cmake, **settings}


def pip_builds(layout, words, settings):
    """Return pip's command line that builds a package with the pinned ones of the environment."""
    command = [layout.python, "-m", "pip", *words, "--disable-pip-version-check", "--no-input"]
    command += ["--no-build-isolation", "--no-deps", "--no-index"]
    return command + [f"--config-settings={name}={value}" for name, value in settings.items()]


class InstallPlugin(CompileLibrary):
    """Install the plug-in like `pip install -e`: its Python files stay where they are."""

    title = "install tvm_dnnl"

    def stamp(self):
        return Stamp(self.layout.venv / ".plugin")

    def command(self):
        """Return the command that installs it."""
        words = ["install", "--force-reinstall", "-e", self.layout.root]
        return pip_builds(self.layout, words, build_settings(self.layout))

    def key(self):
        files = [self.layout.requirements / name for name in self.layout.pins]
        files.append(self.layout.root / "pyproject.toml")
        return digest(*map(str, self.command()), *files)

    def current(self):
        is_newer = native.is_newer(self.layout.library, self.layout.root)
        return is_newer and self.stamp().matches(self.key()) and not self.busy().exists()

    def build(self):
        if self.layout.core:
            native.NativeBuild(self.runner, self.layout.core).build("dnnl_core")
        self.runner.run(self.command(), "pip-plugin", explain=native.explain_build_failure)
        if not self.runner.dry_run:
            # pip keeps the time of the file that it has compiled, or not had to.
            os.utime(self.layout.library)
            self.stamp().write(self.key())
