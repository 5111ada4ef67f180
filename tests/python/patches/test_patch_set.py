# SPDX-License-Identifier: Apache-2.0
"""The patch set keeps its own rules."""

import os
import re

import pytest

from scripts.layout import ROOT
from scripts.lint.text_rules import HEADER, SHORT, WITH_HEADER
from scripts.patchset.patch_set import RELAX, RELAY, Patch, PatchSet, read_list

PATCH_SETS = {"relay": PatchSet(), "relax": PatchSet(kind=RELAX)}
# Those of the prebuilt tree mend what TVM's releases have mended; those of upstream are offers.
PREBUILT = ROOT / "patches" / "prebuilt"
OWN = PREBUILT, *(ROOT / "patches" / "upstream").iterdir()  # in no series
PATCHES = [p for p in sorted((ROOT / "patches").rglob("*.patch")) if p.parent not in OWN]

ONEDNN = {"dnnl.h", "dnnl.hpp", "dnnl_config.h", "dnnl_debug.h"}


@pytest.fixture(params=PATCH_SETS.values(), ids=PATCH_SETS)
def patch_set(request):
    """Both patch sets in turn."""
    return request.param


def name_of(path):
    return path.relative_to(ROOT / "patches").as_posix()


def test_versions():
    relay, relax = PATCH_SETS["relay"], PATCH_SETS["relax"]
    assert relay.pinned == "v0.19.0"
    assert sorted(relay.commits) == ["v0.16.0", "v0.17.0", "v0.18.0", "v0.19.0"]
    assert sorted(relax.commits) == ["main", "v0.26.0", "v0.27.0"]
    commits = {**relay.commits, **relax.commits}
    assert commits.pop("v0.27.0") == "-"
    assert all(re.fullmatch("[0-9a-f]{40}", sha) for sha in commits.values())


def test_series_names_every_patch_once(patch_set):
    series = read_list(patch_set.folder / "series")
    assert len(series) == len(set(series))
    others = ROOT / RELAX.folder
    paths = [path for path in PATCHES if path.is_relative_to(patch_set.folder)]
    if patch_set.kind is RELAY:
        paths = [path for path in paths if not path.is_relative_to(others)]
    names = (path.relative_to(patch_set.folder).as_posix() for path in paths)
    assert {re.sub(r"^v[0-9.]+/", "", name) for name in names} == set(series)


def test_a_tree_gets_the_files_of_its_kind():
    """What is for Relay is in no tree with Relax, and the other way round."""
    relay, relax = (set(PATCH_SETS[kind].overlay) for kind in ("relay", "relax"))
    assert not any(re.match("python/tvm/relay|src/relay|src/runtime/contrib", p) for p in relax)
    assert not any(re.search("relax|src/runtime/extra", path) for path in relay)
    shared = ("tests/cpp-runtime/", "tests/python/graph/", "python/tvm/contrib/onednn/")
    common = {path for path in relay & relax if not path.startswith(shared)}
    assert common == {"cmake/modules/contrib/DNNL.cmake", "cmake/utils/FindDNNL.cmake"}


def test_the_shared_package_is_the_same_in_every_tree():
    relax = PATCH_SETS["relax"]
    files = [path for path in relax.overlay if path.startswith("python/tvm/contrib/onednn/")]
    assert len(files) > 20
    for path in files:
        assert relax.state(path, link=False).data == (ROOT / path).read_bytes(), path


def test_a_file_of_relax_names_its_own_place():
    """A file that moves into a tree with Relax names its own place, not where it was."""
    relax = PATCH_SETS["relax"]
    for path in relax.overlay:
        text = relax.state(path, link=False).data.decode()
        # `dnnl` is no module of its own there; the namespace json has TVM's classes.
        assert not re.search("src/runtime/contrib|op/contrib/_dnnl|tvm_dnnl[. ]", text), path
        assert not re.search(r"^ *(from|import) dnnl\b", text, re.MULTILINE), path
        assert not re.search("namespace json|(?<!_)json::", text), path
        if path.startswith("src/"):
            assert f" * \\file {path}\n" in text
        if path.startswith("src/") and path.endswith(".h"):
            guard = re.sub("[/.]", "_", path.removeprefix("src/")).upper()
            assert f"#ifndef TVM_{guard}_\n" in text


def test_a_copy_has_the_header_of_tvm(patch_set):
    """Also one of a test, which has a line instead in this checkout."""
    for path, source in patch_set.overlay.items():
        if source.suffix in WITH_HEADER:
            text = patch_set.state(path, link=False).data.decode()
            assert text.startswith(("# " + HEADER, "/*\n * " + HEADER)), path
            assert HEADER in text[:100] and text.count(HEADER) == 1 and SHORT not in text, path


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
        assert re.fullmatch(r" {3}\++( +\++)* {3}", marks), (
            "a hook only adds, three lines around it"
        )


def hunks(patch):
    """The lines of each hunk."""
    return [part.splitlines()[1:] for part in re.split("^@@", patch.text, flags=re.MULTILINE)[1:]]


def test_remove_list_names_known_files_of_tvm(patch_set):
    assert set(patch_set.removed) <= set(patch_set.upstream)
    assert len(patch_set.removed) == len(set(patch_set.removed))


def test_every_file_of_tvms_backend_is_dealt_with(patch_set):
    """A file of the old backend that stays would be compiled against the new headers."""
    left = set(patch_set.upstream) - set(patch_set.removed) - set(patch_set.overlay)
    assert left == set()


def test_overlay_needs_nothing_that_stays_behind(patch_set):
    """What lies in a TVM tree cannot import this checkout's scripts."""
    for path, source in patch_set.overlay.items():
        if source.suffix == ".py":
            text = source.read_text()
            assert not re.search(r"^\s*(from|import) (scripts|dev)\b", text, re.MULTILINE), path


def test_overlay_includes_resolve_in_a_tvm_tree(patch_set):
    """An include of ours names a file that is beside it in the tree, too; in tests, one of ours."""
    for path in patch_set.overlay:
        if not path.endswith((".cc", ".h")):
            continue
        text = patch_set.state(path, link=False).data.decode()
        for name in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
            target = os.path.normpath(os.path.join(os.path.dirname(path), name))
            ours = target in patch_set.overlay or (
                path.startswith("tests/") and name in patch_set.overlay
            )
            assert ours or name in ONEDNN, f"{path} includes {name}"
