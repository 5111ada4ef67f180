# SPDX-License-Identifier: Apache-2.0
"""Modules of the DNNL runtime: edges, constants, export, executors, threads, bad calls."""

import json
import re

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.fused_conv import FUSED_CONV
from dnnl_tests.marks import json_only, nightly_after
from dnnl_tests.reference import RTOL, conv2d, rand
from dnnl_tests.threads import on_threads
from dnnl_tests.version_1 import in_version_1

ATTRS = dict(kernel_size=(3, 3), channels=8, padding=(1, 1))
X, W, B = rand(1, 8, 6, 6), rand(8, 8, 3, 3, seed=1), rand(8, 1, 1, seed=2)


def var(name, value):
    return relay.var(name, shape=value.shape, dtype=str(value.dtype))


def conv_bias_relu(data, weight, bias):
    return relay.nn.relu(relay.nn.conv2d(data, weight, **ATTRS) + bias)


def expected_conv_bias_relu(x=X):
    return np.maximum(conv2d(x, W, ATTRS) + B, 0)


def conv_module():
    return tvm.IRModule.from_expr(conv_bias_relu(var("x", X), var("w", W), var("b", B)))


def dnnl_module(params=None, mod=None):
    """Return the one runtime module of a partitioned module, not initialised yet."""
    lib = testing.build(dnnl.partition_for_dnnl(mod or conv_module(), params))
    (module,) = testing.dnnl_modules(lib)
    return module


@pytest.mark.parametrize(
    "constant", [("w", "b"), ("w",), ("b",), ()], ids=lambda names: "+".join(names) or "none"
)
@pytest.mark.parametrize("executor", nightly_after(1, ["graph", "vm"]))
def test_partial_constants(constant, executor):
    values = {"w": W, "b": B}
    params = {name: values[name] for name in constant}
    inputs = {"x": X, **{name: v for name, v in values.items() if name not in constant}}
    testing.check(
        conv_module(),
        inputs,
        params,
        composites={"dnnl.conv2d_bias_relu": 1},
        partitions=1,
        reference=[expected_conv_bias_relu()],
        executors=[executor],
        rtol=RTOL,
    )


def test_several_partitions():
    """An op that only TVM has, in the middle: the partitions before and after keep apart."""
    x, w, b = var("x", X), var("w", W), var("b", B)
    middle = relay.cumsum(conv_bias_relu(x, w, b), axis=1)
    mod = tvm.IRModule.from_expr(conv_bias_relu(middle, w, b))
    middle_value = np.cumsum(expected_conv_bias_relu(), axis=1)
    testing.check(
        mod,
        {"x": X},
        {"w": W, "b": B},
        composites={"dnnl.conv2d_bias_relu": 2},
        partitions=2,
        reference=[expected_conv_bias_relu(middle_value)],
        executors=["graph", "vm"],
        rtol=2 * RTOL,
    )


@pytest.mark.parametrize("executor", ["graph", "vm"])
def test_outputs(executor):
    """A tuple with an inner value, a result, and one result twice."""
    x, w, b = var("x", X), var("w", W), var("b", B)
    first = conv_bias_relu(x, w, b)
    second = relay.nn.conv2d(first, w, **ATTRS)
    expr = relay.Tuple([first, second, second, relay.nn.relu(second)])
    a = expected_conv_bias_relu()
    c = conv2d(a, W, ATTRS)
    testing.check(
        tvm.IRModule.from_expr(expr),
        {"x": X},
        {"w": W, "b": B},
        partitions=1,
        reference=[a, c, c, np.maximum(c, 0)],
        executors=[executor],
        rtol=2 * RTOL,
    )


@pytest.mark.parametrize("executor", nightly_after(1, ["graph", "vm"]))
def test_export_and_load_in_a_new_process(executor, tmp_path):
    lib = testing.build(dnnl.partition_for_dnnl(conv_module(), {"w": W, "b": B}), executor=executor)
    path = str(tmp_path / "model.so")
    testing.export(lib, path)
    outputs = testing.run_in_new_process(path, {"x": X}, executor=executor)
    testing.assert_close(outputs, [expected_conv_bias_relu()], RTOL)


