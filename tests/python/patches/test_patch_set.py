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
"""The patch set keeps its own rules."""

import os
import re

import pytest

from scripts.layout import ROOT
from scripts.patchset.patch_set import Patch, PatchSet, read_list

PATCH_SET = PatchSet()
PATCHES = sorted((ROOT / "patches").rglob("*.patch"))
TAGS = sorted(PATCH_SET.commits)

ONEDNN = {"dnnl.h", "dnnl.hpp", "dnnl_config.h", "dnnl_debug.h"}


def name_of(path):
    return path.relative_to(ROOT / "patches").as_posix()


def test_versions():
    assert PATCH_SET.pinned == "v0.19.0"
    assert TAGS == ["v0.16.0", "v0.17.0", "v0.18.0", "v0.19.0"]
    assert all(re.fullmatch("[0-9a-f]{40}", sha) for sha in PATCH_SET.commits.values())


def test_series_names_every_patch_once():
    series = read_list(ROOT / "patches/series")
    assert len(series) == len(set(series))
    names = {re.sub(r"^v[0-9.]+/", "", name_of(path)) for path in PATCHES}
    assert names == set(series)


@pytest.mark.parametrize("path", PATCHES, ids=name_of)
def test_patch_keeps_the_rules(path):
    patch = Patch(name_of(path), path.read_text())
    assert list(patch.header) == ["Subject", "Why", "Forwarded"]
    assert patch.header["Forwarded"] == "no" or patch.header["Forwarded"].startswith("http")
    assert len(patch.header["Subject"]) <= 72
    lines = path.read_text().splitlines()
    assert max(map(len, lines)) <= 110 and len(lines) <= 60
    assert sum(line.startswith("--- ") for line in lines) == 1, "one concern in one file"
    for hunk in hunks(patch):
        marks = "".join(line[0] for line in hunk)
        assert re.fullmatch(
            r" {3}\++( +\++)* {3}", marks
        ), "a hook only adds, three lines around it"


def hunks(patch):
    """The lines of each hunk."""
    return [part.splitlines()[1:] for part in re.split("^@@", patch.text, flags=re.MULTILINE)[1:]]


def test_remove_list_names_known_files_of_tvm():
    assert set(PATCH_SET.removed) <= set(PATCH_SET.upstream)
    assert len(PATCH_SET.removed) == len(set(PATCH_SET.removed))


def test_every_file_of_tvms_backend_is_dealt_with():
    """A file of the old backend that stays would be compiled against the new headers."""
    left = set(PATCH_SET.upstream) - set(PATCH_SET.removed) - set(PATCH_SET.overlay)
    assert left == set()


def test_overlay_needs_nothing_that_stays_behind():
    """What lies in a TVM tree cannot import this checkout's scripts."""
    for path, source in PATCH_SET.overlay.items():
        if source.suffix == ".py":
            text = source.read_text()
            assert not re.search(r"^\s*(from|import) (scripts|dev)\b", text, re.MULTILINE), path


def test_overlay_includes_resolve_in_a_tvm_tree():
    """An include of ours names a file that is beside it in the tree, too; in tests, one of ours."""
    for path, source in PATCH_SET.overlay.items():
        if source.suffix not in (".cc", ".h"):
            continue
        for name in re.findall(r'^#include "([^"]+)"', source.read_text(), re.MULTILINE):
            target = os.path.normpath(os.path.join(os.path.dirname(path), name))
            ours = target in PATCH_SET.overlay or (
                path.startswith("tests/") and name in PATCH_SET.overlay
            )
            assert ours or name in ONEDNN, f"{path} includes {name}"
