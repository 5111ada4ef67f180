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
"""usage: ./dev.py docs [--blocks | --pages]

Runs every block of code of the documentation, then builds its pages in build/docs, in which no
warning and no broken link between pages is allowed. --blocks and --pages do only one of the two.
"""

import shutil

from scripts import options as shared
from scripts.docs import links
from scripts.errors import SetupError
from scripts.layout import Layout
from scripts.setup.environment import prepare, variables
from scripts.test.test import run_command

# What the pages show is made while they are built; the block with this command comes before.
TUTORIAL = ("apps/bring_your_own_codegen", "tutorial")


def build_tutorial(runner, layout, environ):
    """Build the plugin of the tutorial, whose example the pages run; return the exit code."""
    folder = layout.build / TUTORIAL[1]
    configure = [layout.bin / "cmake", "-G", "Ninja", "-S", layout.root / TUTORIAL[0], "-B", folder]
    build = [layout.bin / "cmake", "--build", folder]
    return any(run_command(runner, words, environ, layout.root) for words in (configure, build))


def main(argv):
    """Run the blocks and build the pages; return the exit code."""
    options, rest = shared.parse(argv)
    if options.help:
        print(__doc__, end="")
        return 0
    unknown = [word for word in rest if word not in ("--blocks", "--pages")]
    if unknown or len(rest) > 1:
        raise SetupError(
            f"docs takes no argument {(unknown or rest)[-1]}", "`./dev.py docs --help`"
        )
    layout = Layout()
    runner = prepare(options, layout, ("docs",))
    environ = variables(layout)
    source, target = layout.root / "docs", layout.build / "docs"
    failed = 0
    if "--pages" not in rest:
        words = [layout.python, "-m", "pytest", "-p", "scripts.docs.blocks", "docs"]
        failed = run_command(runner, words, environ, layout.root)
    if "--blocks" in rest:
        return failed
    failed = build_tutorial(runner, layout, environ) or failed
    if not options.dry_run:
        shutil.rmtree(target, ignore_errors=True)
    words = [layout.python, "-m", "sphinx", "-b", "html", "-E", "-W", "--keep-going", "-q"]
    words += ["-d", layout.build / "doctrees", source, target]
    code = run_command(runner, words, environ, layout.root)
    if options.dry_run or code:
        return code or failed
    broken = list(links.broken_links(target))
    for message in broken:
        print(message)
    print(f"{target / 'index.html'}: {len(list(target.rglob('*.html')))} pages")
    return 1 if broken else failed
