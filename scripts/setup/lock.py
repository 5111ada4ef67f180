# SPDX-License-Identifier: Apache-2.0
"""Locks: one set-up of a checkout at a time, and none that takes away what others run in.

The kernel drops a lock when its last holder ends, however it ends, so it never goes stale.

Their order is that of set-up, that of an environment in use, that of a build directory. Who waits
for one must hold none after it in this order, or two could wait for each other.
"""

import contextlib
import fcntl
import os
import re
from pathlib import Path

from scripts.errors import SetupError

# The descriptors that this process has locked, alone or together with others.
_HELD: set[int] = set()


@contextlib.contextmanager
def exclusive(path, console, what="another set-up of this checkout"):
    """Hold the lock file alone while the body runs; wait for its holders, say for whom, how long.

    Commands that are started with `pass_fds=held()` hold it, too: if this process is killed, the
    next one waits for what it has left running.

    Parameters
    ----------
    path : Path
        The lock file, which is made if it is not there.
    console : Console
        Where the waiting is told.
    what : str
        What the holders do.

    Raises
    ------
    SetupError
        If this process, or one that it runs in, holds the lock, and so would wait for itself.
    """
    descriptor = _open(path)
    try:
        _lock(descriptor, fcntl.LOCK_EX, console, what)
        _HELD.add(descriptor)
        yield
    finally:
        _HELD.discard(descriptor)
        os.close(descriptor)


# Locks that this process shares with others: the descriptors by path.
_SHARED: dict[Path, int] = {}


def share(path, console):
    """Hold the lock file together with others, until this process and all it starts have ended."""
    if path not in _SHARED:
        descriptor = _open(path)
        os.set_inheritable(descriptor, True)
        _lock(descriptor, fcntl.LOCK_SH, console, "a set-up that replaces this environment")
        _SHARED[path] = descriptor


def release(path):
    """Hold the lock file no longer together with others; processes that were started still do.

    Whoever is to hold it alone must do so first: a process waits for itself as well.
    """
    if path in _SHARED:
        os.close(_SHARED.pop(path))


def held():
    """Return the descriptors of the lock files that this process holds alone."""
    return tuple(_HELD)


def _open(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _lock(descriptor, how, console, what):
    """Lock a file; if others hold it, wait for them, and say so."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        holders = _holders(descriptor)
    # `./dev.py exec` sets the variable: what it has started holds the lock.
    file = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    if file.name == ".in-use" and file.parent in Path(os.environ.get("VIRTUAL_ENV", "")).parents:
        raise SetupError(
            "this command would replace the environment that it was started in",
            "leave the shell or program that `./dev.py exec` has started, and run it outside.",
        )
    names = ", ".join(f"process {one}{_command(one)}" for one in sorted(holders))
    console.say(f"waiting for {what} ({names or 'an unknown process'})")
    with console.step("waiting", after=1.0):
        fcntl.flock(descriptor, how)


def _holders(descriptor):
    """Return the numbers of the processes that hold a lock file.

    A lock belongs to a descriptor, which processes inherit; /proc/locks has only the first one.
    """
    lock = re.compile(rf"^lock:.* FLOCK .*:{os.fstat(descriptor).st_ino} ", re.MULTILINE)
    numbers = set()
    for place in Path("/proc").glob("[0-9]*"):
        # Other users' processes, and those that have just ended, cannot be read.
        with contextlib.suppress(OSError):
            if any(lock.search(one.read_text()) for one in place.glob("fdinfo/*")):
                numbers.add(int(place.name))
    return numbers


def _command(process):
    """Return what a process was started with, in brackets; nothing if that is unknown."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").split()
        return f" [{b' '.join(words).decode(errors='replace')[:80]}]"
    return ""
