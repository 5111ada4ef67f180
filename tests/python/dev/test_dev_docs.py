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

import subprocess
import sys

import pytest

from scripts import cli
from scripts.docs import docs
from scripts.errors import SetupError
from scripts.layout import ROOT


def build(folder, *lines):
    """Build a small folder of pages as `./dev.py docs` does; return the exit code and messages."""
    pytest.importorskip("sphinx", reason="`./dev.py docs` installs it, and runs this")
    text = "\n\n".join(["# A title", "```{toctree}\nother\n```", *lines])
    (folder / "index.md").write_text(text + "\n")
    (folder / "other.md").write_text("# Another\n")
    command = [sys.executable, "-m", "sphinx", *docs.SPHINX, "-c", ROOT / "docs"]
    done = subprocess.run(
        [*command, folder, folder / "built"], capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stderr


def test_links_that_lead_somewhere(tmp_path):
    inside = "[x](#a-title) [y](other.md#another) [z](other.md) <project:other.md>"
    outside = "[x](https://example.org/#x) [y](mailto:a@example.org)"
    code, messages = build(tmp_path, inside, outside)
    assert code == 0, messages


def test_a_broken_link_is_an_error(tmp_path):
    broken = {
        "[x](#nowhere)": "cross-reference target not found: 'nowhere'",
        "[x](other.md#nowhere)": "local id not found in doc 'other': 'nowhere'",
        "[x](../a.md)": "cross-reference target not found: '../a.md'",
        "[x](a.txt)": "cross-reference target not found: 'a.txt'",
        "![x](no%20image.png)": "image file not readable: no%20image.png",
        "{py:func}`no_such`": "py:func reference target not found: no_such",
    }
    code, messages = build(tmp_path, *broken)
    assert code != 0
    assert [message for message in broken.values() if message not in messages] == []


def test_wrong_arguments(capsys):
    with pytest.raises(SetupError, match="docs takes no argument all"):
        cli.parse(["docs", "all"])
    with pytest.raises(SystemExit):
        cli.parse(["docs", "--pages", "--blocks"])
    assert "--blocks: not allowed with argument --pages" in capsys.readouterr().err
