# SPDX-License-Identifier: Apache-2.0
"""The report as a page: the drawing, what a browser makes of it, and where the page comes from."""

import re
import sys

import pytest
import tvm
from browser import BROWSERS, read_page
from dnnl_report_page import drawing
from dnnl_tests.marks import nightly_after
from dnnl_tests.models import workloads
from dnnl_tests.relay import const, conv, module, partition, var
from tvm import relay
from tvm.relay.op.contrib import dnnl

SHAPE = (1, 8, 6, 6)
X = var("x", *SHAPE)
relu, atan = relay.nn.relu, relay.atan


def report_of(*results, **options):
    return dnnl.offload_report(partition(module(*results), **options))


class TestPage:
    @pytest.fixture(autouse=True)
    def graphviz(self):
        pytest.importorskip("graphviz")
        try:
            drawing.find_program()
        except RuntimeError as error:
            pytest.skip(str(error))

    def test_one_file_with_all_of_it(self):
        page = report_of(atan(relu(conv(X) + const(8, 1, 1)))).to_html("A <model>")
        assert "<h1>A &lt;model&gt;</h1>" in page
        assert "<b>3</b> of 4 ops (75%) run on oneDNN, in <b>1</b> partition<" in page
        assert len(re.findall('class="node ', page)) == 4 and 'id="partition0"' in page
        assert "<b>atan</b>: no rule for this op" in page
        # It loads nothing: what is left are names of XML namespaces.
        links = re.findall(r'(?:src|href)="([^"]*)"', page)
        assert all(link.startswith("#") for link in links)

    def test_names_are_escaped(self):
        x = relay.var('<b>&"x"\\n', shape=SHAPE)
        page = dnnl.offload_report(tvm.IRModule.from_expr(relay.Function([x], atan(x)))).to_html()
        assert "<b>&" not in page and "</script><" not in page

    def test_module_without_partitions(self):
        page = dnnl.offload_report(module(atan(X))).to_html()
        assert "<b>0</b> of 1 op (0%) run on oneDNN, in <b>0</b> partitions" in page

    def test_a_failing_program_is_an_error(self, tmp_path, monkeypatch):
        program = tmp_path / "dot"
        program.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(RuntimeError, match="failed: broken"):
            report_of(atan(X)).to_html()


def test_without_a_program_the_error_names_the_remedy(monkeypatch):
    monkeypatch.setattr(drawing, "PROGRAMS", ("no-such-program",))
    with pytest.raises(RuntimeError, match="pip install graphviz graphviz-pure"):
        drawing.find_program()


def test_without_the_package_the_error_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(RuntimeError, match="pip install graphviz graphviz-pure"):
        report_of(atan(X)).to_html()


def test_without_the_package_of_the_page_the_error_says_where_it_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "dnnl_report_page", None)
    with pytest.raises(RuntimeError, match="in scripts/report_page: put that on PYTHONPATH"):
        report_of(atan(X)).to_html()


