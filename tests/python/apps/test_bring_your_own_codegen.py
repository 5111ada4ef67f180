# SPDX-License-Identifier: Apache-2.0
"""The tutorial's accelerator: built as its page says, then each step of the way to it."""

import re
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.testing import dnnl as testing

from scripts.layout import ROOT, Layout

APP = ROOT / "apps" / "bring_your_own_codegen"
CODEGENS = ("JSON", "C_SRC")


@pytest.fixture(scope="module")
def library():
    """Build the plugin; return its path. Nothing is compiled if nothing has changed."""
    folder = Layout().build / "tutorial"
    configure = ["cmake", "-G", "Ninja", "-S", APP, "-B", folder, "-DCMAKE_UNITY_BUILD=ON"]
    for command in (configure, ["cmake", "--build", folder]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning:" not in done.stdout
    return folder / "libtvm_tutorial.so"


@pytest.fixture(scope="module")
def tutorial(library):
    """Import the policy and load the plugin."""
    sys.path.insert(0, str(APP))
    try:
        import tutorial as module
    finally:
        sys.path.remove(str(APP))
    module.load_library(library)
    return module


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, "float32")


def var(name, *shape, dtype="float32"):
    return relay.var(name, shape=shape, dtype=dtype)


def model():
    """Return a module with constants and an op for TVM, its input and its result."""
    x, weight, bias = rand(2, 4), rand(3, 4, seed=1), rand(3, seed=2)
    dense = relay.nn.dense(var("x", 2, 4), relay.const(weight))
    first = relay.clip(relay.nn.bias_add(dense, relay.const(bias)), -1.0, 0.5)
    mod = tvm.IRModule.from_expr(relay.add(relay.tanh(first), first))
    clipped = np.clip(x @ weight.T + bias, -1, 0.5)
    return mod, {"x": x}, np.tanh(clipped) + clipped


def build(mod, codegen="JSON"):
    config = {"relay.ext.tutorial.codegen": codegen}
    with tvm.transform.PassContext(opt_level=3, config=config):
        return relay.build(mod, target=testing.host_target())


def offloaded(mod):
    """Return how many functions the accelerator gets, and the counts of what is in them."""
    offload = testing.offload(mod, "tutorial")
    return offload.partitions, dict(offload.composites), dict(offload.ops)


NOTHING = (0, {}, {})
DENSE_CLIP = {"nn.dense": 1, "nn.bias_add": 1, "clip": 1}


def run(lib, inputs, tutorial, folder):
    """Export a library, load it, and run it."""
    lib.export_library(str(folder / "model.so"), options=tutorial.c_source_options())
    return testing.Runner(tvm.runtime.load_module(str(folder / "model.so")), "graph")(inputs)


@pytest.mark.parametrize("codegen", CODEGENS)
def test_a_model(codegen, tutorial, tmp_path):
    mod, inputs, expected = model()
    mod = tutorial.partition_for_tutorial(mod)
    assert offloaded(mod) == (2, {"tutorial.dense_clip": 1}, {**DENSE_CLIP, "add": 1})
    lib = build(mod, codegen)
    kinds = [module.type_key for module in testing.imported_modules(lib)]
    assert ("tutorial_json" in kinds) == (codegen == "JSON")
    testing.assert_close(run(lib, inputs, tutorial, tmp_path), [expected], 1e-6)


@pytest.mark.parametrize("codegen", CODEGENS)
def test_the_example_of_the_page(codegen, library, tmp_path):
    command = [sys.executable, APP / "example.py", library, codegen]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    instruction = '"tutorial.dense_clip"' if codegen == "JSON" else "TutorialDense(in0, const_0,"
    assert instruction in done.stdout
    assert "the loaded library gives" in done.stdout


