# SPDX-License-Identifier: Apache-2.0
"""The AOT executor, whose code calls JSON modules by functions that TVM compiles beside it."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.backend import Executor, Runtime
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import small_graph as small
from dnnl_tests.models import workloads
from dnnl_tests.reference import RTOL, conv2d, dense, rand
from dnnl_tests.threads import on_threads


def compiled(mod, partitions=1, params=None):
    """Compile to JSON for the AOT executor, asserting what is offloaded and how it is imported."""
    mod = dnnl.partition_for_dnnl(mod, params)
    assert testing.offload(mod).partitions == partitions
    lib = testing.build(mod, codegen="JSON", executor="aot")
    assert len(testing.dnnl_modules(lib)) == partitions and not testing.c_sources(lib)
    return lib


def in_both_processes(lib, inputs, path):
    """Return the outputs in this process, without an export, and in one that loads the library."""
    lib.export_library(str(path))
    return testing.Runner(lib)(inputs), testing.run_in_new_process(path, inputs, executor="aot")


def test_constants(tmp_path):
    lib = compiled(small.relay_module())
    for outputs in in_both_processes(lib, {"x": small.X}, tmp_path / "lib.so"):
        testing.assert_close(outputs, small.reference(), RTOL)


def test_nothing_of_the_first_run_sticks():
    runner = testing.Runner(compiled(small.relay_module()))
    for x in (small.X, -small.X, small.X):
        is_near = testing.difference(runner({"x": x}), small.reference()).relative <= RTOL
        assert is_near == (x is small.X)
    (plan,) = testing.plans(runner)
    kinds = [step["kind"] for step in plan["primitives"] if step["kind"] != "reorder"]
    assert kinds == ["convolution", "binary"]


def test_partitions_keep_their_own_constants(tmp_path):
    x, w, v = rand(4, 8), rand(8, 8, seed=1), rand(8, 8, seed=2)
    first = relay.nn.dense(relay.var("x", shape=x.shape), relay.const(w))
    mod = tvm.IRModule.from_expr(relay.nn.dense(relay.cumsum(first, axis=1), relay.const(v)))
    expected = dense(np.cumsum(dense(x, w), axis=1), v)
    for outputs in in_both_processes(compiled(mod, 2), {"x": x}, tmp_path / "lib.so"):
        testing.assert_close(outputs, [expected], 3 * RTOL)


def test_without_constants(tmp_path):
    x, w = rand(4, 8), rand(8, 8, seed=1)
    expr = relay.nn.dense(relay.var("x", shape=x.shape), relay.var("w", shape=w.shape))
    lib, inputs = compiled(tvm.IRModule.from_expr(expr)), {"x": x, "w": w}
    for outputs in in_both_processes(lib, inputs, tmp_path / "lib.so"):
        testing.assert_close(outputs, [dense(x, w)], RTOL)


def test_types_of_arguments(tmp_path):
    """A scalar, bool, int8 and float16 in and out of partitions."""
    x, s, n, h = rand(1, 4, 6, 6), rand().astype("float32"), rand(1, 4, 6, 6), rand(2, 3)
    n, h = (n * 50).astype("int8"), h.astype("float16")
    var = {k: relay.var(k, shape=v.shape, dtype=str(v.dtype)) for k, v in zip("xsnh", (x, s, n, h))}
    weight = rand(4, 4, 3, 3, seed=1)
    attrs = dict(kernel_size=(3, 3), channels=4, padding=(1, 1))
    conv = relay.nn.conv2d(var["x"], relay.const(weight), **attrs) * var["s"]
    outputs = [conv, relay.greater(conv, relay.const(0.0)), relay.nn.max_pool2d(var["n"], (2, 2))]
    outputs.append(relay.reshape(var["h"], (3, 2)))
    mod = tvm.IRModule.from_expr(relay.Tuple(outputs))
    y = conv2d(x, weight, attrs) * s
    windows = np.lib.stride_tricks.sliding_window_view(n, (2, 2), axis=(2, 3))
    expected = [y, y > 0, windows.max(axis=(4, 5)), h.reshape(3, 2)]
    mod = dnnl.partition_for_dnnl(mod, prune=False)
    offload = testing.offload(mod)
    assert offload.partitions and "nn.max_pool2d" not in offload.host_ops
    lib = testing.build(mod, codegen="JSON", executor="aot")
    inputs = {"x": x, "s": s, "n": n, "h": h}
    for got in in_both_processes(lib, inputs, tmp_path / "lib.so"):
        testing.assert_close(got[:1], expected[:1], RTOL)
        for a, b in zip(got[1:], expected[1:]):
            np.testing.assert_array_equal(a, b)


@pytest.mark.nightly
def test_mobilenet_v2(tmp_path):
    workload = workloads.WORKLOADS["mobilenet_v2"]
    mod, params = workload.load()
    lib = compiled(mod, params=params)
    x = np.random.default_rng(0).uniform(-1, 1, workload.shape).astype("float32")
    inputs = {workload.input_name: x}
    expected = workloads.onnx_session(workload.onnx_path()).run(None, inputs)
    for outputs in in_both_processes(lib, inputs, tmp_path / "lib.so"):
        # Float32 through some fifty layers.
        testing.assert_close(outputs, expected, 1e-4)


def test_executors_of_one_library_on_threads(tmp_path):
    compiled(small.relay_module()).export_library(str(tmp_path / "lib.so"))
    lib = tvm.runtime.load_module(str(tmp_path / "lib.so"))

    def work(_):
        runner = testing.Runner(lib, "aot")
        for _ in range(20):
            testing.assert_close(runner({"x": small.X}), small.reference(), RTOL)

    on_threads(work)


def test_libraries_of_the_same_functions_in_one_process(tmp_path):
    """Their functions have the same names."""
    x, runners = rand(4, 8), []
    weights = [rand(8, 8, seed=seed) for seed in (1, 2)]
    for i, w in enumerate(weights):
        expr = relay.nn.dense(relay.var("x", shape=x.shape), relay.const(w))
        lib = compiled(tvm.IRModule.from_expr(expr))
        path = str(tmp_path / f"{i}.so")
        lib.export_library(path)
        runners += [
            (testing.Runner(lib), w),
            (testing.Runner(tvm.runtime.load_module(path), "aot"), w),
        ]
    for runner, w in runners * 2:
        testing.assert_close(runner({"x": x}), [dense(x, w)], RTOL)


def build(mod, **options):
    with tvm.transform.PassContext(opt_level=3, config={"relay.ext.dnnl.codegen": "JSON"}):
        relay.build(dnnl.partition_for_dnnl(mod), target=dnnl.host_target(), **options)


def test_open_dimensions_are_an_error():
    x = relay.var("x", shape=(relay.Any(), 8))
    expr = relay.nn.relu(relay.nn.dense(x, relay.const(rand(8, 8))))
    # TVM's own, before it asks for a partition; the page on trouble shooting tells what to do.
    with pytest.raises(tvm.TVMError, match="does not support dynamic shapes"):
        build(tvm.IRModule.from_expr(expr), executor=Executor("aot"))


def test_the_c_runtime_is_an_error():
    options = {"interface-api": "c", "unpacked-api": True}
    for executor in (Executor("aot"), Executor("aot", options)):
        with pytest.raises(tvm.TVMError, match=r'C\+\+ runtime, but .*Runtime\("crt"\)'):
            build(small.relay_module(), executor=executor, runtime=Runtime("crt"))


def test_the_unpacked_interface_is_an_error():
    with pytest.raises(tvm.TVMError, match="unpacked-api == false .* c\\+\\+ runtime"):
        build(small.relay_module(), executor=Executor("aot", {"unpacked-api": True}))
