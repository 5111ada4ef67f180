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
"""Checks that the core of the runtime includes no TVM, and that the policy imports no IR of it."""

import ast
import re

from scripts.patchset.shared import shared

CORE = "src/runtime/contrib/dnnl/core"
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
_OF_TVM = ("tvm/", "dmlc/")

# All that is to be had of the module tvm there.
_ANY_TVM = ("__version__", "get_global_func", "ir", "IRModule", "transform")


def check_core(root):
    """Yield a message for each file of the core that includes a header of TVM."""
    known = {}

    def way(path):
        """Return the includes that lead from a file to TVM, an empty list if none does."""
        if path not in known:
            known[path] = []  # a header that includes itself ends here
            for kind, name in _INCLUDE.findall(path.read_text(encoding="utf-8")):
                ours = (path.parent / name).resolve()
                rest = way(ours) if kind == '"' and ours.is_file() else []
                if rest or name.startswith(_OF_TVM):
                    known[path] = [name, *rest]
                    break
        return known[path]

    for path in sorted((root / CORE).rglob("*.[ch]*")):
        if includes := way(path):
            yield f"{path.relative_to(root)}: the core includes TVM: {' > '.join(includes)}"


def check_policy(root):
    """Yield a message for each import of what Relay and Relax share that only one of them has."""
    files = shared(root)
    for path in sorted(files):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in _foreign(path, node, files):
                yield f"{path.relative_to(root)}:{node.lineno}: the policy uses {name}"


def _foreign(path, node, files):
    """Return what an import, or an attribute of tvm, names outside of the shared files."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name.startswith("tvm.")]
    if isinstance(node, ast.Attribute):
        is_of_tvm = isinstance(node.value, ast.Name) and node.value.id == "tvm"
        return [f"tvm.{node.attr}"] if is_of_tvm and node.attr not in _ANY_TVM else []
    if not isinstance(node, ast.ImportFrom):
        return []
    if not node.level:
        return [node.module] if node.module.split(".")[0] == "tvm" else []
    base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
    if base.with_suffix(".py") in files:
        return []
    names = (alias.name for alias in node.names)
    dots = "." * node.level + (node.module or "")
    return [f"{dots} {name}" for name in names if base / f"{name}.py" not in files]
