# SPDX-License-Identifier: Apache-2.0
"""The document about C source shows what the code generator makes now."""

import re

import pytest
from tvm.testing import dnnl as testing

from scripts.layout import ROOT

DOCUMENT = ROOT / "docs" / "c_source.md"


def block(language):
    """Return the first code block of a language in the document."""
    return re.search(rf"^```{language}\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S).group(1)


@pytest.fixture
def lib(tmp_path, monkeypatch):
    """Run the example; return the library that it builds. It exports it, too."""
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(block("python"), str(DOCUMENT), "exec"), names)
    assert (tmp_path / "model.so").is_file()
    return names["lib"]


def test_the_generated_code_is_the_one_of_the_example(lib):
    (source,) = testing.c_sources(lib)
    assert block("c").rstrip() == source.rstrip()
