# SPDX-License-Identifier: Apache-2.0
"""The page's HTML, style and script."""

import string

_STYLE = """
* { box-sizing: border-box; }
body { margin: 0; height: 100vh; display: flex; flex-direction: column; color: #0f172a;
  background: #ffffff; font: 14px/1.45 system-ui, "Segoe UI", Arial, sans-serif; }
header { padding: 12px 20px; border-bottom: 1px solid #e2e8f0; }
h1 { font-size: 19px; margin: 0 0 6px; }
h2 { font-size: 14px; margin: 18px 0 6px; }
.bar { height: 8px; max-width: 560px; margin: 4px 0; border-radius: 4px; overflow: hidden;
  background: #fde68a; }
.bar div { height: 100%; background: #2563eb; }
.facts { color: #475569; font-size: 13px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin-top: 8px; font-size: 13px; }
.legend i { display: inline-block; width: 16px; height: 12px; border: 1px solid; border-radius: 3px;
  margin-right: 5px; vertical-align: -1px; }
main { flex: 1; display: flex; min-height: 0; }
aside { width: 370px; flex: none; overflow: auto; padding: 12px 20px 20px;
  border-right: 1px solid #e2e8f0; }
table { width: 100%; border-collapse: collapse; font-size: 13px; }
td, th { text-align: left; vertical-align: top; padding: 3px 8px 3px 0;
  border-bottom: 1px solid #f1f5f9; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; white-space: nowrap; width: 1%; }
dl { margin: 0; } dt { font-size: 12px; color: #64748b; } dd { margin: 0 0 6px; }
dd, td { overflow-wrap: anywhere; }
#search { font: inherit; width: 100%; padding: 5px 8px; border: 1px solid #94a3b8;
  border-radius: 5px; }
#matches { font-size: 12px; color: #475569; min-height: 1.45em; }
#view { flex: 1; display: flex; flex-direction: column; min-width: 0; min-height: 0;
  position: relative; }
#tabs { padding: 8px 16px 0; display: flex; gap: 6px; border-bottom: 1px solid #e2e8f0; }
#tabs button { border-bottom: 0; border-radius: 5px 5px 0 0; }
#tabs button[aria-selected=true] { background: #0f172a; color: #ffffff; border-color: #0f172a; }
#drawing, #list { flex: 1; overflow: auto; padding: 16px; }
#list th button { border: 0; padding: 0; font-weight: bold; text-align: inherit; }
#list td { overflow-wrap: break-word; }
#list td:nth-child(3) { white-space: nowrap; }
#list th:first-child, #list td:first-child { padding-left: 8px; }
#list tbody tr { cursor: pointer; }
#list tbody tr.chosen { background: #dbeafe; box-shadow: inset 3px 0 #1d4ed8; }
[hidden] { display: none !important; }
#drawing svg { display: block; margin: 0 auto; height: auto; }
#drawing svg text { font-family: Arial, "Liberation Sans", Helvetica, sans-serif; }
g.node { cursor: pointer; }
g.node.chosen path, g.node.chosen polygon, g.node.chosen ellipse { stroke-width: 3; }
g.node:focus { outline: none; }
g.node:focus-visible path, g.node:focus-visible polygon, g.node:focus-visible ellipse {
  stroke-width: 4; }
.searching g.node:not(.match) { opacity: 0.25; }
:focus-visible { outline: 2px solid #1d4ed8; outline-offset: 1px; }
@media (max-width: 800px) {
  main { flex-direction: column-reverse; }
  aside { width: auto; max-height: 35%; border-right: 0; border-top: 1px solid #e2e8f0; }
}
.tools { position: absolute; right: 24px; bottom: 20px; }
button { font: inherit; min-width: 34px; padding: 3px 8px; border: 1px solid #cbd5e1;
  border-radius: 5px; background: #ffffff; cursor: pointer; }
a { color: #1d4ed8; }
"""

