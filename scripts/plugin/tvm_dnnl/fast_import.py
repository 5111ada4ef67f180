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
"""A faster `import tvm` with the same result.

TVM 0.26 and 0.27 list all global functions for each of 51 modules. They also ask for ops that do
not exist, and register names of ops twice, and ignore the errors; the first error of a process
reads the debug information of all its libraries. Both take half of the time of the import.
"""

import bisect
import contextlib
import gc
import importlib.machinery
import sys

import tvm_ffi.registry

# The module of TVM that ignores errors; all ops are registered before.
BACKENDS = "tvm.backend._autoload_backends"
_PRINTED_NAME = "TScriptPrinterName"
# Follows all names in their order.
_LAST = chr(sys.maxunicode)


class Finder:
    """Finds the package tvm for a loader of this file."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Return the spec of the package tvm; see `importlib.abc.MetaPathFinder`."""
        if name != "tvm":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module):
        with contextlib.ExitStack() as stack:
            stack.enter_context(uncollected())
            stack.enter_context(_listed_once())
            sys.meta_path.insert(0, finder := _BackendsFinder(stack))
            stack.callback(sys.meta_path.remove, finder)
            super().exec_module(module)


@contextlib.contextmanager
def uncollected():
    """Spare the garbage collector what an import creates, until the next full collection."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()


@contextlib.contextmanager
def _listed_once():
    """Let tvm-ffi list the global functions only if some were added since the last time.

    A module of TVM that wants those of its own is shown only these.
    """
    own_list = getattr(tvm_ffi.registry, "list_global_func_names", None)
    own_init = getattr(tvm_ffi, "init_ffi_api", None)
    if own_list is None or own_init is None:
        yield
        return
    names, prefix = [], ""

    def list_names():
        name_of = tvm_ffi.get_global_func("ffi.FunctionListGlobalNamesFunctor")()
        count = name_of(-1)
        if count != len(names):
            names[:] = sorted(map(name_of, range(count)))
        first, last = (bisect.bisect_left(names, end) for end in (prefix, prefix + _LAST))
        return names[first:last]

    def init_api(namespace, target_module_name=None):
        nonlocal prefix
        prefix = namespace.removeprefix("tvm.")
        try:
            own_init(namespace, target_module_name)
        finally:
            prefix = ""

    tvm_ffi.registry.list_global_func_names, tvm_ffi.init_ffi_api = list_names, init_api
    try:
        yield
    finally:
        tvm_ffi.registry.list_global_func_names, tvm_ffi.init_ffi_api = own_list, own_init


class _BackendsFinder:
    """Is asked for `BACKENDS` when it is imported, and finds nothing itself.

    Parameters
    ----------
    stack : contextlib.ExitStack
        Undoes what is replaced then.
    """

    def __init__(self, stack):
        self._stack = stack

    def find_spec(self, name, path=None, target=None):
        if name == BACKENDS:
            self._stack.enter_context(without_errors())


@contextlib.contextmanager
def without_errors():
    """Let TVM's functions not raise errors of C++ in cases whose errors TVM ignores."""
    api = sys.modules.get("tvm.ir._ffi_api")
    functions = [getattr(api, each, None) for each in ("GetOp", "RegisterOpAttr", "ListOpNames")]
    if None in functions:
        yield
        return
    get, register, list_ops = functions
    ops = set(map(str, list_ops()))

    def get_op(name):
        if str(name) not in ops:
            raise AttributeError(f"Operator {name} is not registered")
        return get(name)

    def register_attr(name, key, value, level):
        if key == _PRINTED_NAME and name in ops and get(name).get_attr(key) == value:
            return
        register(name, key, value, level)

    api.GetOp, api.RegisterOpAttr = get_op, register_attr
    try:
        yield
    finally:
        api.GetOp, api.RegisterOpAttr = get, register
