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
"""Checks that the core of the runtime includes no TVM, neither directly nor through our headers."""

import re

CORE = "src/runtime/contrib/dnnl/core"
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
_OF_TVM = ("tvm/", "dmlc/")


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
