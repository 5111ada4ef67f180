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
"""Prepares the environment and runs a command's module in it, by `python -m scripts`."""

import os

from scripts.errors import SetupError
from scripts.exec import replace_process
from scripts.layout import Layout, PluginLayout
from scripts.setup.environment import prepare
from scripts.setup.steps import PackageModels
from scripts.setup.variables import newer_onednn, variables

# Packages that commands need beside the usual ones.
GROUPS = {"bench": ("bench",), "profile": ("bench",)}
# With --relax these run beside Relay, and start a process beside the plug-in.
BOTH = ("bench", "profile")


def use_tree(folder):
    """Let TVM_HOME name the tree that --tvm names."""
    if not os.path.isdir(folder):
        raise SetupError(
            f"--tvm: there is no directory {folder!r}", "name the TVM tree that you built."
        )
    os.environ["TVM_HOME"] = os.path.abspath(folder)


def main(args, words):
    """Run the command of `args`, whose words are `words`, in the environment."""
    if args.tvm is not None:
        use_tree(args.tvm)
    layout, also = Layout(), []
    if getattr(args, "relax", False):
        layout, also = (layout, [PluginLayout()]) if args.command in BOTH else (PluginLayout(), [])
    more = [PackageModels] if getattr(args, "packages", False) else []
    # OpenVINO is measured, too.
    groups = GROUPS["bench"] if more and args.time else GROUPS.get(args.command, ())
    runner = prepare(args, layout, groups, more, also)
    words = [word for word in words if word not in ("--dry-run", "--no-build")]
    command = [str(layout.python), "-m", "scripts", args.command, *words]
    if args.dry_run:
        runner.show(command)
        return 0
    environ = variables(layout)
    if args.onednn_newer:
        environ = newer_onednn(layout, environ)
    # The working directory stays the caller's, so that relative paths mean what they say.
    environ["PYTHONPATH"] += os.pathsep + str(layout.root)
    return replace_process(command, environ)
