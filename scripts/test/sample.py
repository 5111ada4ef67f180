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
"""A plugin of pytest that leaves out most cases of the tests of ops and composites.

With C source the numbers come from the same lowering as with the JSON runtime, which has run all of
them. What differs is how an op's attributes and operands are written, and a few cases show that.
"""

import collections

STEP = 4
FOLDERS = ("dnnl_tests/ops/", "dnnl_tests/fusion/")


def pytest_collection_modifyitems(config, items):
    """Keep each fourth case of a test of an op or a composite, the first always."""
    seen, kept, left = collections.Counter(), [], []
    for item in items:
        name = item.nodeid.partition("[")[0]
        is_left = any(folder in name for folder in FOLDERS) and seen[name] % STEP
        seen[name] += 1
        (left if is_left else kept).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept
