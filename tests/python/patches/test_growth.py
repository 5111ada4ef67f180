# SPDX-License-Identifier: Apache-2.0
"""Tables that grow with a series: rows come with the files that define what they name."""

from scripts.patchset.export_pr import Commit, describe
from scripts.patchset.growth import definers, without
from scripts.patchset.tree import ABSENT, file_state

HEADER = """\
void LowerConv(const Node& node);
void LowerRelu(const Node& node);
"""
TABLE = """\
namespace dnnl {

float Slope(const Node& node) { return 1; }

AlphaBeta Bounds(const Node& node) {
  return {0, 6};
}

/*! \\brief Convolutions. */
constexpr Family kConv = {LowerConv,
                          kAny};
constexpr Family kRelu = {LowerRelu};

// Columns: name, family.
const OpSchema kOps[] = {
    {"conv", kConv},
    // It has bounds.
    {"clip", kRelu,
     Bounds},
    {"relu", kRelu},
};

}  // namespace dnnl
"""
FILES = {
    "core/table.h": HEADER,
    "core/conv.cc": "void LowerConv(const Node& node) {}\n",
    "core/relu.cc": "void LowerRelu(const Node& node,\n               int) {\n}\n",
    "core/caller.cc": "void Run() {\n  LowerConv(node);\n}\n",
}


def test_functions_are_where_they_are_defined():
    expected = {"LowerConv": "core/conv.cc", "LowerRelu": "core/relu.cc"}
    assert definers("core/table.cc", FILES) == expected


def test_nothing_missing_leaves_all():
    assert without(TABLE, set()) == TABLE


def test_rows_go_with_what_only_they_name():
    text = without(TABLE, {"LowerRelu"})
    assert '{"conv", kConv},\n};' in text and "// Columns" in text
    for word in ("kRelu", "Bounds", "clip", "LowerRelu"):
        assert word not in text
    assert "LowerConv,\n                          kAny};" in text
    assert "\n\n\n" not in text


def test_a_comment_goes_with_its_row():
    text = without(TABLE, {"LowerConv"})
    assert "Convolutions" not in text
    assert 'kOps[] = {\n    // It has bounds.\n    {"clip", kRelu,\n     Bounds},\n' in text


def test_table_of_the_series():
    commits = [
        Commit("[A] One", "", {"a": file_state(b"1\n2\n"), "tests/b": file_state(b"1\n")}),
        Commit("[B] Two", "", {"a": file_state(b"1\n3\n4\n"), "old": ABSENT}),
    ]
    rows = describe(commits, {"old": file_state(b"x\n")}).splitlines()
    assert rows[1].split(maxsplit=5) == ["1", "2", "1", "3", "0", "[A] One"]
    assert rows[2].split(maxsplit=5) == ["2", "2", "0", "2", "2", "[B] Two"]
    assert rows[3].split() == ["total", "5", "2"]
