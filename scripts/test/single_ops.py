# SPDX-License-Identifier: Apache-2.0
"""Draws calls of single ops, with fixed and open sizes, and checks each as the tests' nets do."""

import itertools
import os
import random
import time

from scripts.console import Console
from scripts.errors import SetupError

# So many seeds of an op are drawn at a time.
STEP = 4


def _checks(is_relax):
    """Return the ops, and functions of an op and seeds: how many are accepted, what is wrong."""
    if not is_relax:
        from dnnl_tests.graphs import test_infer

        return test_infer.DIRECT, (test_infer.checked, test_infer.checked_open)
    from dnnl_relax.ops import test_net
    from dnnl_tests.net import COMBINATIONS

    def checked(name, seeds):
        count, problems = 0, []
        for combination in COMBINATIONS:
            count += test_net.combination(name, *combination, len(seeds), problems, seeds)[0]
        return count, problems

    return list(test_net.DRAWS), (checked,)


def _draws(names, checks, first):
    for seed in itertools.count(first):
        shuffled = random.Random(seed).sample(names, len(names))
        yield from ((seed, *each) for each in itertools.product(checks, shuffled))


def main(args):
    """Run the checks; return 1 if one fails or no call is accepted."""
    # Before TVM is loaded.
    os.environ["TVM_DNNL_STRICT"] = "1"
    names, checks = _checks(args.relax)
    chosen = args.ops.split(",") if args.ops else names
    for name in set(chosen) - set(names):
        raise SetupError(f"--ops: unknown {name!r}", f"choose from {','.join(sorted(names))}.")
    console, begin, accepted, failed = Console(), time.monotonic(), 0, 0
    with console.step(f"calls from seed {args.seed}"):
        for seed, check, name in _draws(chosen, checks, args.seed):
            is_over = args.seconds is not None and time.monotonic() - begin > args.seconds
            if is_over or (args.count is not None and accepted >= args.count):
                break
            count, problems = check(name, range(STEP * seed, STEP * (seed + 1)))
            accepted, failed = accepted + count, failed + len(problems)
            console.note(f"seed {seed}, {name}, {accepted} accepted, {failed} failed")
            if problems:
                text = "\n".join(problems[:3])
                print(f"FAILED with --ops {name} --seed {seed}: {text}", flush=True)
    print(f"{accepted} calls, {failed} failed")
    return 1 if failed or not accepted else 0
