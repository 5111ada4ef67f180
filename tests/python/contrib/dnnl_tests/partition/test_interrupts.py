# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a module is partitioned: a KeyboardInterrupt, wherever in Python it arrives."""

import signal
import threading

import numpy as np
import pytest
from tvm import relay
from tvm.contrib.onednn import interrupts
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.interrupted import interrupted_at, sigint_is_handled  # noqa: F401
from dnnl_tests.relay import const, module, var


def model():
    """Return a module with constants to fold: TVM's strategies are Python, which C++ calls."""
    weight = relay.multiply(const(8, 3, 3, 3), relay.exp(relay.const(0.5)))
    return module(relay.nn.relu(relay.nn.conv2d(var("x", 1, 3, 8, 8), weight, padding=(1, 1))))


@pytest.mark.parametrize("function", [dnnl.partition_for_dnnl, dnnl.offload_report])
def test_wherever_it_arrives(function):
    mod = model()
    before = mod.astext()
    function(mod)  # What is made once is there.
    calls = interrupted_at(0, lambda: function(mod))
    for number in np.linspace(1, calls, 25, endpoint=False, dtype=int):
        with pytest.raises(KeyboardInterrupt):
            interrupted_at(number, lambda: function(mod))
        assert mod.astext() == before
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert testing.offload(dnnl.partition_for_dnnl(mod)).composites == {"dnnl.conv2d_relu": 1}


def test_in_a_function_that_cpp_calls():
    body, after = model()["main"].body, []
    with pytest.raises(KeyboardInterrupt):
        with interrupts.deferred():
            relay.analysis.post_order_visit(body, lambda _: signal.raise_signal(signal.SIGINT))
            after.append("C++")
            interrupts.deliver()
            after.append("deliver")
    assert after == ["C++"]


def test_a_handler_of_ones_own():
    """It is called once, late, and decides what becomes of the interrupt."""
    seen = []
    own = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with interrupts.deferred(), interrupts.deferred():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            assert not seen
    finally:
        signal.signal(signal.SIGINT, own)
    assert seen == [signal.SIGINT]


def test_another_thread_has_none():
    results = []
    thread = threading.Thread(target=lambda: results.append(dnnl.partition_for_dnnl(model())))
    thread.start()
    thread.join()
    assert testing.offload(results[0]).partitions == 1
