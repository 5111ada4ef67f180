# SPDX-License-Identifier: Apache-2.0
"""`./dev.py test --newest-python`: the Python that it chooses."""

import sys

import pytest

from scripts.test.newest_python import newest

NEXT = sys.version_info[1] + 1


@pytest.fixture
def pythons(tmp_path):
    """Write programs that answer like a Python of a minor version, or with an error."""

    def write(**answers):
        for minor, answer in answers.items():
            path = tmp_path / f"python3.{minor[1:]}"
            path.write_text("#!/bin/sh\n" + (f"echo {answer}\n" if answer else "exit 127\n"))
            path.chmod(0o755)
        return [tmp_path / "missing", tmp_path]

    return write


def test_the_newest_that_answers(pythons, tmp_path):
    shim = {f"_{NEXT + 2}": None, f"_{NEXT + 1}": NEXT + 1, f"_{NEXT}": NEXT}
    folders = pythons(_5=5, **shim)
    (tmp_path / "python3.99-config").touch()
    assert newest(folders) == tmp_path / f"python3.{NEXT + 1}"


def test_none_is_newer(pythons):
    assert newest(pythons(_5=5, **{f"_{NEXT - 1}": NEXT - 1, f"_{NEXT}": None})) is None
