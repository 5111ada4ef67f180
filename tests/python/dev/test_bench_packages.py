# SPDX-License-Identifier: Apache-2.0
"""Models of packages: their table, its explanations, and its place in the documentation."""

import argparse
import types

import pytest

from scripts.bench import packages, tasks
from scripts.errors import SetupError
from scripts.files import write_between


def test_models_of_packages(own_model, monkeypatch):
    # OpenVINO is a package of the benchmark's alone.
    monkeypatch.setattr(packages, "PEERS", packages.PEERS[:1])
    args = argparse.Namespace(threads=1, repeat=2, time=True)
    cells, report, primitives = packages.measured(own_model, {"x": (3, 8)}, args)
    assert len(cells) == len(packages.HEADER + packages.TIMES) - 1
    assert cells[:3] == [report.total, report.offloaded, report.partitions]
    assert cells[1] >= 1 and float(cells[4]) < 1e-6 and float(cells[5]) > 0 and cells[7] == "-"
    assert "nn.dense" in {row["op"] for row in primitives}


def test_models_of_packages_that_are_slow_or_cut_are_explained():
    def why(ours, theirs, partitions=1, reasons=None):
        report = types.SimpleNamespace(partitions=partitions, reasons=reasons or {})
        cells = [9, 9, partitions, "100%", "0", ours, theirs, "-"]
        return packages.explanation(cells, report, [row(*each) for each in times])

    def row(op, time):
        return {"op": op, "microseconds": time}

    dense = "75% of oneDNN's time in 2 x nn.dense"
    times = [("nn.dense", 1.0), ("nn.dense", 2.0), ("exp", 1.0)]

    logarithm = {"log": {"no rule for this op": 2}, "relu": {}}
    assert why("1.5", "2.5", 4, logarithm) == why("1.5", "-") == ""
    assert why("2.5", "1.5", 2, logarithm) == f"2 x log: no rule for this op; {dense}"
    assert why("1.5", "2.5", 5, logarithm) == "2 x log: no rule for this op"
    assert why("2.5", "1.5") == dense
    many = {f"op{i}": {"no": i} for i in range(1, 7)}
    assert (
        why("1.5", "2.5", 5, many) == "6 x op6: no; 5 x op5: no; 4 x op4: no; 3 x op3: no; 2 more"
    )


def test_rows_are_replaced_in_the_table():
    titles = ["ops", "ms", "why", "first"]
    rows = [("b: y/one", ["9", "1.50", "", "7"]), ("c: z/one", ["8", "2.50", "slow", "6"])]
    table = "| package | model | ops | ms | why | first |\n| --- | --- | --- | --- | --- | --- |\n"
    for name, cells in rows:
        table += "| " + " | ".join([*name.split(": "), *cells]) + " |\n"
    page = "".join([packages.MARKS[0], table, packages.MARKS[1]])
    measured = [("a: x/one", [4, ""]), ("c: z/one", [5, ""])]
    got = packages.joined(page, packages.MARKS, measured, ["ops", "why"])
    new, replaced = ["4", "-", "", "-"], ["5", "-", "", "-"]
    assert got == [("a: x/one", new), rows[0], ("c: z/one", replaced)]
    assert packages.joined(page, packages.MARKS, [], titles) == rows


def test_the_table_of_models_of_packages_goes_into_the_docs(tmp_path):
    cells = [9, 8, 1, "99.00%", "1.0e-07", "1.50", "2.50", "-", ""]
    text = packages.markdown([("a: x/one", cells), ("a: x/two", cells), ("b: y/one", cells)])
    titles, _, *rows = text.splitlines()
    assert titles.startswith(
        "| package | model | ops | on oneDNN | partitions | floating-point work"
    )
    assert all(row.count("|") == titles.count("|") for row in rows)
    assert [row.split("|")[1] for row in rows] == [" a ", "  ", " b "]
    path = tmp_path / "coverage.md"
    path.write_text("before\n" + packages.MARKS[0] + "old\n" + packages.MARKS[1] + "after\n")
    write_between(path, packages.MARKS, text)
    write_between(path, packages.MARKS, text)
    assert path.read_text() == "before\n" + text.join(packages.MARKS) + "after\n"
    path.write_text("before\n")
    with pytest.raises(SetupError, match="no place for the table"):
        write_between(path, packages.MARKS, text)
    assert packages.PATH.read_text().count(packages.MARKS[0]) == 1


def test_every_model_of_the_tables_has_a_task():
    page = packages.PATH.read_text(encoding="utf-8")
    relay, relax = (packages.read(page, marks) for marks in (packages.MARKS, packages.RELAX_MARKS))
    assert relay.keys() <= relax.keys() and len(relax) >= 25
    assert {tasks.task_of(name) for name in relax} == tasks.TASKS.keys() - {"other"}


def test_the_page_by_task_is_up_to_date():
    """`./dev.py coverage --by-task` writes it."""
    page = packages.PATH.read_text(encoding="utf-8")
    written = tasks.PATH.read_text(encoding="utf-8")
    assert tasks.markdown(page).join(tasks.MARKS) in written