@json_only
def test_the_graph_json_has_no_constants_and_names_what_is_fused():
    module = dnnl_module({"w": W, "b": B})
    graph = json.loads(module.get_source("json"))
    symbol = module.get_function("get_symbol")()
    names = [str(name) for name in module.get_function("get_const_vars")()]
    assert sorted(names) == [f"dnnl_{symbol}_const_0", f"dnnl_{symbol}_const_1"]
    kinds = [node["op"] for node in graph["nodes"]]
    assert kinds == ["input", "const", "const", "kernel"]
    # Relay's op has two attributes that follow from its weight.
    of_relay = {"channels": 8, "kernel_size": [3, 3]}
    kernel = {**FUSED_CONV, "attrs": {**FUSED_CONV["attrs"], **of_relay}}
    assert graph["nodes"][3] == kernel
    assert len(module.get_source("json")) < 4000


@json_only
def test_equal_constants_are_stored_once():
    """As importers write a weight that several ops read: one constant for each."""
    first, second = rand(8, 8), rand(8, 8, seed=1)
    second[:7] = first[:7]
    x = relay.var("x", shape=(4, 8))
    expr = x
    for weight in (first, second, first, second):
        expr = relay.tanh(relay.nn.dense(expr, relay.const(weight.copy())))
    runner = testing.Runner(
        testing.build(dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), prune=False))
    )
    data = want = rand(4, 8, seed=2)
    for weight in (first, second, first, second):
        want = np.tanh(want @ weight.T)
    testing.assert_close(runner({"x": data}), [want], RTOL)
    (module,) = testing.dnnl_modules(runner.lib)
    kinds = [node["op"] for node in json.loads(module.get_source("json"))["nodes"]]
    assert kinds.count("const") == 2 and kinds.count("kernel") == 4


@json_only
def test_weights_are_held_once_when_they_need_no_packing():
    """The arena shares memory between intermediates whose lives do not overlap."""
    x, w = var("x", X), var("w", W)
    expr = x
    for _ in range(6):
        expr = relay.nn.relu(relay.nn.conv2d(expr, w, **ATTRS))
    runner = testing.Runner(
        testing.build(dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), {"w": W}))
    )
    runner({"x": X})
    (plan,) = testing.plans(runner)
    assert plan["arena_bytes"] <= plan["arena_bytes_unshared"] / 2


@json_only
def test_concurrent_calls_of_one_module():
    """Eight threads on one module, each with its own input, get what one thread gets."""
    module = dnnl_module({"w": W, "b": B})
    symbol = module.get_function("get_symbol")()
    order = [int(str(n).rsplit("_", 1)[1]) for n in module.get_function("get_const_vars")()]
    # The names count the constants in the order in which the function's body meets them.
    consts = [tvm.nd.array([W, B][i]) for i in order]
    assert module.get_function("__init_" + symbol)(consts) == 0
    call = module.get_function(symbol)

    def work(seed):
        x = rand(*X.shape, seed=seed)
        expected = expected_conv_bias_relu(x)
        source, target = tvm.nd.array(x), tvm.nd.empty(expected.shape)
        for _ in range(50):
            call(source, target)
            testing.assert_close([target], [expected], RTOL)

    on_threads(work)


@json_only
def test_a_call_before_init_says_so():
    module = dnnl_module({"w": W, "b": B})
    call = module.get_function(module.get_function("get_symbol")())
    with pytest.raises(tvm.TVMError, match="2 constants and was not initialised"):
        call(tvm.nd.array(X), tvm.nd.empty((1, 8, 6, 6)))


def init_and_call(*args):
    module = dnnl_module()
    module.get_function(module.get_function("get_symbol")())(*args)


