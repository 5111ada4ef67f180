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
"""The environment of the plug-in: `apache-tvm` as pip installs it, and the package `tvm_dnnl`.

It lies in build/relax, and is made when a command with --relax asks for it.
"""

from scripts.setup import steps, tree

GROUPS = ("relax", "relax-models", "build", "test", "report", "wheel-build")

# The package's own files, and what of python/ is for Relax: the folders of the checkout, and their
# places in the package's parent.
FOLDERS = {
    "scripts/plugin": "",
    "python/tvm/relax/backend/contrib": "tvm_dnnl/",
    "python/tvm/contrib": "tvm_dnnl/contrib/",
}


def contents(root):
    """Return the Python files of the package by their names beside it."""
    wanted = {}
    for folder, place in FOLDERS.items():
        wanted.update((place + name, path) for name, path in tree.sources(root / folder).items())
    return wanted


class Environment(steps.VirtualEnvironment):
    """Make build/relax/venv."""

    title = "virtual environment of the plug-in"

    def add_commands(self):
        pass  # TVM with Relax has no tvmc.


class CopyPackage(steps.CopyOverlay):
    """Copy the plug-in's Python to the package."""

    title = "package tvm_dnnl"

    def _overlay(self):
        def wanted():
            return contents(self.layout.root)

        return tree.Overlay(wanted, self.layout.plugin, lambda name: None)

    def run(self):
        if self.runner.plan(f"copy the package tvm_dnnl to {self.layout.plugin}"):
            return
        self._overlay().sync()


class CompilePlugin(steps.CompileLibrary):
    """Compile libtvm_dnnl_relax.so."""

    title = "compile libtvm_dnnl_relax.so"


class ImportPlugin(steps.SmokeTest):
    """Import the plug-in once."""

    title = "import tvm_dnnl"
    module = "tvm_dnnl"

    def tree(self):
        return self.layout.venv


def plan(runner, layout, extra_groups=(), compile_library=True):
    """Return the steps of set-up in their order."""
    all_steps = [
        steps.CheckMachine(runner, layout),
        Environment(runner, layout),
        steps.Packages(runner, layout, GROUPS + tuple(extra_groups)),
        steps.OneDNN(runner, layout),
        CopyPackage(runner, layout),
    ]
    build = [CompilePlugin(runner, layout), ImportPlugin(runner, layout)]
    return all_steps + (build if compile_library else [])
