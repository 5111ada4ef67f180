# SPDX-License-Identifier: Apache-2.0
"""The number of threads that a model is compiled for."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.marks import json_only, nightly_except
from dnnl_tests.reference import RTOL, conv2d, rand

ATTRS = dict(kernel_size=(3, 3), channels=16, padding=(1, 1))
X, W = rand(1, 16, 28, 28), rand(16, 16, 3, 3, seed=1)
EXPECTED = [np.maximum(conv2d(X, W, ATTRS), 0)]
CODEGENS = ("JSON", "C_SRC")


def module():
    x = relay.var("x", shape=X.shape)
    expr = relay.nn.relu(relay.nn.conv2d(x, relay.const(W), **ATTRS))
    return tvm.IRModule.from_expr(expr)


def context(num_threads=None, codegen=None):
    """Return a PassContext with the options that are given."""
    config = {"relay.ext.dnnl.codegen": codegen} if codegen else {}
    if num_threads is not None:
        config["relay.ext.dnnl.options"] = {"num_threads": num_threads}
    return tvm.transform.PassContext(opt_level=3, config=config)


def compiled(num_threads=None, codegen=None, **options):
    """Partition with the options, then compile in a PassContext that says `num_threads`."""
    mod = dnnl.partition_for_dnnl(module(), **options)
    assert testing.offload(mod).composites == {"dnnl.conv2d_relu": 1}
    with context(num_threads, codegen):
        return relay.build(mod, target=testing.host_target())


def threads_of(lib):
    """Run a library, compare, and return the number of threads of its convolution."""
    runner = testing.Runner(lib)
    testing.assert_close(runner({"x": X}), EXPECTED, RTOL)
    (plan,) = testing.plans(runner)
    (conv,) = [step for step in plan["primitives"] if step["kind"] == "convolution"]
    return conv["threads"]


@pytest.fixture(autouse=True)
def no_choice(monkeypatch):
    """Let nothing go before what the model says."""
    monkeypatch.delenv("TVM_DNNL_NUM_THREADS", raising=False)
    yield
    dnnl.set_num_threads(0)


@pytest.mark.parametrize("codegen", CODEGENS)
@pytest.mark.parametrize("number", [1, 2, 4])
def test_number_of_the_compilation(codegen, number):
    assert threads_of(compiled(number, codegen)) == number


@pytest.mark.parametrize("codegen", CODEGENS)
def test_without_a_number_the_process_says(codegen):
    assert threads_of(compiled(None, codegen)) == dnnl.num_threads()
    assert threads_of(compiled(0, codegen)) == dnnl.num_threads()


def test_number_of_the_partition():
    assert threads_of(compiled(num_threads=3)) == 3


def test_number_of_the_context_of_the_partition():
    with context(3):
        mod = dnnl.partition_for_dnnl(module())
    assert threads_of(testing.build(mod)) == 3


def test_partition_goes_before_the_compilation():
    mod = dnnl.partition_for_dnnl(module(), num_threads=3)
    with context(2):
        assert threads_of(relay.build(mod, target=testing.host_target())) == 3
    mod = dnnl.partition_for_dnnl(module(), num_threads=0)
    with context(dnnl.num_threads() + 1):
        lib = relay.build(mod, target=testing.host_target())
    assert threads_of(lib) == dnnl.num_threads()


def test_process_goes_before_the_model():
    dnnl.set_num_threads(3)
    assert threads_of(compiled(2)) == 3


def test_environment_goes_before_the_model(monkeypatch):
    monkeypatch.setenv("TVM_DNNL_NUM_THREADS", "3")
    assert threads_of(compiled(2)) == 3


CODE = """
import sys, numpy as np, tvm
from tvm.testing import dnnl as testing
runner = testing.Runner(tvm.runtime.load_module(sys.argv[1]), "graph")
runner({"x": np.ones((1, 16, 28, 28), "float32")})
runner.path = sys.argv[1]
(plan,) = testing.plans(runner)
print(max(step["threads"] for step in plan["primitives"]))
"""


ENVIRONMENTS = {
    "nothing": ({}, 4),
    "openmp": ({"OMP_NUM_THREADS": "2"}, 4),
    "own": ({"TVM_DNNL_NUM_THREADS": "3"}, 3),
}
EACH = {("JSON", "own"), ("C_SRC", "openmp")}


@pytest.mark.parametrize(
    "codegen, name", nightly_except(EACH, itertools.product(CODEGENS, ENVIRONMENTS))
)
def test_exported_library_keeps_the_number(tmp_path, codegen, name):
    environ, expected = ENVIRONMENTS[name]
    path = tmp_path / "model.so"
    testing.export(compiled(4, codegen), path)
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(path)],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == expected


@json_only
@pytest.mark.parametrize("value", ["-1", "4097"])
def test_a_graph_with_a_number_that_makes_no_sense(value):
    lib = compiled(2)
    (module_,) = testing.dnnl_modules(lib)
    graph = module_.get_source("json")
    text = '"num_threads":2'
    compact = "".join(graph.split())
    assert compact.count(text) == 1
    create = tvm.get_global_func("runtime.DNNLJSONRuntimeCreate")
    names = module_.get_function("get_const_vars")()
    symbol = module_.get_function("get_symbol")()
    broken = create(symbol, compact.replace(text, text.replace("2", value)), names)
    constants = [tvm.nd.array(W)]
    match = f"{symbol}, node . nn.conv2d .*: num_threads must be from 0 to 4096, but is {value}"
    with pytest.raises(tvm.TVMError, match=match):
        broken.get_function("__init_" + symbol)(constants)
