# SPDX-License-Identifier: Apache-2.0
"""The C source of the DNNL code generator: compiled, deployed, and what goes wrong with it."""

import itertools
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import small_graph as small
from dnnl_tests.marks import nightly_except
from dnnl_tests.reference import RTOL, dense, rand
from dnnl_tests.threads import on_threads

SYMBOL = "tvmgen_default_dnnl_main_0"
STRICT = ["-O2", "-Wall", "-Wextra", "-Werror"]
INCLUDES = [option for option in dnnl.c_source_options() if option.startswith("-I")]


def build(mod=None, **options):
    """Compile a module, by default the small one, to C source in whichever build this is."""
    mod = dnnl.partition_for_dnnl(mod or small.relay_module())
    assert testing.offload(mod).partitions > 0
    return testing.build(mod, codegen="C_SRC", **options)


def source_of(lib):
    """Return the C source of a library's only partition."""
    (source,) = testing.c_sources(lib)
    return source


def modules_of(lib):
    return sorted(module.type_key for module in testing.imported_modules(lib))


def check_small(outputs):
    testing.assert_close(outputs, small.reference(), RTOL)


# An export has to do with the executor, and the source with the compiler: each is there by default.
NEW_PROCESS = list(itertools.product(("graph", "vm", "aot"), ("gcc", "g++")))
EACH = {("graph", "gcc"), ("vm", "g++"), ("aot", "gcc")}


@pytest.mark.parametrize("executor, compiler", nightly_except(EACH, NEW_PROCESS))
def test_exported_library_runs_in_a_new_process(executor, compiler, tmp_path):
    lib = build(executor=executor)
    assert "c" in modules_of(lib) and "dnnl_json" not in modules_of(lib)
    path = tmp_path / "lib.so"
    testing.export(lib, path, cc=compiler, options=STRICT + dnnl.c_source_options())
    check_small(testing.run_in_new_process(path, {"x": small.X}, executor=executor))


@pytest.mark.parametrize("executor", ["graph", "vm", "aot"])
def test_executors(executor):
    runner = testing.Runner(build(executor=executor))
    check_small(runner({"x": small.X}))
    # Nothing of the first run sticks.
    assert testing.difference(runner({"x": -small.X}), small.reference()).relative > RTOL
    check_small(runner({"x": small.X}))
    (plan,) = testing.plans(runner)
    kinds = [step["kind"] for step in plan["primitives"] if step["kind"] != "reorder"]
    assert kinds == ["convolution", "binary"]


@pytest.mark.parametrize("command", [["gcc", "-std=c99"], ["g++", "-std=c++17", "-x", "c++"]])
def test_the_source_is_plain_c_and_c_plus_plus(command, tmp_path):
    (tmp_path / "a.c").write_text(source_of(build()))
    command = [*command, "-pedantic", *STRICT, *INCLUDES, "-c", "a.c"]
    # The attribute and the builtin that GCC and Clang have are all that is not in the standard.
    subprocess.run(command, cwd=tmp_path, check=True)


def test_an_export_without_the_options_says_what_to_pass(tmp_path):
    with pytest.raises(RuntimeError, match="error pass options=.*c_source_options.. to export"):
        build().export_library(str(tmp_path / "lib.so"))


def test_the_source_can_be_read():
    text = source_of(build())
    assert "/* out0 = dnnl.conv2d_bias_relu(in0, const_0, const_1) */" in text
    assert text.count("TVMDNNLRunOp(") == 2
    # One line of what is computed above each call, and no line that is too long to read.
    assert max(map(len, text.splitlines())) <= 100


