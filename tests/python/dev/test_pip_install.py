# SPDX-License-Identifier: Apache-2.0
"""`./dev.py test --newest-python` and `--oldest-packages`: the Pythons and packages."""

import pytest

from scripts.layout import ROOT
from scripts.test.pip_install import find, lower_bounds


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
    folders = pythons(_5=5, _12=12, _13=13, _14=None)
    (tmp_path / "python3.99-config").touch()
    assert find(folders, lambda minor: minor > 11, newest=True) == tmp_path / "python3.13"


def test_the_oldest_that_answers(pythons, tmp_path):
    folders = pythons(_5=5, _9=9, _10=None, _11=11, _12=12)
    assert find(folders, lambda minor: minor >= 10) == tmp_path / "python3.11"


def test_none_is_newer(pythons):
    folders = pythons(_5=5, _11=11, _12=None)
    assert find(folders, lambda minor: minor > 11, newest=True) is None


def test_lower_bounds():
    bounds = lower_bounds((ROOT / "pyproject.toml").read_text())
    assert {"apache-tvm==0.26.0", "onnx==1.20.1", "scikit-build-core==1.0"} <= set(bounds)
    assert not [each for each in bounds if each.startswith("requires")]
