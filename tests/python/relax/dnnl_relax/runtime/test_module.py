# SPDX-License-Identifier: Apache-2.0
"""The runtime module on tvm-ffi: runs, saved bytes, damaged graphs, wrong tensors, threads."""

import concurrent.futures
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm_dnnl  # noqa: F401, it registers the runtime
import tvm_ffi
from dnnl_tests.version_1 import in_version_1

from dnnl_relax.runtime import graphs

X = graphs.rand(1, 8, 6, 6)
SHAPE = X.shape


def assert_runs(module):
    """Assert that a module of the convolution is right."""
    for got, expected in zip(graphs.run(module, X, SHAPE, SHAPE), graphs.conv_reference(X)):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_runs():
    module = graphs.initialised(graphs.conv())
    assert_runs(module)
    plan = json.loads(module["get_plan"]())
    kinds = [step["kind"] for step in plan["primitives"] if step["op"] != "reorder"]
    assert kinds == ["convolution", "binary"]
    assert ["bias", "eltwise_relu"] in [step["post_ops"] for step in plan["primitives"]]


def test_graphs_of_earlier_releases_are_read():
    assert_runs(graphs.initialised(in_version_1(graphs.conv())))


def test_answers():
    module = graphs.create(graphs.conv())
    assert module["get_symbol"]() == graphs.SYMBOL
    assert list(module["get_const_vars"]()) == ["w", "b", "s"]
    assert module.kind == "dnnl_json"
    assert json.loads(module.inspect_source()) == graphs.conv()
    assert not module.implements_function("other")


def test_constants_are_kept():
    """The caller's list may go: the module keeps what it needs."""
    module = graphs.create(graphs.conv())
    values = [graphs.tensor(value.copy()) for value in (graphs.W, graphs.B, graphs.S)]
    module["__init_" + graphs.SYMBOL](values)
    del values
    assert_runs(module)


def binary(symbol, text, names):
    """Return the binary form of a module, as TVM's releases with Relay write it, too."""
    parts = [symbol.encode(), text.encode()]
    strings = [len(part).to_bytes(8, "little") + part for part in parts]
    strings.append(len(names).to_bytes(8, "little"))
    strings += [len(name).to_bytes(8, "little") + name.encode() for name in names]
    return b"".join(strings)


def test_binary_form():
    load = tvm_ffi.get_global_func("ffi.Module.load_from_bytes.dnnl_json")
    data = binary(graphs.SYMBOL, json.dumps(graphs.conv()), ["w", "b", "s"])
    module = load(data)
    module["__init_" + graphs.SYMBOL]([graphs.tensor(v) for v in (graphs.W, graphs.B, graphs.S)])
    assert_runs(module)
    for size in (0, 7, 8, 9, 20, len(data) - 1):
        with pytest.raises(Exception, match="cut off or damaged"):
            load(data[:size])
    with pytest.raises(Exception, match="cut off or damaged"):
        load((2**60).to_bytes(8, "little") + b"f")


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda graph: graph["nodes"][3].update(inputs=[[4, 0, 0]]), "earlier node"),
        (lambda graph: graph["nodes"][3]["attrs"].update(dtype=["flaot32"]), "unknown type"),
        (lambda graph: graph.pop("heads"), '"heads" is missing'),
        (lambda graph: graph["nodes"][1].update(name="v"), "no constant of this name"),
        (lambda graph: graph.update(symbol=1), "cannot be read"),
    ],
)
def test_damaged_graph(change, message):
    """The error names the module. The tests of the reader in C++ have the other kinds."""
    graph = graphs.conv()
    change(graph)
    with pytest.raises(Exception, match=message) as error:
        graphs.create(graph)
    assert f"'{graphs.SYMBOL}'" in str(error.value)


def test_escapes():
    text = json.dumps(graphs.conv()).replace('"x"', '"\\u00e4\\ud83d\\ude00\\n"')
    module = graphs.initialised(text)
    with pytest.raises(Exception, match="input \u00e4\U0001f600"):
        graphs.run(module, X[:, :, :5], SHAPE, SHAPE)


def test_what_oneDNN_cannot_do_names_the_node():
    graph = graphs.conv()
    graph["nodes"][3]["attrs"]["groups"] = 3
    with pytest.raises(Exception, match="node 3 nn.conv2d of dnnl.conv2d_bias_relu"):
        graphs.initialised(graph)
    graph["nodes"][3]["attrs"]["root_op"] = "nn.nothing"
    with pytest.raises(Exception, match="node 3 nn.nothing"):
        graphs.initialised(graph)


WRONG = {
    "shape": (X[:, :, :5], "input x must be float32 .1, 8, 6, 6., but is float32 .1, 8, 5, 6."),
    "rank": (X[0], "input x must be float32 .1, 8, 6, 6., but is float32 .8, 6, 6."),
    "dtype": (X.astype("float64"), "input x must be float32 .*, but is float64"),
    "bool": (X > 0, "input x must be float32 .*, but is bool"),
}


@pytest.mark.parametrize("x, message", WRONG.values(), ids=WRONG.keys())
def test_wrong_input(x, message):
    module = graphs.initialised(graphs.conv())
    with pytest.raises(Exception, match=message):
        graphs.run(module, x, SHAPE, SHAPE)
    assert_runs(module)