def overlap(a, b):
    """Whether two rectangles (left, top, right, bottom) have a point in common."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def texts_out_of_their_boxes(page):
    """Return the boxes that a text leaves."""
    return [
        box["id"]
        for box in page["boxes"]
        for left, top, right, bottom in box["texts"]
        if left < box["at"][0]
        or right > box["at"][2]
        or top < box["at"][1] - 1
        or bottom > box["at"][3] + 1
    ]


@pytest.fixture(params=BROWSERS)
def browser(request):
    if BROWSERS[request.param][0] is None:
        pytest.skip(f"there is no {request.param} on this machine")
    return request.param


@pytest.mark.parametrize("font", nightly_after(1, ["DejaVu Sans", "monospace"]))
def test_another_font_in_a_browser(font, browser, tmp_path):
    """Where there is no Arial, wider letters stay in their boxes."""
    pytest.importorskip("graphviz")
    path = tmp_path / "report.html"
    path.write_text(report_of(atan(relu(conv(X) + const(8, 1, 1)))).to_html(), encoding="utf-8")
    page = read_page(browser, path, font=font)
    assert page["errors"] == [] and len(page["boxes"]) == 4
    assert texts_out_of_their_boxes(page) == []


def test_keyboard_search_and_list(browser, tmp_path):
    pytest.importorskip("graphviz")
    path = tmp_path / "report.html"
    path.write_text(report_of(atan(relu(conv(X) + const(8, 1, 1)))).to_html(), encoding="utf-8")
    page = read_page(browser, path)
    assert page["errors"] == []
    assert page["focused"].startswith("node") or page["focused"] == "tab-ops"
    assert page["by_keyboard"] != page["chosen"] and page["by_keyboard"].startswith("output")
    # The convolution and the arctangent; one of them has both words.
    assert page["rows"] == 2 and page["shown_rows"] == 1
    assert page["searched"].startswith("1 match;")


def test_facts_times_and_changes():
    pytest.importorskip("graphviz")
    rows = [
        dict(
            node="tvmgen_default_dnnl_main_0, node 3 nn.conv2d", op="nn.conv2d", post_ops=["relu"]
        ),
        dict(node="tvmgen_default_dnnl_main_0, node 5 nn.dense", op="nn.dense", post_ops=[]),
    ]
    for row, microseconds in zip(rows, (30.0, 10.0)):
        row.update(impl="jit", microseconds=microseconds)
    report = report_of(atan(relu(conv(X) + const(8, 1, 1))))
    facts, changes = ["a <CPU>", "oneDNN 3.2"], [("partitions", 3, 1)]
    page = report.to_html("A model", facts, {"primitives": rows}, changes)
    assert "a &lt;CPU&gt; · oneDNN 3.2" in page
    assert "<b>nn.conv2d + relu</b>" in page and "0.030<br>75%" in page and "0.040 ms" in page
    assert "<b>nn.dense</b><br>1 of 2 primitives" in page and "0.010<br>25%" in page
    assert '<td>partitions</td><td class="n">3 &rarr; 1</td>' in page


def test_a_narrow_window(browser, tmp_path):
    """It opens on the drawing, as wide as the window; tables are below."""
    pytest.importorskip("graphviz")
    path = tmp_path / "report.html"
    path.write_text(report_of(atan(relu(conv(X) + const(8, 1, 1)))).to_html(), encoding="utf-8")
    page = read_page(browser, path, size=(700, 900))
    left, top, right, bottom = page["pane"]
    assert left == 0 and right >= 650 and top < 250 and bottom - top >= 300
    assert page["tools"][3] <= bottom
    first = page["boxes"][0]["at"]
    assert left <= first[0] and first[2] <= right and top <= first[1] and first[3] <= bottom


@pytest.mark.parametrize("name", nightly_after(1, ["mobilenet", "rec"]))
def test_in_a_browser(name, browser, tmp_path):
    """Boxes do not overlap, texts stay in their boxes, and partitions hold theirs."""
    pytest.importorskip("graphviz")
    report = dnnl.offload_report(partition(*workloads.WORKLOADS[name].load()))
    path = tmp_path / "report.html"
    path.write_text(report.to_html(name), encoding="utf-8")
    page = read_page(browser, path)
    # It takes less than a second, and several on a busy machine; this only says that it ends.
    assert page["milliseconds"] < 20000 and page["errors"] == []
    boxes = {box["id"]: box for box in page["boxes"]}
    assert len(boxes) == len(report.nodes) > 30
    placed = [box["at"] for box in boxes.values()]
    assert [1 for i, a in enumerate(placed) for b in placed[:i] if overlap(a, b)] == []
    assert texts_out_of_their_boxes(page) == []
    for box in boxes.values():
        for _, top, _, bottom in box["texts"]:
            # A line of text that can be read without making it larger.
            assert bottom - top >= 11
    names = drawing.partitions_of(report.nodes)
    assert len(page["partitions"]) == len(names) == report.partitions
    for i, node in enumerate(report.nodes):
        at = boxes[f"node{i}"]["at"]
        for partition_id, frame in page["partitions"].items():
            inside = node.partition == names[int(partition_id.removeprefix("partition"))]
            assert overlap(at, frame) == inside, (node.name, partition_id)
    assert page["chosen"].startswith("computes")
