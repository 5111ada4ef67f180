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
"""Shared by the benchmarks: options, files and threads."""

import os
import sys

from scripts import options
from scripts.errors import SetupError


def choose(option, text, rows):
    """Return the rows that a comma-separated option names; all of them if it is empty."""
    names = options.names(text)
    for name in names:
        if name not in rows:
            raise SetupError(f"--{option}: there is no {name!r}", f"there are {', '.join(rows)}.")
    return [row for name, row in rows.items() if not names or name in names]


def check_writable(path):
    """Find out before the measurements that a file cannot be written."""
    is_new = not os.path.exists(path)
    try:
        with open(path, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise SetupError(
            f"--json: cannot write {path}: {error.strerror}", "name another file."
        ) from error
    if is_new:
        os.unlink(os.path.realpath(path))


def limit_threads(threads):
    """Set the number of threads. Thread pools read this when their libraries are loaded."""
    if "tvm" in sys.modules:
        raise RuntimeError("threads must be set before tvm is imported")
    for variable in ("OMP_NUM_THREADS", "TVM_NUM_THREADS"):
        os.environ[variable] = str(threads)