def test_wrong_arguments():
    module = graphs.initialised(graphs.conv())
    with pytest.raises(Exception, match="output 1 must be"):
        graphs.run(module, X, SHAPE, (1,))
    with pytest.raises(Exception, match="3 inputs and outputs are expected, but 2 were passed"):
        graphs.run(module, X, SHAPE)
    with pytest.raises(Exception, match="input x is null"):
        module[graphs.SYMBOL](None, graphs.tensor(X), graphs.tensor(X))
    with pytest.raises(Exception, match="input x is null"):
        module[graphs.SYMBOL](1, graphs.tensor(X), graphs.tensor(X))


def test_strided_input():
    """A part of a larger tensor is refused, one that starts inside of it is not."""
    module = graphs.initialised(graphs.conv())
    outputs = [graphs.tensor(np.empty(SHAPE, "float32")) for _ in range(2)]
    wide = np.concatenate([X, X], axis=3)
    with pytest.raises(Exception, match="input x has strides"):
        module[graphs.SYMBOL](tvm_ffi.from_dlpack(wide[..., :6]), *outputs)
    two = np.concatenate([np.zeros_like(X), X])
    module[graphs.SYMBOL](tvm_ffi.from_dlpack(two[1:]), *outputs)
    np.testing.assert_allclose(
        outputs[0].numpy(), graphs.conv_reference(X)[0], rtol=1e-4, atol=1e-4
    )


def test_wrong_constants():
    module = graphs.create(graphs.conv())
    init = module["__init_" + graphs.SYMBOL]
    with pytest.raises(Exception, match="was not initialised: call __init_f"):
        assert_runs(module)
    with pytest.raises(Exception, match="has 3 constants, but 1 were passed"):
        init([graphs.tensor(graphs.W)])
    with pytest.raises(
        Exception, match=r"b must be float32 \[8, 1, 1\], but is float32 \[8, 1, 6\]"
    ):
        init([graphs.tensor(v) for v in (graphs.W, graphs.S, graphs.B)])
    # A failure is not the end.
    init([graphs.tensor(v) for v in (graphs.W, graphs.B, graphs.S)])
    assert_runs(module)


def test_open_batch():
    w = graphs.rand(4, 5, seed=1)
    module = graphs.initialised(graphs.matmul(), [w], ["w"])
    module["set_plan_cache_size"](2)
    for batch in (1, 3, 7, 3):
        x = graphs.rand(batch, 4, seed=batch)
        (got,) = graphs.run(module, x, (batch, 5))
        np.testing.assert_allclose(got, x @ w, rtol=1e-5, atol=1e-5)
    plans = json.loads(module["get_plan"]())
    assert len(plans["plans"]) == 2
    assert [plan["input_shapes"] for plan in plans["plans"]] == [[[3, 4]], [[7, 4]]]
    with pytest.raises(Exception, match=r"input x must be float32 \[\?, 4\], but is"):
        graphs.run(module, graphs.rand(3, 5), (3, 5))
    with pytest.raises(Exception, match="output 0 must be"):
        graphs.run(module, graphs.rand(3, 4), (4, 5))
    with pytest.raises(Exception, match="number of plans must be from 1 to"):
        module["set_plan_cache_size"](0)


def test_measurements():
    module = graphs.create(graphs.conv())
    with pytest.raises(Exception, match="is available after the first run or __init_f"):
        module["get_plan"]()
    module = graphs.initialised(graphs.conv())
    for name in ("measure_primitives", "profile_primitives"):
        steps = json.loads(module[name](3))
        assert steps and all(step["microseconds"] > 0 for step in steps)


def test_threads():
    """Eight threads on one module, with open and without open dimensions."""
    w = graphs.rand(4, 5, seed=1)
    static = graphs.initialised(graphs.conv())
    dynamic = graphs.initialised(graphs.matmul(), [w], ["w"])
    inputs = [graphs.rand(*SHAPE, seed=seed) for seed in range(8)]
    expected = [graphs.run(static, x, SHAPE, SHAPE) for x in inputs]

    def work(number):
        x = graphs.rand(number + 1, 4, seed=number)
        for _ in range(100):
            for got, right in zip(
                graphs.run(static, inputs[number], SHAPE, SHAPE), expected[number]
            ):
                np.testing.assert_array_equal(got, right)
            (got,) = graphs.run(dynamic, x, (number + 1, 5))
            np.testing.assert_allclose(got, x @ w, rtol=1e-5, atol=1e-5)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


@pytest.mark.parametrize("name", ["ops", "version"])
def test_library(name):
    assert tvm_ffi.get_global_func(f"runtime.contrib.dnnl.{name}")()


def test_number_of_threads():
    functions = (f"runtime.contrib.dnnl.{name}_num_threads" for name in ("set", "get"))
    set_threads, get_threads = map(tvm_ffi.get_global_func, functions)
    set_threads(1)
    try:
        assert get_threads() == 1
        module = graphs.initialised(graphs.conv())
        plan = json.loads(module["get_plan"]())
        assert {step["threads"] for step in plan["primitives"]} == {1}
    finally:
        set_threads(0)
    with pytest.raises(Exception, match="threads"):
        set_threads(-1)


def test_types_that_are_computed():
    computes = tvm_ffi.get_global_func("runtime.contrib.dnnl.computes")
    assert computes("float32")
    assert isinstance(computes("bfloat16"), bool)


FORKED = """
import os, sys
from dnnl_relax.runtime import graphs
import tvm_dnnl

x = graphs.rand(1, 8, 6, 6)
module = graphs.initialised(graphs.conv())
expected = graphs.run(module, x, x.shape, x.shape)
child = os.fork()
if child == 0:
    outputs = graphs.run(module, x, x.shape, x.shape)
    os._exit(0 if all((a == b).all() for a, b in zip(outputs, expected)) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_forked_process():
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
