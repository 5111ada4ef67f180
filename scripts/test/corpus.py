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
"""A plugin of pytest that keeps the graphs that the tests compile, for `./dev.py fuzz --artifacts`.

Each is in a file of its own in build/corpus, without what differs from run to run.
"""

import hashlib
import sys

from scripts.layout import Layout
from scripts.setup.stamps import write_atomic

CREATE = "runtime.DNNLJSONRuntimeCreate"
# Networks are left out: what is damaged in them is damaged in small graphs, too, and sooner.
MOST_BYTES = 1 << 16


def keep(symbol, text):
    """Write a graph, unless it is there."""
    if len(text) > MOST_BYTES:
        return
    text = text.replace(symbol, "main")
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = Layout().corpus / f"{name}.json"
    if not path.exists():
        write_atomic(path, text)


def pytest_collection_finish():
    """Stand between the codegen and the runtime, where the tests have loaded TVM."""
    tvm = sys.modules.get("tvm")
    create = tvm and tvm.get_global_func(CREATE, allow_missing=True)
    if not create:
        return
    Layout().corpus.mkdir(parents=True, exist_ok=True)

    @tvm.register_func(CREATE, override=True)
    def _(symbol, text, names):
        module = create(symbol, text, names)
        # Some tests damage graphs themselves. What is refused does not get here.
        keep(str(symbol), str(text))
        return module