def big_module(megabytes):
    """Return a module whose weights have this size, its input and its result."""
    side, value, expr = 1024, rand(2, 1024), relay.var("x", shape=(2, 1024))
    expected = value
    for seed in range(megabytes // 4):
        weight = rand(side, side, seed=seed) / 8
        expr = relay.nn.relu(relay.nn.dense(expr, relay.const(weight)))
        expected = np.maximum(dense(expected, weight), 0)
    return tvm.IRModule.from_expr(expr), value, expected


def test_a_hundred_megabytes_of_constants(tmp_path):
    mod, x, expected = big_module(100)
    lib = build(mod)
    path = tmp_path / "lib.so"
    start = os.times()
    testing.export(lib, path)
    # Of the CPU, with the compiler's: other processes do not count.
    seconds = sum(os.times()[:4]) - sum(start[:4])
    assert path.stat().st_size > 100_000_000
    # A few seconds. As literals they would take minutes.
    assert seconds < 60
    assert len(source_of(lib)) < 50_000
    testing.assert_close(testing.run_in_new_process(path, {"x": x}), [expected], 10 * RTOL)


def test_libraries_of_the_same_code_keep_their_own_constants():
    """Two models of one structure have the same C text; only their constants differ."""
    x = rand(4, 8)
    weights = [rand(8, 8, seed=seed) for seed in (1, 2)]
    libs = [
        build(tvm.IRModule.from_expr(relay.nn.dense(relay.var("x", shape=x.shape), relay.const(w))))
        for w in weights
    ]
    assert source_of(libs[0]) == source_of(libs[1])
    runners = [testing.Runner(lib) for lib in libs]
    for _ in range(2):
        for runner, w in zip(runners, weights):
            testing.assert_close(runner({"x": x}), [dense(x, w)], RTOL)


def test_partitions_keep_their_own_constants():
    x, w, v = rand(4, 8), rand(8, 8, seed=1), rand(8, 8, seed=2)
    first = relay.nn.dense(relay.var("x", shape=x.shape), relay.const(w))
    mod = tvm.IRModule.from_expr(relay.nn.dense(relay.cumsum(first, axis=1), relay.const(v)))
    expected = dense(np.cumsum(dense(x, w), axis=1), v)
    for executor in ("graph", "vm", "aot"):
        lib = build(mod, executor=executor)
        assert len(testing.c_sources(lib)) == 2
        testing.assert_close(testing.Runner(lib)({"x": x}), [expected], 3 * RTOL)


def test_without_constants():
    x, w = rand(4, 8), rand(8, 8, seed=1)
    expr = relay.nn.dense(relay.var("x", shape=x.shape), relay.var("w", shape=w.shape))
    for executor in ("graph", "vm", "aot"):
        lib = build(tvm.IRModule.from_expr(expr), executor=executor)
        assert "dnnl_constants" not in modules_of(lib) and "constants" not in source_of(lib)
        testing.assert_close(testing.Runner(lib)({"x": x, "w": w}), [dense(x, w)], RTOL)


def test_many_threads_on_one_library():
    """Also the first calls, which take the constants and create the primitives."""
    lib, _ = testing.compiled(build(executor="aot"))
    call = lib.get_function(SYMBOL, True)

    def work(_):
        outputs = [tvm.nd.empty(small.X.shape), tvm.nd.empty(small.X.shape)]
        for _ in range(20):
            call(tvm.nd.array(small.X), *outputs)
            testing.assert_close(outputs, small.reference(), RTOL)

    on_threads(work)


GOOD = [tvm.nd.array(small.X), *(tvm.nd.empty(small.X.shape) for _ in range(2))]
BAD_CALLS = {
    "too-few": (GOOD[:2], "takes 3 tensors"),
    "shape": ([tvm.nd.empty((1, 8, 6, 7)), *GOOD[1:]], r"in0 must be .* float32 \(1, 8, 6, 6\)"),
    "rank": ([tvm.nd.empty((8, 6, 6)), *GOOD[1:]], "in0 must be"),
    "dtype": ([*GOOD[:2], tvm.nd.empty(small.X.shape, "float64")], "out1 must be"),
    "not-a-tensor": ([7, *GOOD[1:]], "an argument is not a tensor"),
    "none": ([None, *GOOD[1:]], "not a tensor|in0 must be"),
}


@pytest.mark.parametrize("args, message", BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_bad_calls_are_errors(args, message):
    lib, _ = testing.compiled(build())
    with pytest.raises(tvm.TVMError, match=message) as error:
        lib.get_function(SYMBOL, True)(*args)
    assert SYMBOL in str(error.value)


def test_what_the_kernels_refuse_is_an_error_that_names_the_op(tmp_path):
    """As a failure code from the kernels, which C has no exceptions for, up to Python."""
    text = source_of(build()).replace('{"padding", "1,1,1,1"}', '{"padding", "1,1,1"}')
    source, path = tmp_path / "a.c", str(tmp_path / "a.so")
    source.write_text(re.sub("__init_", "other_init_", text))
    options = dnnl.c_source_options()
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", path, *options], check=True)
    values = [tvm.nd.array(value) for value in (small.W, small.B, small.S)]
    constants = tvm.get_global_func("runtime.DNNLConstantsCreate")(SYMBOL, values)
    module = tvm.runtime.load_module(path)
    with pytest.raises(tvm.TVMError, match="get_constant_" + SYMBOL):
        module[SYMBOL](*GOOD)
    module.import_module(constants)
    for _ in range(2):
        with pytest.raises(tvm.TVMError, match=r"dnnl.conv2d_bias_relu.*padding \[1, 1, 1\]"):
            module[SYMBOL](*GOOD)


def test_a_tvm_without_dnnl_refuses_to_load_the_library(tmp_path):
    """The loader names what is missing; the process goes on."""
    path = tmp_path / "lib.so"
    testing.export(build(), path)
    code = (
        f"import tvm\ntry: tvm.runtime.load_module({str(path)!r})\nexcept Exception as e: print(e)"
    )
    environ = {**os.environ, "TVM_DNNL_LIBRARY": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    if dnnl.is_dnnl_available() and "no oneDNN backend" in done.stderr:
        assert "undefined symbol: TVMDNNL" in done.stdout
    else:  # A tree of TVM that was built with DNNL inside always has it.
        assert done.stdout == ""


def test_a_damaged_library_is_an_error(tmp_path):
    create = tvm.get_global_func("runtime.DNNLConstantsCreate")
    module = create("f", [tvm.nd.array(rand(3)), tvm.nd.array(rand(2, 2))])
    get = module.get_function("get_constant_f")
    np.testing.assert_array_equal(get(1).numpy(), rand(2, 2))
    for index in (-1, 2):
        with pytest.raises(tvm.TVMError, match=f"f has 2 constants, but none with index {index}"):
            get(index)
    with pytest.raises(AttributeError):
        module.get_function("get_constant_g")


def test_dynamic_shapes_are_an_error_at_compile_time():
    x = relay.var("x", shape=(relay.Any(), 8))
    func = relay.Function([x], relay.nn.relu(x))
    func = func.with_attr("Compiler", "dnnl").with_attr("global_symbol", SYMBOL)
    (func,) = relay.transform.InferType()(tvm.IRModule.from_expr(func)).functions.values()
    with tvm.transform.PassContext(config={"relay.ext.dnnl.codegen": "C_SRC"}):
        with pytest.raises(tvm.TVMError, match="C source requires static shapes"):
            tvm.get_global_func("relay.ext.dnnl")(func)
