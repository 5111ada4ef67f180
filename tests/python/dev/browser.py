# SPDX-License-Identifier: Apache-2.0
"""What a browser makes of a page of the report: where boxes and texts are, and the time it took."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from scripts.docs.picture import find_browser

# By name: where it is, or None, and its words. The size of Firefox is in variables. (A `firefox` of
# Ubuntu is a snap, which has no access to our profile.)
BROWSERS = {
    "chromium": (
        find_browser(),
        "--headless=new --no-sandbox --disable-gpu --user-data-dir={profile} --window-size={size}",
    ),
    "firefox": (
        shutil.which("firefox-esr"),
        "--headless --kiosk --no-remote --profile {profile}",
    ),
}
# Seconds for a page; a busy machine may need many.
PATIENCE = 180

# Runs after the page's own script, and sends what it measured.
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
  var text = document.getElementById("chosen").textContent;
  // What a keyboard does: Enter on a focused box, a search, and the list of ops.
  var last = list(document, "g.node").pop();
  last.focus();
  last.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  var search = document.getElementById("search");
  search.value = "conv2d relu";
  search.dispatchEvent(new Event("input"));
  document.getElementById("tab-ops").click();
  var rows = list(document, "#list tbody tr");
  fetch("/", { method: "POST", body: JSON.stringify({
    focused: document.activeElement.id,
    by_keyboard: document.getElementById("chosen").textContent,
    searched: document.getElementById("matches").textContent,
    rows: rows.length,
    shown_rows: rows.filter(function (row) { return row.offsetHeight > 0; }).length,
    boxes: boxes,
    partitions: partitions,
    pane: pane,
    tools: at(document.querySelector(".tools")),
    chosen: text,
    milliseconds: performance.now(),
    errors: window.errors
  }) });
});
</script>
"""
_CATCH = "<script>window.errors = []; onerror = function (text) { errors.push(text); };</script>"


class _Handler(BaseHTTPRequestHandler):
    """Serves the page of a server, and keeps what that sends."""

    def do_GET(self):
        self._answer(200 if self.path == "/" else 404, self.server.page.encode())

    def do_POST(self):
        self.server.measured = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(200, b"")

    def _answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        """Say nothing."""


def read_page(browser, path, size=(1500, 1000), font=None):
    """Open a page in a browser without a window.

    Parameters
    ----------
    browser : str
        One of BROWSERS.
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
    program, words = BROWSERS[browser]
    environ = dict(os.environ, MOZ_HEADLESS_WIDTH=str(size[0]), MOZ_HEADLESS_HEIGHT=str(size[1]))
    profiles = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    # A browser may open a connection that it does not use: a thread waits for it.
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server, profiles as profile:
        server.page, server.measured, server.timeout = text, None, 0.1
        words = [word.format(profile=profile, size="{},{}".format(*size)) for word in words.split()]
        command = [program, *words, f"http://127.0.0.1:{server.server_port}/"]
        silent = subprocess.DEVNULL
        process = subprocess.Popen(command, env=environ, stdout=silent, stderr=silent)
        try:
            deadline = time.monotonic() + PATIENCE
            while server.measured is None:
                assert time.monotonic() < deadline, f"{browser} has not measured the page"
                server.handle_request()
        finally:
            process.terminate()
            process.wait()
    return server.measured
