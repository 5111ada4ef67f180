# SPDX-License-Identifier: Apache-2.0
"""The commands of dev.py: a folder for each stage, and on top what they share.

A command is in the file that has its name. `add_arguments` declares its options, which needs the
standard library only: `--help` works before anything is prepared. `main` runs it.
"""
