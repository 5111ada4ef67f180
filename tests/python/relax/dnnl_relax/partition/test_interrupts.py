# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a module is partitioned: a KeyboardInterrupt, wherever in Python it arrives."""

import signal

import numpy as np
import pytest
import tvm_dnnl
from dnnl_tests.interrupted import interrupted_at, sigint_is_handled  # noqa: F401
from dnnl_tests.onnx_models import onnx_model
from tvm import relax
from tvm.relax import op

from dnnl_relax.modules import composites, module, rand, var


def model():
    def build(builder, x):
        weight = builder.emit(op.multiply(relax.const(rand(8, 3, 3, 3)), relax.const(rand(1))))
        conv = builder.emit(op.nn.conv2d(x, weight, padding=1))
        return builder.emit(op.nn.relu(conv))

    return module(build, var("x", "n", 3, 8, 8))


@pytest.mark.parametrize("function", [tvm_dnnl.partition_for_dnnl, tvm_dnnl.offload_report])
def test_wherever_it_arrives(function):
    mod = model()
    before = mod.script()
    function(mod)  # What is made once is there.
    calls = interrupted_at(0, lambda: function(mod))
    for number in np.linspace(1, calls, 50, endpoint=False, dtype=int):
        with pytest.raises(KeyboardInterrupt):
            interrupted_at(number, lambda: function(mod))
        assert mod.script() == before
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert composites(tvm_dnnl.partition_for_dnnl(mod)) == {"dnnl.conv2d_relu": 1}


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.nightly)])
def test_while_a_model_is_compiled(count):
    """TVM's C++ calls Python, and replaces or ignores what an interrupt raises in it."""
    proto = onnx_model(
        ["a = Conv<pads=[1, 1, 1, 1]>(x, w)", "b = Relu(a)", "y = Sinh(b)"],
        {"x": ["n", 8, 6, 6]},
        {"w": rand(8, 8, 3, 3)},
    )
    tvm_dnnl.compile(proto)
    calls = interrupted_at(0, lambda: tvm_dnnl.compile(proto))
    for number in np.linspace(1, calls, count, endpoint=False, dtype=int):
        with pytest.raises(KeyboardInterrupt):
            interrupted_at(number, lambda: tvm_dnnl.compile(proto))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    x = rand(2, 8, 6, 6)
    model = tvm_dnnl.compile(proto, prune=False)
    assert model.report.offloaded == 2 and model(x).shape == x.shape