_SCRIPT = """
(function () {
  var nodes = JSON.parse(document.getElementById("nodes").textContent);
  var pane = document.getElementById("drawing"), drawing = pane.querySelector("svg");
  var list = document.getElementById("list"), chosen = document.getElementById("chosen");
  var tools = document.querySelector(".tools");
  var boxes = Array.from(drawing.querySelectorAll("g.node"));
  var rows = Array.from(list.querySelectorAll("tbody tr"));
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
  boxes.forEach(function (node) {
    var box = node.querySelector("path, polygon, ellipse").getBBox(), room = box.width - 16;
    var texts = Array.from(node.querySelectorAll("text"));
    var heights = texts.map(function (text) {
      return 1.3 * parseFloat(getComputedStyle(text).fontSize);
    });
    var total = heights.reduce(function (sum, height) { return sum + height; }, 0);
    var y = box.y + (box.height - total) / 2;
    texts.forEach(function (text, line) {
      text.setAttribute("text-anchor", "middle");
      text.setAttribute("x", box.x + box.width / 2);
      text.setAttribute("y", y + 0.76 * heights[line]);
      y += heights[line];
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
  if (boxes.length) { centre(boxes[0]); }

  function index(box) { return Number(box.id.slice(4)); }
  function choose(number, scroll) {
    boxes.forEach(function (box) {
      var is_this = index(box) === number;
      box.classList.toggle("chosen", is_this);
      if (is_this && scroll && !pane.hidden) {
        pane.scrollTop += centre(box) - pane.clientHeight / 2;
      }
    });
    rows.forEach(function (row) {
      var is_this = Number(row.dataset.node) === number;
      row.classList.toggle("chosen", is_this);
      if (is_this && scroll && !list.hidden) { row.scrollIntoView({ block: "center" }); }
    });
    var facts = document.createElement("dl");
    nodes[number].forEach(function (row) {
      var name = document.createElement("dt"), value = document.createElement("dd");
      name.textContent = row[0];
      value.textContent = row[1];
      facts.append(name, value);
    });
    chosen.replaceChildren(facts);
  }
  boxes.forEach(function (box) {
    box.setAttribute("tabindex", "0");
    box.setAttribute("role", "button");
    box.setAttribute("aria-label", nodes[index(box)].map(function (row) {
      return row[0] + ": " + row[1];
    }).join(", "));
  });
  function from(event, what) {
    var element = event.target.closest(what);
    if (!element) { return; }
    choose(element.id ? index(element) : Number(element.dataset.node), false);
    event.preventDefault();
  }
  pane.addEventListener("click", function (event) { from(event, "g.node"); });
  list.addEventListener("click", function (event) { from(event, "tbody tr"); });
  [[pane, "g.node"], [list, "tbody tr"]].forEach(function (part) {
    part[0].addEventListener("keydown", function (event) {
      if (event.key === "Enter" || event.key === " ") { from(event, part[1]); }
    });
  });

  var tabs = { graph: pane, ops: list };
  function show(name) {
    Object.keys(tabs).forEach(function (each) {
      tabs[each].hidden = each !== name;
      document.getElementById("tab-" + each).setAttribute("aria-selected", each === name);
    });
    tools.hidden = name !== "graph";
  }
  Object.keys(tabs).forEach(function (name) {
    document.getElementById("tab-" + name).onclick = function () { show(name); };
  });

  var search = document.getElementById("search"), matches = [], next = 0;
  search.addEventListener("input", function () {
    var words = search.value.toLowerCase().split(" ").filter(Boolean);
    matches = [];
    nodes.forEach(function (facts, number) {
      var text = facts.join(" ").toLowerCase();
      if (words.every(function (word) { return text.includes(word); })) { matches.push(number); }
    });
    pane.classList.toggle("searching", words.length > 0);
    boxes.forEach(function (box) {
      box.classList.toggle("match", matches.includes(index(box)));
    });
    rows.forEach(function (row) { row.hidden = !matches.includes(Number(row.dataset.node)); });
    next = 0;
    document.getElementById("matches").textContent = words.length
      ? matches.length + (matches.length === 1 ? " match" : " matches") + "; Enter: the next one"
      : "";
  });
  search.addEventListener("keydown", function (event) {
    if (event.key === "Enter" && matches.length) {
      choose(matches[next % matches.length], true);
      next += 1;
    }
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "/" && document.activeElement !== search) {
      search.focus();
      event.preventDefault();
    }
  });

  list.querySelectorAll("th button").forEach(function (button, column) {
    button.onclick = function () {
      var head = button.parentElement, body = list.querySelector("tbody");
      var descending = head.getAttribute("aria-sort") === "ascending";
      list.querySelectorAll("th").forEach(function (each) { each.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      rows.sort(function (a, b) {
        var left = a.cells[column].textContent, right = b.cells[column].textContent;
        return (descending ? -1 : 1) * left.localeCompare(right, "en", { numeric: true });
      });
      body.append.apply(body, rows);
    };
  });
  document.querySelectorAll("a[data-partition]").forEach(function (link) {
    link.onclick = function (event) {
      event.preventDefault();
      show("graph");
      pane.scrollTop += centre(document.getElementById(link.dataset.partition)) - 8;
    };
  });
})();
"""

PAGE = string.Template(
    """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>"""
    + _STYLE
    + """</style>
</head>
<body>
<header>
<h1>$title</h1>
<div>$summary</div>
<div class="bar"><div style="width: $percent%"></div></div>
<div class="facts">$facts</div>
<div class="legend">
<span><i style="background: #dbeafe; border-color: #1d4ed8"></i>runs on oneDNN, fused ops in one
box</span>
<span><i style="background: #eff6ff; border-color: #93c5fd"></i>partition: one call of oneDNN's
module</span>
<span><i style="background: #fef3c7; border: 2px dashed #b45309"></i>dashed: stays on TVM, with the
reason</span>
</div>
</header>
<main>
<aside>
<input id="search" type="search" placeholder="Search ops, names, reasons (/)"
 aria-label="Search ops, names and reasons">
<div id="matches" role="status"></div>
<h2>Selected op</h2>
<div id="chosen">Select a box of the graph or a row of the list.</div>
$tables
</aside>
<div id="view">
<div id="tabs" role="tablist">
<button id="tab-graph" role="tab" aria-controls="drawing" aria-selected="true">Graph</button>
<button id="tab-ops" role="tab" aria-controls="list" aria-selected="false">Ops</button>
</div>
<div id="drawing" role="tabpanel" aria-labelledby="tab-graph">
$drawing
</div>
<div id="list" role="tabpanel" aria-labelledby="tab-ops" hidden>
$list
</div>
<div class="tools">
<button id="smaller" title="Smaller" aria-label="Smaller">&minus;</button>
<button id="larger" title="Larger" aria-label="Larger">+</button>
<button id="fit" title="Fit the width">fit</button>
</div>
</div>
</main>
<script type="application/json" id="nodes">$nodes</script>
<script>"""
    + _SCRIPT
    + """</script>
</body>
</html>
"""
)
