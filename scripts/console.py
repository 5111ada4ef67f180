# SPDX-License-Identifier: Apache-2.0
"""The progress of commands: the backend's own, also on a Python that has no TVM."""

import importlib.util
import sys

from scripts.layout import ROOT

_NAME = "tvm.contrib.onednn.progress"

if _NAME not in sys.modules:
    # Without the packages around it, which import TVM. They find it where it is.
    _PATH = ROOT / "python" / f"{_NAME.replace('.', '/')}.py"
    _SPEC = importlib.util.spec_from_file_location(_NAME, _PATH)
    sys.modules[_NAME] = importlib.util.module_from_spec(_SPEC)
    _SPEC.loader.exec_module(sys.modules[_NAME])

_PROGRESS = sys.modules[_NAME]
Console = _PROGRESS.Console


def passes_noted():
    """Return a context in which the running step tells the passes of TVM."""
    import tvm

    return _PROGRESS.passes_noted(tvm)
