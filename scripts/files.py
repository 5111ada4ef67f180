# SPDX-License-Identifier: Apache-2.0
"""Files that are written as a whole or not at all, and stamps.

A step of set-up is skipped when the hash of its inputs, which its stamp holds, has not changed.
"""

import contextlib
import hashlib
import os
import shutil
import stat
from pathlib import Path

from scripts.errors import SetupError


def write_atomically(path, content, parents=False):
    """Write a text or bytes: the file has the old content or the new, also on a full disk.

    With `parents`, the folders that it lies in are made if need be.
    """
    if parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    with replaced_at_end(path) as file:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())


def write_between(path, marks, text):
    """Put a text between two lines of a page, in the place of what is there."""
    page = path.read_text(encoding="utf-8")
    before, begin, rest = page.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not end:
        raise SetupError(f"{path} has no place for the table", f"it is between {marks}.")
    write_atomically(path, before + begin + text + end + after)


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


def _feed(state, part):
    """Add a value or a file's content to the hash."""
    if isinstance(part, Path):
        data = part.read_bytes() if part.is_file() else b"<missing>"
    else:
        data = str(part).encode()
    # The length keeps ("ab", "c") and ("a", "bc") apart.
    state.update(f"{len(data)}:".encode())
    state.update(data)


def is_source(path):
    """Tell if `path` is a file that people wrote, not one that Python or an editor left."""
    return (
        path.is_file()
        and "__pycache__" not in path.parts
        and path.suffix != ".pyc"
        and not path.name.startswith((".", "#"))
        and not path.name.endswith("~")
    )


def digest(*parts):
    """Return one hash for values and files: a path stands for its content, or for having none."""
    state = hashlib.sha256()
    for part in parts:
        _feed(state, part)
    return state.hexdigest()


class Stamp:
    """A file that holds the hash of the inputs that a product was made from.

    It lies inside the product, so that removing the product removes its stamp.
    """

    def __init__(self, path):
        self.path = Path(path)

    def matches(self, key):
        """Tell if the product was made from these inputs."""
        try:
            return self.path.read_text() == key
        except (FileNotFoundError, NotADirectoryError):
            return False

    def write(self, key):
        """Mark the product as finished."""
        write_atomically(self.path, key, parents=True)
