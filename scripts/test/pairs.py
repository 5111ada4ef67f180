# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that marks combinations of three or more parameters as nightly.

Those that stay have each pair of values of two parameters, at least once. Tests of one or two
parameters keep all cases.
"""

import itertools

import pytest


def _pairs(item):
    """Return the pairs of values of `parametrize` marks, of which one may have several names."""
    values = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        names = names.replace(",", " ").split() if isinstance(names, str) else names
        values.append((*names, *(id(item.callspec.params[name]) for name in names)))
    return set(itertools.combinations(values, 2))


def covering(cases):
    """Return the keys of the cases that together have all pairs; `cases` has the pairs of each."""
    left, kept = set().union(*cases.values()), set()
    while left:
        # The first of those that have most.
        best = max(cases, key=lambda key: len(cases[key] & left))
        kept.add(best)
        left -= cases[best]
    return kept


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests before `-m` chooses among them."""
    tests = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for same in tests.values():
        cases = {item: pairs for item in same if len(pairs := _pairs(item)) > 1}
        for item in set(cases) - covering(cases):
            item.add_marker(pytest.mark.nightly)
