# SPDX-License-Identifier: Apache-2.0
"""Tests of `./dev.py soak`: it runs, and sees what it is there to see."""

import random
import subprocess
import sys
import threading

import numpy as np
import pytest
from dnnl_tests.marks import nightly_after

from scripts.layout import ROOT
from scripts.test import soak


@pytest.mark.parametrize("threads", nightly_after(1, [2, 1]))
def test_a_few_seconds(threads):
    command = [sys.executable, "-m", "scripts", "soak", "--minutes", "0.08"]
    command += ["--threads", str(threads)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = ("4 threads with two libraries", "batches of 1 to 8", "load, run, unload", "fork ")
    for part in (*parts, "fork while threads run"):
        assert part in done.stdout
    assert "from the second quarter to the last" in done.stdout


def turns(memory):
    return [("part", 1, 0.001, mb) for mb in memory]


def test_memory_that_grows_is_told_from_memory_that_rises_once():
    once = [300.0] * 3 + [320.0] * 97
    assert soak.grown(turns(once)) == 0.0
    assert soak.grown(turns(300 + 0.1 * np.arange(100))) == pytest.approx(5.0)


def test_an_output_that_differs_is_an_error():
    one = np.ones(2, "float32")
    soak.compare(one, one.copy())
    with pytest.raises(soak.SoakError):
        soak.compare(one, np.nextafter(one, 2, dtype="float32"))
    with pytest.raises(soak.SoakError):
        soak.compare(one, one.reshape(1, 2))


class Hollow(soak.Soak):
    """A soak without libraries."""

    def __init__(self, check):
        self.models, self.check = [soak.Model(None, None, None)], check
        self.random = random.Random(1)
        self.testing = type("Testing", (), {"Runner": staticmethod(lambda *_: None)})


def test_a_thread_that_fails_and_a_process_that_fails_are_errors():
    def fail(*_):
        raise soak.SoakError("an output differs")

    with pytest.raises(soak.SoakError, match="an output differs"):
        Hollow(fail).threads()
    calls = []

    def fail_in_the_child(*_):
        calls.append(1)
        if len(calls) > 1:
            raise soak.SoakError("an output differs")

    with pytest.raises(soak.SoakError, match="a forked process ended"):
        Hollow(fail_in_the_child).fork()


def test_a_process_is_forked_while_threads_run():
    """They begin before and go on until it has ended."""
    calls, seen, alone = [], [], threading.active_count()

    class Forks(Hollow):
        def fork(self):
            seen.append(threading.active_count() - alone)
            return 2

    assert Forks(lambda *_: calls.append(1)).fork_amid_calls() == 2 + len(calls)
    assert seen == [soak.CALLERS] and threading.active_count() == alone