GOOD = [tvm.nd.array(X), tvm.nd.array(W), tvm.nd.array(B), tvm.nd.empty((1, 8, 6, 6))]
BAD_CALLS = {
    "too-few": (GOOD[:3], "4 inputs and outputs are expected, but 3"),
    "too-many": (GOOD + GOOD[:1], "4 inputs and outputs are expected, but 5"),
    "shape": (
        [tvm.nd.empty((1, 8, 6, 7))] + GOOD[1:],
        r"float32 \[1, 8, 6, 6\], but .*7\]; compile .* for this shape, or with open dimensions$",
    ),
    "shape-of-the-result": (GOOD[:3] + [tvm.nd.empty((1, 8, 6, 7))], r"output 0 .*6, 7\]$"),
    "rank": ([tvm.nd.empty((8, 6, 6))] + GOOD[1:], r"but is float32 \[8, 6, 6\]$"),
    "dtype": ([tvm.nd.empty((1, 8, 6, 6), "float64")] + GOOD[1:], "but is float64"),
    "not-a-tensor": ([7] + GOOD[1:], "expected NDArray or DLTensor|DLTensor\\* or NDArray|int"),
    "none": ([None] + GOOD[1:], "null"),
}


@json_only
@pytest.mark.parametrize("args, message", BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_bad_calls_are_errors(args, message):
    with pytest.raises((tvm.TVMError, TypeError), match=message):
        init_and_call(*args)


@json_only
def test_a_good_call_without_constants_needs_no_init():
    init_and_call(*GOOD)
    testing.assert_close([GOOD[3]], [expected_conv_bias_relu()], RTOL)


def rewritten(change):
    """Return the error of a module whose JSON graph was changed by `change(kernel attrs)`."""
    module = dnnl_module()
    graph = json.loads(module.get_source("json"))
    change(graph["nodes"][-1]["attrs"])
    create = tvm.get_global_func("runtime.DNNLJSONRuntimeCreate")
    symbol = module.get_function("get_symbol")()
    with pytest.raises(tvm.TVMError) as error:
        create(symbol, json.dumps(graph), [])[symbol](*GOOD)
    return str(error.value)


@json_only
def test_a_composite_that_only_its_name_describes():
    """TVM's own codegens write no list of post-ops; what the name says is known for a few."""
    module = dnnl_module()
    graph = in_version_1(json.loads(module.get_source("json")))
    attrs = graph["nodes"][-1]["attrs"]
    for key in [key for key in attrs if key == "root_op" or key.startswith("post_ops")]:
        del attrs[key]
    symbol = module.get_function("get_symbol")()
    create = tvm.get_global_func("runtime.DNNLJSONRuntimeCreate")
    create(symbol, json.dumps(graph), [])[symbol](*GOOD)
    testing.assert_close([GOOD[3]], [expected_conv_bias_relu()], RTOL)


def set_attr(key, value):
    return lambda attrs: attrs.__setitem__(key, value)


def set_bias(key, value):
    return lambda attrs: attrs["post_ops"][0].__setitem__(key, value)


NO_LIST = "expected: list of objects, each with"
BAD_ATTRS = {
    "groups": (set_attr("groups", 3), "do not fit 8 input channels in 3 groups"),
    "groups-text": (set_attr("groups", "many"), "'groups' is \"many\", expected: integer"),
    "post-ops": (set_attr("post_ops", 1), "'post_ops' is 1, " + NO_LIST),
    "post-op-no-op": (lambda attrs: attrs["post_ops"][0].pop("op"), "'post_ops' is .*" + NO_LIST),
    "operand": (set_bias("operand", 9), "input 9 is missing"),
    "dequantize": (set_attr("dequantize", [{"input": 9}]), "names input 9, but there are 3"),
}


@json_only
@pytest.mark.parametrize("change, message", BAD_ATTRS.values(), ids=BAD_ATTRS.keys())
def test_a_graph_that_cannot_run_is_an_error_that_names_the_node(change, message):
    text = rewritten(change)
    assert "node 3" in text or "dnnl.conv2d_bias_relu" in text
    assert re.search(message, text), text


def test_a_name_that_no_input_has_is_an_error():
    """The helper of the tests says so; TVM's `run(y=...)` would use what the input has."""
    mod = tvm.IRModule.from_expr(relay.nn.relu(relay.var("x", shape=(2,))))
    runner = testing.Runner(testing.build(mod))
    with pytest.raises(RuntimeError, match="Could not find 'y'"):
        runner({"y": np.ones(2, "float32")})
