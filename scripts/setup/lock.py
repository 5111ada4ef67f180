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
"""Locks: one set-up of a checkout at a time, and none that takes away what others run in.

The kernel drops a lock when its last holder ends, however it ends, so it never goes stale.
"""

import contextlib
import fcntl
import os
from pathlib import Path


@contextlib.contextmanager
def exclusive(path, console, what="another set-up of this checkout"):
    """Hold the lock file alone while the body runs; wait for its holders, say for whom, how long.

    Parameters
    ----------
    path : Path
        The lock file, which is made if it is not there.
    console : Console
        Where the waiting is told.
    what : str
        What the holders do.
    """
    descriptor = _open(path)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.say(f"waiting for {what} ({_holders(descriptor) or 'an unknown process'})")
            with console.step("waiting", after=1.0):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# What this process holds together with others: the descriptors by path.
_SHARED: dict[Path, int] = {}


def share(path):
    """Hold the lock file together with others, until this process and all it starts have ended."""
    if path not in _SHARED:
        descriptor = _open(path)
        os.set_inheritable(descriptor, True)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _SHARED[path] = descriptor


def release(path):
    """Hold the lock file no longer together with others; processes that were started still do.

    Whoever is to hold it alone must do so first: a process waits for itself as well.
    """
    if path in _SHARED:
        os.close(_SHARED.pop(path))


def _open(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _holders(descriptor):
    """Name the processes that hold a lock file, as the kernel lists them."""
    inode = os.fstat(descriptor).st_ino
    names = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                names.append(f"process {fields[4]}{_command(fields[4])}")
    return ", ".join(names)


def _command(process):
    """Return what a process was started with, in brackets; nothing if that is unknown."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        return f" [{b' '.join(words).decode(errors='replace').strip()[:80]}]"
    return ""
