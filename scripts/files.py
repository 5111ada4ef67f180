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
"""Files that are written as a whole or not at all."""

import contextlib
import os
import shutil
import stat
from pathlib import Path


def write_atomically(path, content):
    """Write a text or bytes: the file has the old content or the new, also on a full disk."""
    with replaced_at_end(path) as file:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())


@contextlib.contextmanager
def replaced_at_end(path):
    """Give a path to write to, with the suffix of a file that it then becomes.

    What is there and no regular file, such as /dev/stdout, is written as it is, and so is a file
    in a folder that takes no other.
    """
    # A link stays one.
    path = Path(os.path.realpath(path))
    is_special = path.exists() and not stat.S_ISREG(path.stat().st_mode)
    if is_special or not os.access(path.parent, os.W_OK):
        yield path
        return
    temporary = path.with_name(f".tmp{os.getpid()}-{path.name}")
    try:
        yield temporary
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
