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
"""Runs `scripts.demo.demo`, `scripts.bench.bench` or another module in the prepared environment."""

import os

from scripts import options as shared
from scripts.exec import replace_process
from scripts.layout import Layout
from scripts.setup.environment import prepare, variables

# What commands need beside the usual packages.
GROUPS = {"bench": ("bench",), "profile": ("bench",)}


def main(argv):
    """Run a command's module: `argv` holds the names of both, then the arguments."""
    name, module = argv[:2]
    options, rest = shared.parse(argv[2:], own_help=False)
    rest = shared.take_tvm(rest)
    layout = Layout()
    runner = prepare(options, layout, extra_groups=GROUPS.get(name, ()))
    command = [str(layout.python), "-m", f"scripts.{module}", *rest]
    if options.dry_run:
        runner.show(command)
        return 0
    environ = variables(layout)
    # The working directory stays the caller's, so that relative paths mean what they say.
    environ["PYTHONPATH"] += os.pathsep + str(layout.root)
    return replace_process(command, environ)
