# SPDX-License-Identifier: Apache-2.0
"""The table of oneDNN's faults in the documentation, read from the runtime."""

import tvm

MARKS = ("<!-- faults: begin -->\n", "<!-- faults: end -->\n")
HEADER = ("fault", "versions", "workaround", "known")


def text():
    """Return the table as Markdown."""
    rows = [list(map(str, row)) for row in tvm.get_global_func("runtime.contrib.dnnl.faults")()]
    head, *lines = (f"| {' | '.join(line)} |\n" for line in (HEADER, *rows))
    return "".join([head, "|---" * len(HEADER) + "|\n", *lines])
