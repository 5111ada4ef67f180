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
"""Checks that the Python that Relay and Relax share uses no TVM.

The core of the runtime is compiled without a path to TVM's headers: the compiler checks that.
"""

import ast
import sys

PACKAGE = "python/tvm/contrib/onednn"
# What it may import beside the standard library. The last one writes the page of a report.
_PACKAGES = {"ml_dtypes", "numpy", "dnnl_report_page"}


def check_package(root):
    """Yield a message for each forbidden import in the package that Relay and Relax share.

    It may import itself, the standard library, and the packages in `_PACKAGES`.
    """
    folder = root / PACKAGE
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in _foreign(path, node, folder):
                yield f"{path.relative_to(root)}:{node.lineno}: the shared package imports {name}"


def _foreign(path, node, folder):
    """Return what an import names outside of the package and what that may use."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.level:
        base = path.parents[node.level - 1]
        is_inside = base == folder or folder in base.parents
        return [] if is_inside else ["." * node.level + (node.module or "")]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module]
    else:
        return []
    known = sys.stdlib_module_names | _PACKAGES
    return [name for name in names if name.split(".")[0] not in known]
