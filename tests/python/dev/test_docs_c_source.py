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
