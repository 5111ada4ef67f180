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
"""What a browser makes of a page of the report: where boxes and texts are, and the time it took."""

import html
import json
import re

from scripts.browser import browse

# Runs after the page's own script, and leaves what it measured in the document's title.
_MEASURE = """
<script>
window.addEventListener("load", function () {
  function at(element) {
    var r = element.getBoundingClientRect();
    return [r.left, r.top, r.right, r.bottom];
  }
  function list(where, what) { return Array.from(where.querySelectorAll(what)); }
  var boxes = list(document, "g.node").map(function (node) {
    return {
      id: node.id,
      at: at(node.querySelector("path, polygon, ellipse")),
      texts: list(node, "text").map(at)
    };
  });
  var partitions = {};
  list(document, "g.cluster").forEach(function (cluster) {
    partitions[cluster.id] = at(cluster.querySelector("path, polygon"));
  });
  var pane = at(document.getElementById("drawing"));
  var box = document.querySelector("g.node.dnnl");
  if (box) { box.dispatchEvent(new MouseEvent("click", { bubbles: true })); }
  document.title = JSON.stringify({
    boxes: boxes,
    partitions: partitions,
    pane: pane,
    tools: at(document.querySelector(".tools")),
    chosen: document.getElementById("chosen").textContent,
    milliseconds: performance.now(),
    errors: window.errors
  });
});
</script>
"""
_CATCH = "<script>window.errors = []; onerror = function (text) { errors.push(text); };</script>"


def read_page(path, size=(1500, 1000), font=None):
    """Open a page in a browser without a window.

    Parameters
    ----------
    path : Path
        The page. It is not changed.
    size : tuple[int, int]
        Of the window, in pixels.
    font : str | None
        What the drawing is to be written in, as if its own fonts were not there.

    Returns
    -------
    dict
        ``boxes``: of each node its id, its rectangle (left, top, right, bottom) and those of its
        texts; ``partitions``: rectangles by id; ``pane``: that of what the drawing is seen
        through; ``tools``: that of the buttons; ``chosen``: the text after a click on a box of
        oneDNN; ``milliseconds`` until it was loaded; ``errors`` of its scripts.
    """
    text = path.read_text(encoding="utf-8")
    if font is not None:
        text = re.sub("(#drawing svg text { font-family: )[^;}]*", rf"\1{font}", text)
    text = text.replace("<head>", "<head>" + _CATCH, 1).replace("</body>", _MEASURE + "</body>", 1)
    dom = browse(path.with_name("measured.html"), text, "--dump-dom", size=size)
    title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL).group(1)
    return json.loads(html.unescape(title))
