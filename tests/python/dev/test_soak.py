# SPDX-License-Identifier: Apache-2.0
"""Tests of `./dev.py soak`: it runs, and sees what it is there to see."""

import subprocess
import sys

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
