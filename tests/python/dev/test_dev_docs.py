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
"""The checks of the documentation find what they are there for."""

import pytest

from scripts import cli
from scripts.docs import links
from scripts.errors import SetupError


def test_broken_links(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="#top"></a><a href="sub/b.html#here"></a><a href="a.html"></a>'
        '<a href="https://example.org/#x"></a><a href="mailto:a@example.org"></a>'
        '<a href="#nowhere"></a><a href="sub/b.html#there"></a><img src="no%20image.png">'
    )
    (tmp_path / "sub" / "b.html").write_text('<a name="here"></a><a href="../c.html">c</a>')
    assert list(links.broken_links(tmp_path)) == [
        "a.html: the link #nowhere leads to no place in the page",
        "a.html: the link no%20image.png leads to no file",
        "a.html: the link sub/b.html#there leads to no place in the page",
        "sub/b.html: the link ../c.html leads to no file",
    ]


def test_wrong_arguments(capsys):
    with pytest.raises(SetupError, match="docs takes no argument all"):
        cli.parse(["docs", "all"])
    with pytest.raises(SystemExit):
        cli.parse(["docs", "--pages", "--blocks"])
    assert "--blocks: not allowed with argument --pages" in capsys.readouterr().err
