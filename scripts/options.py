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
"""Options that all subcommands share."""

from dataclasses import dataclass

from scripts.errors import SetupError
from scripts.layout import CODEGENS


@dataclass
class Options:
    """What `--dry-run`, `--no-build` and `--help` say."""

    dry_run: bool = False
    no_build: bool = False
    help: bool = False


def parse(argv, own_help=True):
    """Take the shared options out of a subcommand's arguments.

    Words after `--` are left alone: they belong to the command that is run.

    Parameters
    ----------
    argv : list of str
        The arguments.
    own_help : bool
        Take `-h` and `--help` as well.

    Returns
    -------
    Options, list of str
        The options, and the other arguments.
    """
    options = Options()
    rest = []
    for index, word in enumerate(argv):
        if word == "--":
            rest += argv[index:]
            break
        if word == "--dry-run":
            options.dry_run = True
        elif word == "--no-build":
            options.no_build = True
        elif own_help and word in ("-h", "--help"):
            options.help = True
        else:
            rest.append(word)
    return options, rest


def take_codegen(arguments):
    """Take `--codegen NAME`, or `--codegen=NAME`, out of a subcommand's arguments.

    Parameters
    ----------
    arguments : list of str
        The arguments.

    Returns
    -------
    str, list of str
        The name, one of CODEGENS, and the other arguments.
    """
    name, rest, words = CODEGENS[0], [], iter(arguments)
    for word in words:
        if word == "--":
            return name, [*rest, word, *words]
        if word == "--codegen" or word.startswith("--codegen="):
            name = word.partition("=")[2] or next(words, "")
            if name not in CODEGENS:
                raise SetupError(
                    f"--codegen: there is no {name!r}", f"use {' or '.join(CODEGENS)}."
                )
        else:
            rest.append(word)
    return name, rest
