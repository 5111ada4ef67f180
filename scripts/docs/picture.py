# SPDX-License-Identifier: Apache-2.0
"""Draws the picture of a report that README and the first page of the docs show.

A Chromium without a window draws it.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

_NAMES = ("chromium", "chromium-browser", "google-chrome")
MODEL = "rec"
_SIZE = (1100, 620)
# So that the panel beside the drawing shows what a click tells.
_CLICK = """
<script>
window.addEventListener("load", function () {
  var boxes = document.querySelectorAll("g.node.dnnl");
  boxes[1].dispatchEvent(new MouseEvent("click", { bubbles: true }));
});
</script>
"""


def find_browser():
    """Return the path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def main(target):
    """Write the page of a real model's report as a picture to the PNG file `target`."""
    # Here: the command asks for the browser without the environment.
    from dnnl_tests.models.workloads import WORKLOADS
    from tvm.relay.op.contrib import dnnl

    workload = WORKLOADS[MODEL]
    mod = dnnl.partition_for_dnnl(*workload.load())
    page = dnnl.offload_report(mod).to_html(f"{workload.title} on oneDNN")
    # Chromium keeps a profile even so; a path of its own, as the user may have one open.
    with TemporaryDirectory() as folder, TemporaryDirectory() as profile:
        path = Path(folder) / "report.html"
        path.write_text(page.replace("</body>", _CLICK + "</body>", 1), encoding="utf-8")
        command = [find_browser(), "--headless=new", "--no-sandbox", "--disable-gpu"]
        command += [f"--user-data-dir={profile}", "--window-size={},{}".format(*_SIZE)]
        command += [f"--screenshot={target}", "--hide-scrollbars", path.as_uri()]
        subprocess.run(command, capture_output=True, timeout=180, check=True)


if __name__ == "__main__":
    main(sys.argv[1])
