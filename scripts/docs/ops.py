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
"""Prints the table of the ops that oneDNN runs, and what is refused.

The table tells types, layouts and fusion.
"""

import sys

from scripts.console import Console
from scripts.files import write_atomically
from scripts.layout import ROOT

PATH = ROOT / "docs" / "supported_ops.md"


def add_arguments(parser):
    """Add the command's options."""
    parser.add_argument("--write", action="store_true", help="write it to docs/supported_ops.md")
    parser.add_argument("--run", action="store_true", help="run samples of each op, and compare")


def main(args):
    """Print or write the table; return the exit code."""
    # After the arguments are parsed: this imports tvm.
    from dnnl_tests.report import support

    console = Console()
    with console.step("ask the rules"):
        text = support.text()
    wrong = {}
    if args.run:
        with console.step("run samples of each op"):
            wrong = support.run(console.note)
    if args.write:
        PATH.parent.mkdir(exist_ok=True)
        write_atomically(PATH, text)
    else:
        print(text, end="")
    for name, what in wrong.items():
        print(f"FAILED: {name}: {what}", file=sys.stderr)
    return 1 if wrong else 0
