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
