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
"""Removes build/: the virtual environment, the trees and all that was compiled."""

import shutil

from scripts.console import Console
from scripts.errors import SetupError
from scripts.layout import Layout
from scripts.setup.lock import exclusive
from scripts.setup.steps import IN_USE


def add_arguments(parser):
    """Add the command's options: it has none of its own."""


def main(args):
    """Remove the build directory."""
    layout = Layout()
    if args.dry_run:
        print(f"rm -rf {layout.build}")
        return 0
    if layout.build.is_dir():
        clean(layout, Console())
    return 0


def clean(layout, console):
    """Remove what is in the build directory, but for the lock files.

    Who waits for a lock has its file open: with a new file of that name, two would hold it alone.
    """
    removed = layout.build / ".removed"
    with exclusive(layout.lock, console), exclusive(layout.in_use, console, IN_USE):
        try:
            if removed.exists():
                shutil.rmtree(removed)
            entries = set(layout.build.iterdir()) - {layout.lock, layout.in_use}
            removed.mkdir()
            for entry in entries:
                # First by its name: a kill leaves no half of what still has the stamp of all of it.
                entry.rename(removed / entry.name)
            shutil.rmtree(removed)
        except PermissionError as error:
            raise SetupError(
                f"cannot remove {error.filename}", "run as the owner of the checkout."
            ) from error
