# SPDX-License-Identifier: Apache-2.0
"""Interrupts at chosen moments, for the tests of Relay and Relax."""

import gc
import signal
import sys

import pytest


@pytest.fixture(autouse=True)
def sigint_is_handled():
    """A shell starts background jobs, and with them these tests, with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted_at(number, run):
    """Run with an interrupt at a call of a Python function, by its number; return how many came.

    The garbage collector waits: finalizers of what other tests left would be counted, and Python
    drops an exception that is raised in one.
    """
    calls = 0

    def profile(_frame, event, _arg):
        nonlocal calls
        if event == "call":
            calls += 1
            if calls == number:
                signal.raise_signal(signal.SIGINT)

    gc.collect()
    gc.disable()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls
