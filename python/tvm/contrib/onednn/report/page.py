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
"""The report as a page, by a package that is no part of TVM."""

from __future__ import annotations

from collections.abc import Iterable


def to_html(
    self,
    title: str = "What runs on oneDNN",
    facts: Iterable[str] = (),
    profile: dict | None = None,
    changes: Iterable[tuple[str, int, int]] = (),
    errors: Iterable[tuple[str, str, str]] = (),
) -> str:
    """Return the report as a page with the graph drawn, which needs no other file.

    The layout is made by Graphviz: `pip install graphviz graphviz-pure`, or the package
    graphviz for Python and a `dot` program of your system.

    Parameters
    ----------
    title : str
        The heading of the page.
    facts : Iterable[str]
        What the header tells, such as the CPU and versions.
    profile : dict | None
        What `./dev.py profile --json` writes: the page has the times of partitions and primitives.
    changes : Iterable[tuple[str, int, int]]
        Of two reports: what is counted, in the earlier one, and now.
    errors : Iterable[tuple[str, str, str]]
        The errors of ops: `page_rows()` of the result of `verify`.

    Raises
    ------
    RuntimeError
        Graphviz is not installed, or failed; or this TVM came without the package that writes
        the page.
    """
    try:
        from dnnl_report_page import make_page  # pylint: disable=import-outside-toplevel
    except ImportError:
        raise RuntimeError(
            "the page is written by the package dnnl_report_page, which is not here. The checkout "
            "that this backend comes from has it, in scripts/report_page: put that on PYTHONPATH, "
            "or run your program by its `./dev.py exec`. Its wheel has it, too"
        ) from None
    return make_page(self, title, facts, profile, changes, errors)
