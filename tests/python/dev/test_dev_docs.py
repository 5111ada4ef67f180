# SPDX-License-Identifier: Apache-2.0
"""The documentation names files that are there; the options of `./dev.py docs`."""

import ast
import re

import pytest

from scripts import cli
from scripts.docs.resources import outside_resources
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


# The module whose `__all__` has the names, and how the API page describes one.
APIS = {
    "python/tvm/relax/backend/contrib/dnnl.py": r"^\.\. relax-function:: (\w+)",
    "python/tvm/relay/op/contrib/dnnl.py": r"^\.\. auto(?:function|class|exception):: (\w+)",
}


@pytest.mark.parametrize("module", APIS, ids=lambda module: module.split("/")[2])
def test_the_api_page_has_every_public_name(module):
    """The classes that both packages have are described once, and named in the other's text."""
    page = (ROOT / "docs" / "api.md").read_text()
    names = re.search(r"^__all__ = (\[.*?\])", (ROOT / module).read_text(), re.M | re.S)[1]
    names = set(ast.literal_eval(names))
    own, _, rest = page.partition("## `tvm.relay.op.contrib.dnnl`")
    text = rest.partition("## `tvm.testing.dnnl`")[0] if "relay" in module else own
    described = re.findall(APIS[module], text, re.MULTILINE)
    classes = {name for name in names if name[0].isupper()} if "relax" in module else set()
    assert len(described) == len(set(described))
    assert set(described) == names - classes
    assert {name for name in classes if f"`{name}`" not in own} == set()


def test_wrong_arguments(capsys):
    with pytest.raises(SetupError, match="docs takes no argument all"):
        cli.parse(["docs", "all"])
    with pytest.raises(SystemExit):
        cli.parse(["docs", "--pages", "--blocks"])
    assert "--blocks: not allowed with argument --pages" in capsys.readouterr().err


def test_pages_load_nothing_from_another_host(tmp_path):
    """`./dev.py docs` checks the built pages; TVM's theme has each of these kinds."""
    loads = {
        "a.html": '<link rel="stylesheet" href="https://cdn.test/a.css" integrity="x">',
        "b.html": "<script\nid=x src=//cdn.test/b.js></script>",
        "c.html": '<p style="background: url(http://cdn.test/c.png)">',
        "d.css": '@import url("https://fonts.test/css2?family=PT+Sans:wght@400;700");',
        "e.css": "@font-face { src: url('https://fonts.test/e.woff2') }",
        "f.svg": '<svg><image xlink:href="https://cdn.test/f.png"/></svg>',
    }
    fine = {
        "fine.html": '<a href="https://tvm.apache.org">TVM</a><img src="_static/a.png">'
        '<link rel="stylesheet" href="_static/a.css"><svg xmlns="http://www.w3.org/2000/svg"/>',
        "fine.css": "/* https://cdn.test */ a { background: url(data:image/png;base64,//8=) }",
    }
    for name, text in {**loads, **fine}.items():
        (tmp_path / name).write_text(text)
    assert [each.split(":")[0] for each in outside_resources(tmp_path)] == sorted(loads)