def test_a_process_that_only_runs(tutorial, library, tmp_path):
    path = tmp_path / "model.so"
    lib = build(tutorial.partition_for_tutorial(model()[0]))
    lib.export_library(str(path))
    command = [sys.executable, APP / "run_model.py", library, path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (expected,) = testing.Runner(lib)({"x": np.ones((2, 4), "float32")})
    got = np.array(done.stdout.replace("[", " ").replace("]", " ").split(), "float32")
    testing.assert_close([got.reshape(expected.shape)], [expected], 1e-6)


def test_the_vm_and_parameters(tutorial):
    x, weight = rand(5, 4), rand(3, 4, seed=1)
    mod = tvm.IRModule.from_expr(relay.nn.dense(var("x", 5, 4), var("w", 3, 4)))
    mod = tutorial.partition_for_tutorial(mod, {"w": tvm.nd.array(weight)})
    assert offloaded(mod) == (1, {}, {"nn.dense": 1})
    testing.assert_close(testing.run(mod, {"x": x}, executor="vm"), [x @ weight.T], 1e-6)


@pytest.mark.parametrize("codegen", CODEGENS)
def test_one_tensor_as_several_operands(codegen, tutorial, tmp_path):
    x, bias = rand(3, 3), rand(3, seed=1)
    data = var("x", 3, 3)
    dense = relay.nn.bias_add(relay.nn.dense(data, data), relay.const(bias))
    clipped = relay.clip(dense, 0.0, 2.0)
    mod = tutorial.partition_for_tutorial(tvm.IRModule.from_expr(relay.add(clipped, clipped)))
    assert offloaded(mod) == (1, {"tutorial.dense_clip": 1}, {**DENSE_CLIP, "add": 1})
    expected = 2 * np.clip(x @ x.T + bias, 0, 2)
    testing.assert_close(run(build(mod, codegen), {"x": x}, tutorial, tmp_path), [expected], 1e-6)


REFUSED = {
    "half": (relay.add, ((2, 3), (2, 3)), "float16", "float32 only"),
    "broadcast": (relay.add, ((2, 3), (3,)), "float32", "broadcast"),
    "dynamic": (relay.add, ((relay.Any(),), (relay.Any(),)), "float32", "dynamic"),
    "batch": (relay.nn.dense, ((2, 5, 3), (4, 3)), "float32", "more than two dimensions"),
}


@pytest.mark.parametrize("op, shapes, dtype, reason", REFUSED.values(), ids=REFUSED.keys())
def test_refused(op, shapes, dtype, reason, tutorial):
    call = op(var("a", *shapes[0], dtype=dtype), var("b", *shapes[1], dtype=dtype))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(call))
    assert reason in tutorial.refusal(mod["main"].body)
    assert offloaded(tutorial.partition_for_tutorial(mod)) == NOTHING


@pytest.mark.parametrize("axis, high", [(0, 1.0), (1, float("inf"))], ids=["rows", "unbounded"])
def test_what_is_not_fused(axis, high, tutorial):
    dense = relay.nn.dense(var("x", 3, 4), var("w", 3, 4))
    clip = relay.clip(relay.nn.bias_add(dense, var("b", 3), axis=axis), 0.0, high)
    mod = tutorial.partition_for_tutorial(tvm.IRModule.from_expr(clip))
    assert offloaded(mod) == (1, {}, {"nn.dense": 1})


def test_an_instruction_that_there_is_not(tutorial):
    graph = (
        '{"nodes": [{"op": "input", "name": "x", "attrs": {"shape": [[[2]]], "dtype": '
        '[["float32"]]}}, {"op": "kernel", "name": "tan", "inputs": [[0, 0, 0]], "attrs": '
        '{"shape": [[[2]]], "dtype": [["float32"]]}}], "arg_nodes": [0], "heads": [[1, 0, 0]], '
        '"node_row_ptr": [0, 1, 2]}'
    )
    module = tvm.get_global_func("runtime.tutorial_create")("f", graph, [])
    with pytest.raises(tvm.TVMError, match="node 'tan'.*has no such instruction"):
        module["f"](tvm.nd.array(rand(2)), tvm.nd.array(rand(2)))


def test_the_page_counts_right():
    page = (ROOT / "docs" / "bring_your_own_codegen.md").read_text()
    counts = {
        name: int(n) for name, n in re.findall(r"^\| `(\w+\.\w+)` \|.*\| (\d+) \|$", page, re.M)
    }
    for name, count in counts.items():
        text = (APP / name).read_text().split("under the License.", 1)[1]
        assert count == sum(bool(line.strip(" */#")) for line in text.splitlines()), name
    assert sum(counts.values()) - counts["c_source.cc"] < 200
