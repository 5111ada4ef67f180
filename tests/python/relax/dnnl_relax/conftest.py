# SPDX-License-Identifier: Apache-2.0
"""What plain `pytest` sets as `./dev.py test` does: an op that cannot be written is a failure."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("TVM_DNNL_STRICT", "1")
# Processes that tests start import the modules of the tests, too.
_TESTS = Path(__file__).resolve().parents[2]
_PLACES = [_TESTS / "relax", _TESTS / "contrib", os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(str(place) for place in _PLACES if place)


@pytest.fixture(autouse=True, scope="session")
def types_of_models():
    """Test the kernels of each type, also of one in which the CPU is slow."""
    # Plain pytest finds it once the first test is imported.
    from dnnl_tests.pretended_cpu import own_types

    with own_types():
        yield
