# SPDX-License-Identifier: Apache-2.0
"""Tables of text for the terminal."""


def render(header, rows, left=1):
    """Lay out a table.

    Parameters
    ----------
    header : list of str
        Titles of the columns. A newline breaks a title into lines.
    rows : list of list
        The cells.
    left : int
        So many of the first columns are aligned to the left, the others to the right.

    Returns
    -------
    str
        The table, with a rule under the header and no newline at the end.
    """
    # Here: --help runs without the environment, which has it.
    from tabulate import tabulate

    sides = ["left"] * left
    return tabulate(rows, header, colalign=sides, colglobalalign="right", disable_numparse=True)
