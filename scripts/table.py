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
"""Tables of text for the terminal."""

import unicodedata


def width(text):
    """Return the columns that a text takes on a terminal: wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def render(header, rows, left=1):
    """Lay out a table.

    Parameters
    ----------
    header : list of str
        Titles of the columns. A newline breaks a title into lines.
    rows : list of list of str
        The cells.
    left : int
        So many of the first columns are aligned to the left, the others to the right.

    Returns
    -------
    str
        The table, with a rule under the header and no newline at the end.
    """
    titles = [title.split("\n") for title in header]
    height = max(map(len, titles))
    top = [[column[i] if i < len(column) else "" for column in titles] for i in range(height)]
    cells = top + [[str(cell) for cell in row] for row in rows]
    widths = [max(width(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        padded = []
        for i, cell in enumerate(row):
            gap = " " * (widths[i] - width(cell))
            padded.append(cell + gap if i < left else gap + cell)
        lines.append("  ".join(padded).rstrip())
    lines.insert(height, "-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(lines)
