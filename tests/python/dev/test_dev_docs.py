# SPDX-License-Identifier: Apache-2.0
"""The checks of the documentation find what they are there for."""

import re
import subprocess
import sys

import pytest

from scripts import cli
from scripts.docs import docs
from scripts.errors import SetupError
from scripts.layout import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("patches/*.md")])
FOLDERS = ("apps", "cmake", "docs", "patches", "python", "requirements", "scripts", "src", "tests")
# How pages write folders whose path is long, and where these are.
SHORT = {
    "_dnnl": "python/tvm/relay/op/contrib",
    "onednn": "python/tvm/contrib",
    "core": "src/runtime/contrib/dnnl",
}
# Of this checkout, as a word of its own: no part of an address or of a longer path.
PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./*{{}},-]*[\w*}}/]")


def paths(text):
    """Return the paths that a text names, each of `a/{b,c}` on its own."""
    for short, folder in SHORT.items():
        text = text.replace(f"`{short}/", f"`{folder}/{short}/")
    for path in PATH.findall(text):
        before, brace, rest = path.partition("{")
        parts, _, after = rest.partition("}")
        yield from (before + part + after for part in parts.split(",")) if brace else [path]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_paths_that_a_page_names_are_there(page):
    named = set(paths(page.read_text(encoding="utf-8")))
    assert [path for path in sorted(named) if not any(ROOT.glob(path))] == []


def test_paths_in_a_text():
    text = "`src/a/{b,c}.cc`, tests/x.py. https://h/docs/y, build/docs/z (python/tvm/) a/src/b"
    assert list(paths(text)) == ["src/a/b.cc", "src/a/c.cc", "tests/x.py", "python/tvm/"]
    assert list(paths("`_dnnl/ir/`")) == ["python/tvm/relay/op/contrib/_dnnl/ir/"]
    assert list(paths("`core/ops/`")) == ["src/runtime/contrib/dnnl/core/ops/"]


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
