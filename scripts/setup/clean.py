# SPDX-License-Identifier: Apache-2.0
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
