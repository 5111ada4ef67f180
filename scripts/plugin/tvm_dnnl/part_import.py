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
"""Imports TVM for this package, without what compiling for a CPU does not need.

TVM's GPU backends, its schedulers and other plug-ins take a third of the time of `import tvm`. They
are loaded when anything but TVM and this package imports a module of TVM, which is then complete.
"""

import contextlib
import importlib.machinery
import os
import sys
import threading
import types
import warnings

from tvm.contrib.onednn.lazy_imports import executed_later

from .fast_import import BACKENDS, uncollected, without_errors

# Packages that TVM's own __init__ imports and that are executed when something of them is used.
_LATER = ("tvm.s_tir.meta_schedule", "tvm.s_tir.dlight")
_AUTOLOAD = "TVM_DEVICE_BACKEND_AUTOLOAD"
# Whose imports do not complete TVM; the machinery of imports is looked through.
_OWN, _MACHINERY = ("tvm", "tvm_dnnl", "tvm_ffi"), "importlib"


def import_tvm():
    """Import TVM, completely if it is imported already. Another thread's import is waited for."""
    if "tvm" not in sys.modules:
        with _Part.lock:
            if "tvm" not in sys.modules:
                _import_part()
    import tvm  # noqa: F401


def _import_part():
    given = os.environ.get(_AUTOLOAD)
    _Part.loads_backends = given != "0"
    os.environ[_AUTOLOAD] = "0"
    try:
        with executed_later(*_LATER):
            import tvm  # noqa: F401
    finally:
        del os.environ[_AUTOLOAD]
        if given is not None:
            os.environ[_AUTOLOAD] = given
    for module in _modules():
        module.__spec__.__class__ = _PartSpec


def _modules():
    """Return the modules of TVM that have been executed and have a spec."""
    return [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "tvm"
        and type(module) is types.ModuleType
        and type(getattr(module, "__spec__", None)) in (importlib.machinery.ModuleSpec, _PartSpec)
    ]


class _Part:
    """Whether TVM is complete, and whether its backends are loaded then."""

    lock = threading.RLock()
    is_completed, loads_backends = False, True


def _complete():
    """Import the rest of TVM, once."""
    with _Part.lock:
        if _Part.is_completed:
            return
        _Part.is_completed = True
        with uncollected(), contextlib.ExitStack() as stack:
            for name in _LATER:
                if name in sys.modules:
                    dir(sys.modules[name])
            if _Part.loads_backends:
                backends = sys.modules[BACKENDS]
                backends._AUTO_LOAD_DONE = False
                stack.enter_context(without_errors())
                backends._autoload_backends()
        for module in _modules():
            module.__spec__.__class__ = importlib.machinery.ModuleSpec


class _PartSpec(importlib.machinery.ModuleSpec):
    """The spec of a module of a part of TVM. Each import statement asks it for `_initializing`."""

    @property
    def _initializing(self):
        frame = sys._getframe(1)
        # First of all, as functions of TVM have thousands of such statements run.
        if not str(frame.f_globals.get("__name__")).startswith("tvm."):
            while _package(frame) == _MACHINERY:
                frame = frame.f_back
            if _package(frame) not in _OWN:
                try:
                    _complete()
                except Exception as error:  # pylint: disable=broad-except
                    # Python ignores exceptions here.
                    text = f"a part of TVM cannot be imported: {error!r}"
                    warnings.warn(text, RuntimeWarning, stacklevel=2)
        return vars(self).get("_initializing", False)

    @_initializing.setter
    def _initializing(self, value):
        vars(self)["_initializing"] = value


def _package(frame):
    """Return the package of the module that a frame executes; nothing at the end of the stack."""
    name = frame.f_globals.get("__name__") if frame is not None else None
    return (name or "").partition(".")[0]
