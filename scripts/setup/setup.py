# SPDX-License-Identifier: Apache-2.0
"""Prepares the environment under build/ and stops. Every other command does the same first."""

from scripts.layout import Layout
from scripts.setup.environment import prepare


def add_arguments(parser):
    """Add the command's options: it has none of its own."""


def main(args):
    """Prepare the environment."""
    layout = Layout()
    prepare(args, layout)
    if not args.dry_run:
        print(f"{layout.build} is up to date")
    return 0
