# SPDX-License-Identifier: Apache-2.0
"""Tests of the backend run models in their own type where the CPU has it."""

import pytest

from dnnl_tests.pretended_cpu import own_types


@pytest.fixture(autouse=True, scope="session")
def types_of_models():
    """Test the kernels of each type, also of one in which the CPU is slow."""
    with own_types():
        yield
