# SPDX-License-Identifier: Apache-2.0
"""What plain `pytest` sets as `./dev.py test` does: an op that cannot be written is a failure."""

import os
from pathlib import Path

os.environ.setdefault("TVM_DNNL_STRICT", "1")
# Processes that tests start import the modules of the tests, too.
_TESTS = Path(__file__).resolve().parents[2]
_PLACES = [_TESTS / "relax", _TESTS / "contrib", os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(str(place) for place in _PLACES if place)
