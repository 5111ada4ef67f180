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
"""The checks of `dev.py lint` that are our own."""

from pathlib import Path

import pytest

from scripts.layout import ROOT
from scripts.lint import text_rules

TABLES = ROOT / "scripts" / "lint"


def write(root, name, text):
    """Write a file and return its name as lint has it."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    return Path(name)


def test_a_source_file_needs_the_licence_header(tmp_path):
    good = write(tmp_path, "a.py", f"# {text_rules.HEADER}\n")
    bad = write(tmp_path, "src/b.cc", "int b;\n")
    other = write(tmp_path, "README.md", "text\n")
    found = list(text_rules.check_headers(tmp_path, [good, bad, other]))
    assert found == ["src/b.cc: no ASF licence header"]


def test_long_files_are_found_unless_allowed(tmp_path):
    files = [
        write(tmp_path, "long.cc", "\n" * 401),
        write(tmp_path, "allowed.py", "\n" * 450),
        write(tmp_path, "short.py", "\n" * 10),
        write(tmp_path, "data.json", "\n" * 1000),
    ]
    table = tmp_path / "sizes.txt"
    table.write_text("# comment\n\nallowed.py  460  one table\nshort.py  500  no reason left\n")
    long, short = text_rules.check_sizes(tmp_path, files, table)
    assert long == "long.cc: 401 lines, at most 400 are allowed; split it"
    assert short == "short.py: 10 lines; take its row out of sizes.txt"


@pytest.mark.parametrize(
    "name, line",
    [
        ("a.cc", "#include <" + "regex>"),
        ("a.h", "using namespace " + "std;"),
        ("a.md", "see https://" + "pypi.org/x"),
        ("a.sh", "cd /" + "root/x"),
        ("a.py", "x = 1  "),
        ("a.txt", "<" * 7 + " HEAD"),
    ],
)
def test_forbidden_strings_are_found(tmp_path, name, line):
    path = write(tmp_path, name, f"fine\n{line}\n")
    table = TABLES / "forbidden.txt"
    (found,) = text_rules.check_forbidden(tmp_path, [path], table)
    assert found.startswith(f"{name}:2: ")


def test_harmless_lines_pass(tmp_path):
    lines = ["import re", "path = 'a/work/b'", "std::string s;", "====", "https://tvm.apache.org"]
    path = write(tmp_path, "a.cc", "\n".join(lines) + "\n")
    assert not list(text_rules.check_forbidden(tmp_path, [path], TABLES / "forbidden.txt"))


def test_the_checkouts_own_tables_are_well_formed():
    for name, columns in (("sizes.txt", 3), ("forbidden.txt", 3)):
        assert all(len(row) == columns for row in text_rules._rows(TABLES / name))
