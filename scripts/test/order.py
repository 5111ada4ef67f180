# SPDX-License-Identifier: Apache-2.0
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
