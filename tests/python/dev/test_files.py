# SPDX-License-Identifier: Apache-2.0
"""Files are written as a whole or not at all."""

import os
import subprocess
import sys

import pytest

from scripts import options
from scripts.files import write_atomically
from scripts.layout import ROOT

# As on a full disk: no file grows beyond a kilobyte.
FULL = """
import resource, sys
from scripts.files import write_atomically
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
try:
    write_atomically(sys.argv[1], "new" * 1000)
except OSError:
    sys.exit(3)
"""


@pytest.mark.parametrize("old", ["old", None])
def test_a_full_disk_leaves_the_old_file_or_none(tmp_path, old):
    path = tmp_path / "a.json"
    if old:
        path.write_text(old)
    done = subprocess.run([sys.executable, "-c", FULL, path], cwd=ROOT)
    assert done.returncode == 3
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == (
        {"a.json": old} if old else {}
    )


def test_links_and_modes_stay(tmp_path):
    path, link = tmp_path / "a.json", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_atomically(link, "new")
    assert link.is_symlink() and path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert len(list(tmp_path.iterdir())) == 2


def test_what_is_no_file_stays_what_it_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
    write_atomically(pipe, "new")
    assert reader.communicate(timeout=60)[0] == "new" and pipe.is_fifo()


def test_the_check_before_a_measurement_leaves_no_file(tmp_path):
    options.writable(tmp_path / "a.json")
    assert not list(tmp_path.iterdir())
    (tmp_path / "b.json").write_text("old")
    options.writable(tmp_path / "b.json")
    assert (tmp_path / "b.json").read_text() == "old"
