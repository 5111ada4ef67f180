# SPDX-License-Identifier: Apache-2.0
"""Tables of text for the terminal, and in Markdown for the docs."""


def render(header, rows, left=1):
    """Lay out a table, with a rule under the header and no newline at the end.

    A newline breaks a title into lines. So many as `left` of the first columns are aligned to the
    left, the others to the right.
    """
    # Here: --help runs without the environment, which has it.
    from tabulate import tabulate

    sides = ["left"] * left
    return tabulate(rows, header, colalign=sides, colglobalalign="right", disable_numparse=True)


def markdown(header, rows):
    """Return a table in Markdown, with a newline at the end."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
