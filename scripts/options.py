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

import os
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


def take(option, arguments):
    """Take `OPTION VALUE`, or `OPTION=VALUE`, out of a subcommand's arguments.

    Parameters
    ----------
    option : str
        For example ``"--codegen"``.
    arguments : list of str
        The arguments. Those after `--` are left alone.

    Returns
    -------
    str or None, list of str
        The last value that is given, None if there is none, and the other arguments.
    """
    value, rest, words = None, [], iter(arguments)
    for word in words:
        if word == "--":
            return value, [*rest, word, *words]
        if word == option or word.startswith(f"{option}="):
            value = word.partition("=")[2] or next(words, "")
        else:
            rest.append(word)
    return value, rest


def take_codegen(arguments):
    """Take `--codegen NAME` out of a subcommand's arguments.

    Returns
    -------
    str, list of str
        The name, one of CODEGENS, and the other arguments.
    """
    name, rest = take("--codegen", arguments)
    if name is not None and name not in CODEGENS:
        raise SetupError(f"--codegen: there is no {name!r}", f"use {' or '.join(CODEGENS)}.")
    return name or CODEGENS[0], rest


def take_tvm(arguments):
    """Take `--tvm DIR` out of a subcommand's arguments; TVM_HOME is DIR from then on.

    Returns
    -------
    list of str
        The other arguments.
    """
    tree, rest = take("--tvm", arguments)
    if tree is not None:
        if not os.path.isdir(tree):
            raise SetupError(
                f"--tvm: there is no directory {tree!r}", "name the TVM tree that you built."
            )
        os.environ["TVM_HOME"] = os.path.abspath(tree)
    return rest
