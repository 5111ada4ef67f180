# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a small TVM-like tree, and a checkout whose patch set fits it."""

import pytest
import small_tree

from scripts.patchset.patch_set import PatchSet


@pytest.fixture
def tvm(tmp_path):
    """A TVM-like tree at v0.19.0."""
    return small_tree.make_tvm(tmp_path / "tvm")


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose patch set fits that tree."""
    return small_tree.make_checkout(tmp_path / "checkout")


@pytest.fixture
def patch_set(checkout):
    """That checkout's patch set."""
    return PatchSet(checkout)
