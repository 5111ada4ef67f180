# SPDX-License-Identifier: Apache-2.0
"""The combinations of the nets: each op of the table x data type x fixed or open sizes."""

import pytest

DTYPES = ("float32", "bfloat16", "float16", "int8")
COMBINATIONS = [(dtype, is_open) for dtype in DTYPES for is_open in (False, True)]
# Of the draws of a combination, as many are partitioned as the rules accept in the first seeds.
TRIES = 12
COUNTS = [1, pytest.param(TRIES, marks=pytest.mark.nightly)]


def check_op(name, number, count, combination):
    """Check the combinations of an op; in short, every second.

    Parameters
    ----------
    name : str
        The op.
    number : int
        Its place among all ops. Of each two neighbours, each combination is checked.
    count : int
        How many accepted draws of a combination to check.
    combination : Callable
        ``combination(name, dtype, is_open, count, problems)`` checks one, appends what is wrong,
        and returns how many draws were accepted, and why others were not.
    """
    step = 1 if count > 1 else 2
    problems = []
    for k, (dtype, is_open) in enumerate(COMBINATIONS):
        # The kinds alternate with the type.
        if (k // 2 + k + number) % step:
            continue
        accepted, reasons = combination(name, dtype, is_open, count, problems)
        print(f"{name}, {dtype}, {'open' if is_open else 'fixed'}: {accepted} accepted")
        # Nothing is missing without a reason.
        assert accepted or reasons, (name, dtype, is_open)
    assert not problems, f"{len(problems)}:\n" + "\n".join(problems[:4])
