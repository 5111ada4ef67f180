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
"""Finds links of built pages that lead nowhere: to a missing file, or to a missing place in one."""

import functools
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """Collects where a page links to, and the places in it that can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.places = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.places.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


@functools.cache
def _read(path):
    return _Page(path.read_text(encoding="utf-8"))


def broken_links(folder):
    """Yield a message for each broken link between files of a folder.

    Links to other hosts are left out: a build must work without a network.

    Parameters
    ----------
    folder : Path
        Where the pages are.
    """
    for path in sorted(folder.rglob("*.html")):
        for link in sorted(set(_read(path).links)):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path.parent / unquote(parts.path) if parts.path else path
            where = f"{path.relative_to(folder)}: the link {link}"
            if not target.is_file():
                yield f"{where} leads to no file"
            elif parts.fragment and target.suffix == ".html":
                if unquote(parts.fragment) not in _read(target).places:
                    yield f"{where} leads to no place in the page"
