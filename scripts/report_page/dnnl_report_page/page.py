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
"""A report as a page that needs no other file: numbers, reasons and the drawn graph."""

from __future__ import annotations

import html
import json
import string
from collections import Counter

from .drawing import partitions_of, svg, title_of

_PAGE = string.Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
* { box-sizing: border-box; }
body { margin: 0; height: 100vh; display: flex; flex-direction: column; color: #0f172a;
  background: #ffffff; font: 14px/1.45 system-ui, "Segoe UI", Arial, sans-serif; }
header { padding: 12px 20px; border-bottom: 1px solid #e2e8f0; }
h1 { font-size: 19px; margin: 0 0 6px; }
h2 { font-size: 14px; margin: 18px 0 6px; }
.bar { height: 8px; max-width: 560px; background: #fde68a; border-radius: 4px; overflow: hidden; }
.bar div { height: 100%; background: #2563eb; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin-top: 8px; font-size: 13px; }
.legend i { display: inline-block; width: 12px; height: 12px; border: 1px solid; border-radius: 3px;
  margin-right: 5px; vertical-align: -1px; }
main { flex: 1; display: flex; min-height: 0; }
aside { width: 370px; flex: none; overflow: auto; padding: 0 20px 20px;
  border-right: 1px solid #e2e8f0; }
table { width: 100%; border-collapse: collapse; font-size: 13px; }
td, th { text-align: left; vertical-align: top; padding: 3px 8px 3px 0;
  border-bottom: 1px solid #f1f5f9; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; white-space: nowrap; width: 1%; }
dl { margin: 0; } dt { font-size: 12px; color: #64748b; } dd { margin: 0 0 6px; }
dd, td { overflow-wrap: anywhere; }
#view { flex: 1; display: flex; min-width: 0; min-height: 0; position: relative; }
#drawing { flex: 1; overflow: auto; padding: 16px; }
#drawing svg { display: block; margin: 0 auto; height: auto; }
#drawing svg text { font-family: Arial, "Liberation Sans", Helvetica, sans-serif; }
g.node { cursor: pointer; }
g.node.chosen path, g.node.chosen polygon, g.node.chosen ellipse { stroke-width: 3; }
@media (max-width: 800px) {
  main { flex-direction: column-reverse; }
  aside { width: auto; max-height: 35%; border-right: 0; border-top: 1px solid #e2e8f0; }
}
.tools { position: absolute; right: 24px; bottom: 20px; }
button { font: inherit; min-width: 34px; padding: 3px 8px; border: 1px solid #cbd5e1;
  border-radius: 5px; background: #ffffff; cursor: pointer; }
a { color: #1d4ed8; }
</style>
</head>
<body>
<header>
<h1>$title</h1>
<div>$summary</div>
<div class="bar"><div style="width: $percent%"></div></div>
<div class="legend">
<span><i style="background: #dbeafe; border-color: #1d4ed8"></i>runs on oneDNN; what is fused
stands in one box</span>
<span><i style="background: #eff6ff; border-color: #93c5fd"></i>partition: one call of oneDNN's
module</span>
<span><i style="background: #fef3c7; border-color: #b45309"></i>stays on TVM, and why</span>
</div>
</header>
<main>
<aside>
<h2>Chosen box</h2>
<div id="chosen">Click a box of the drawing.</div>
$tables
</aside>
<div id="view">
<div id="drawing">
$drawing
</div>
<div class="tools">
<button id="smaller" title="Smaller">&minus;</button>
<button id="larger" title="Larger">+</button>
<button id="fit" title="Fit the width">fit</button>
</div>
</div>
</main>
<script type="application/json" id="nodes">$nodes</script>
<script>
(function () {
  var nodes = JSON.parse(document.getElementById("nodes").textContent);
  var pane = document.getElementById("drawing"), drawing = pane.querySelector("svg");
  var chosen = document.getElementById("chosen");
  var own = drawing.viewBox.baseVal.width * 4 / 3, scale = 1;
  function resize(to) {
    scale = Math.min(4, Math.max(0.1, to));
    drawing.style.width = own * scale + "px";
  }
  function room() { return (pane.clientWidth - 40) / own; }
  document.getElementById("smaller").onclick = function () { resize(scale / 1.25); };
  document.getElementById("larger").onclick = function () { resize(scale * 1.25); };
  document.getElementById("fit").onclick = function () { resize(room()); };
  resize(1);
  // Texts were placed by Arial's widths. Those of another font are centred, and squeezed to fit.
  drawing.querySelectorAll("g.node").forEach(function (node) {
    var box = node.querySelector("path, polygon, ellipse").getBBox(), room = box.width - 8;
    node.querySelectorAll("text").forEach(function (text) {
      text.setAttribute("text-anchor", "middle");
      text.setAttribute("x", box.x + box.width / 2);
      if (text.getComputedTextLength() > room) {
        text.setAttribute("textLength", room);
        text.setAttribute("lengthAdjust", "spacingAndGlyphs");
      }
    });
  });
  // By hand: Firefox scrolls to the end of a drawing in the place of a box in it.
  function centre(box) {
    var place = box.getBoundingClientRect(), view = pane.getBoundingClientRect();
    pane.scrollLeft += place.left + place.width / 2 - view.left - view.width / 2;
    return place.top - view.top;
  }
  var first = drawing.querySelector("g.node");
  if (first) { centre(first); }
  pane.addEventListener("click", function (event) {
    var box = event.target.closest("g.node");
    if (!box) { return; }
    pane.querySelectorAll("g.chosen").forEach(function (old) { old.classList.remove("chosen"); });
    box.classList.add("chosen");
    var list = document.createElement("dl");
    nodes[Number(box.id.slice(4))].forEach(function (row) {
      var name = document.createElement("dt"), value = document.createElement("dd");
      name.textContent = row[0];
      value.textContent = row[1];
      list.append(name, value);
    });
    chosen.replaceChildren(list);
  });
  document.querySelectorAll("a[data-partition]").forEach(function (link) {
    link.onclick = function (event) {
      event.preventDefault();
      pane.scrollTop += centre(document.getElementById(link.dataset.partition)) - 8;
    };
  });
})();
</script>
</body>
</html>
""")


def _rows(node) -> list[tuple[str, str]]:
    """Return what the page tells of a node when it is clicked."""
    where = {"dnnl": "oneDNN", "tvm": "TVM"}.get(node.kind, "")
    rows = [
        (node.kind if not where else "computes", title_of(node)),
        ("runs on", where),
        ("composite", node.name if len(node.ops) > 1 else ""),
        ("partition", node.partition),
        ("attributes", node.details),
        ("result", node.shape),
        ("why not on oneDNN", node.reason),
        ("in the imported model", ", ".join(node.sources)),
        ("in function", node.function),
    ]
    return [(name, value) for name, value in rows if value]


def _table(title: str, header: tuple[str, str], rows: list[tuple[object, str]]) -> str:
    """Write a table of numbers and texts, the latter as HTML."""
    if not rows:
        return ""
    body = "".join(f'<tr><td>{text}</td><td class="n">{number}</td></tr>' for number, text in rows)
    head = f'<tr><th>{header[0]}</th><th class="n">{header[1]}</th></tr>'
    return f"<h2>{html.escape(title)}</h2><table>{head}{body}</table>"


def _stayed(report) -> list[tuple[object, str]]:
    """Return the ops that stayed on TVM, the most frequent first."""
    counts = Counter(
        {
            (name, reason): count
            for name, reasons in report.reasons.items()
            for reason, count in reasons.items()
        }
    )
    return [
        (count, f"<b>{html.escape(name)}</b>: {html.escape(reason)}")
        for (name, reason), count in counts.most_common()
    ]


def _tables(report) -> str:
    boxes = Counter(node.partition for node in report.nodes if node.partition)
    partitions = [
        (
            boxes[name],
            f'<a href="#partition{i}" data-partition="partition{i}">partition {i + 1}</a>'
            f"<br>{html.escape(name)}",
        )
        for i, name in enumerate(partitions_of(report.nodes))
    ]

    def counted(numbers):
        return [(count, html.escape(name)) for name, count in Counter(numbers).most_common()]

    failures = [
        ("", f"<b>{html.escape(n)}</b>: {html.escape(t)}") for n, t in report.failures.items()
    ]
    return "\n".join(
        [
            _table("Why ops stayed on TVM", ("op and reason", "count"), _stayed(report)),
            _table("Left as it was", ("function and reason", ""), failures),
            _table("Partitions", ("in order", "boxes"), partitions),
            _table("Fused", ("composite", "times"), counted(report.composites)),
            _table("Folded into constants or removed", ("op", "count"), counted(report.folded)),
        ]
    )


def make_page(report, title: str) -> str:
    """Write the page; see :py:meth:`tvm.relay.op.contrib.dnnl.OffloadReport.to_html`."""
    total, offloaded = report.total, report.offloaded
    percent = 100 * offloaded / total if total else 0
    ops = "op" if total == 1 else "ops"
    parts = "partition" if report.partitions == 1 else "partitions"
    data = json.dumps([_rows(node) for node in report.nodes])
    return _PAGE.substitute(
        title=html.escape(title),
        summary=f"<b>{offloaded}</b> of {total} {ops} ({percent:.0f}%) run on oneDNN, in "
        f"<b>{report.partitions}</b> {parts}",
        percent=f"{percent:.1f}",
        tables=_tables(report),
        drawing=svg(report.nodes),
        # Nothing in the data may end the element that holds it.
        nodes=data.replace("<", "\\u003c"),
    )
