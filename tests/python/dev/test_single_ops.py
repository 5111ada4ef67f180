# SPDX-License-Identifier: Apache-2.0
"""`fuzz --ops`: which calls it checks, when it stops, and what it returns."""

from types import SimpleNamespace

import pytest

from scripts.errors import SetupError
from scripts.test import single_ops


def run(monkeypatch, check, ops="", count=6):
    monkeypatch.setattr(single_ops, "_checks", lambda is_relax: (["add", "exp"], (check,)))
    return single_ops.main(
        SimpleNamespace(ops=ops, relax=False, seed=30, seconds=None, count=count)
    )


def test_it_checks_each_op_of_a_seed_before_the_next_seed(monkeypatch):
    checked = []

    def check(name, seeds):
        checked.append((name, seeds))
        return 2, []

    assert run(monkeypatch, check) == 0
    assert {name for name, _ in checked[:2]} == {"add", "exp"}
    assert [seeds.start for _, seeds in checked] == [120, 120, 124]


def test_a_failure_names_the_op_and_the_seed(monkeypatch, capsys):
    assert run(monkeypatch, lambda name, seeds: (6, ["x is not y"]), ops="exp") == 1
    assert "FAILED with --ops exp --seed 30: x is not y" in capsys.readouterr().out
    # Nothing accepted is no success.
    assert run(monkeypatch, lambda name, seeds: (0, []), ops="exp", count=0) == 1


def test_an_unknown_op_is_refused(monkeypatch):
    with pytest.raises(SetupError, match="unknown 'sin'"):
        run(monkeypatch, None, ops="exp,sin")
