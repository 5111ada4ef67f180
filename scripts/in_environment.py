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
"""Runs `scripts.demo`, `scripts.bench` or another module in the prepared environment."""

import os

from scripts import options as shared
from scripts.environment import prepare, variables
from scripts.errors import SetupError
from scripts.exec import replace_process
from scripts.layout import Layout

# What commands need beside the usual packages.
GROUPS = {"bench": ("bench",), "profile": ("bench",)}


def main(argv):
    """Run `python -m scripts.<argv[0]>` with the other arguments passed through."""
    name = argv[0]
    options, rest = shared.parse(argv[1:], own_help=False)
    rest = shared.take_tvm(rest)
    layout = Layout()
    if not (layout.root / "scripts" / f"{name}.py").is_file():
        raise SetupError(
            f"this checkout has no scripts/{name}.py, which `{name}` needs",
            "the command is listed but not part of this version.",
        )
    runner = prepare(options, layout, extra_groups=GROUPS.get(name, ()))
    command = [str(layout.python), "-m", f"scripts.{name}", *rest]
    if options.dry_run:
        runner.show(command)
        return 0
    environ = variables(layout)
    # The working directory stays the caller's, so that relative paths mean what they say.
    environ["PYTHONPATH"] += os.pathsep + str(layout.root)
    return replace_process(command, environ)
