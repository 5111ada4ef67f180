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
"""A plugin of pytest that puts what takes longest first, so that no process is left with it.

A file with a limit of its own for time takes longest; of the others, one with more tests, of which
those that are marked as slow count as many.
"""

import pytest


def _limit(item):
    mark = item.get_closest_marker("timeout")
    return mark.args[0] if mark else 0


def _count(tests):
    # A slow test takes more than ten seconds, the others a fifth of one on the average.
    return sum(50 if item.get_closest_marker("slow") else 1 for item in tests)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Sort the files that are left after -k and -m."""
    files = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    ordered = sorted(files.values(), key=lambda tests: (-max(map(_limit, tests)), -_count(tests)))
    items[:] = [item for tests in ordered for item in tests]
