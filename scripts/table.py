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
