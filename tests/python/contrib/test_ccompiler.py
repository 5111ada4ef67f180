# SPDX-License-Identifier: Apache-2.0
"""The example code generator `ccompiler`: Relay becomes loops in C, and nothing else is needed."""

import ctypes
import subprocess

import numpy as np
import pytest
import tvm
from dnnl_tests.reference import rand
from dnnl_tests.relay import compiler_of
from tvm import relay
from tvm.contrib import cc
from tvm.relay.op.contrib import ccompiler, dnnl
from tvm.testing import dnnl as testing

FUNCTIONS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}


def partition(expr):
    """Move what `ccompiler` takes into functions of its own."""
    passes = [
        relay.transform.InferType(),
        relay.transform.AnnotateTarget(["ccompiler"]),
        relay.transform.MergeCompilerRegions(),
        relay.transform.PartitionGraph(),
    ]
    return tvm.transform.Sequential(passes)(tvm.IRModule.from_expr(expr))


def ops_of(mod):
    """Return how many calls of each op the functions of `ccompiler` have, and how many they are."""
    counts, functions = {}, 0

    def visit(node):
        if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op):
            counts[node.op.name] = counts.get(node.op.name, 0) + 1

    for func in mod.functions.values():
        if compiler_of(func) == "ccompiler":
            functions += 1
            relay.analysis.post_order_visit(func.body, visit)
    return counts, functions


def source_of(mod):
    """Return the C source of a module's only partition."""
    (source,) = testing.c_sources(testing.build(mod))
    return source


def var(name, value):
    return relay.var(name, shape=value.shape, dtype=str(value.dtype))


def values(dtype, *shapes):
    """Return an array of each shape, of values that any type can hold."""
    return [(rand(*shape, seed=i) * 10 + 10).astype(dtype) for i, shape in enumerate(shapes)]


SHAPES = {
    "same": ((2, 3, 4), (2, 3, 4)),
    "row": ((2, 3, 4), (4,)),
    "column": ((2, 3, 4), (3, 1)),
    "both-ways": ((2, 1, 4), (3, 1)),
    "scalar": ((2, 3), ()),
    "scalars": ((), ()),
    "longer-on-the-right": ((4,), (5, 1, 4)),
    "rank-7": ((2, 1, 2, 1, 2, 1, 3), (2, 2, 1, 2, 1, 2, 1)),
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("op", FUNCTIONS)
def test_broadcasting(op, shapes):
    a, b = values("float32", *shapes)
    mod = partition(getattr(relay, op)(var("a", a), var("b", b)))
    assert ops_of(mod) == ({op: 1}, 1)
    testing.assert_close(testing.run(mod, {"a": a, "b": b}), [FUNCTIONS[op](a, b)], 0)


@pytest.mark.parametrize("dtype", sorted(ccompiler._DTYPES))
def test_types(dtype):
    a, b = values(dtype, (3, 4), (4,))
    rhs = var("b", b)
    mod = partition(relay.multiply(relay.subtract(var("a", a), rhs), rhs))
    assert ops_of(mod) == ({"subtract": 1, "multiply": 1}, 1)
    (got,) = testing.run(mod, {"a": a, "b": b})
    assert got.dtype == dtype
    # Numbers without a sign wrap around in C as they do in numpy.
    np.testing.assert_array_equal(got, (a - b) * b)


def graph():
    """Return an expression with constants, two results and an op for TVM, and its results."""
    x, c, d = values("float32", (2, 8), (8,), (2, 1))
    data = var("x", x)
    first = relay.add(relay.multiply(data, relay.const(c)), relay.const(d))
    second = relay.subtract(relay.nn.relu(first), data)
    y = x * c + d
    return relay.Tuple([first, second]), {"x": x}, [y, np.maximum(y, 0) - x]


@pytest.mark.parametrize("executor", ["graph", "vm"])
def test_several_partitions_with_constants(executor):
    expr, inputs, expected = graph()
    mod = partition(expr)
    counts, functions = ops_of(mod)
    assert counts == {"multiply": 1, "add": 1, "subtract": 1} and functions > 1
    testing.assert_close(testing.run(mod, inputs, executor=executor), expected, 1e-6)


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_exported_library(compiler, tmp_path):
    expr, inputs, expected = graph()
    lib = testing.build(partition(expr))
    options = ["-O2", "-Wall", "-Wextra", "-Werror"]
    lib.export_library(str(tmp_path / "lib.so"), cc=compiler, options=options)
    outputs = testing.run_in_new_process(tmp_path / "lib.so", inputs)
    testing.assert_close(outputs, expected, 1e-6)


def test_the_source_is_c99_without_warnings(tmp_path):
    (tmp_path / "a.c").write_text(source_of(partition(graph()[0].fields[0])))
    command = ["gcc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-c", "a.c"]
    command += [option for option in dnnl.c_source_options() if option.startswith("-I")]
    subprocess.run(command, cwd=tmp_path, check=True)


def compile_for_micro(mod, folder, options):
    """Compile a module for microTVM, its C files to one library; return the library's path."""
    config = {"tir.disable_vectorize": True}
    with tvm.transform.PassContext(opt_level=3, config=config):
        executor = relay.backend.Executor("aot", options)
        lib = relay.build(mod, "c", executor=executor, runtime=relay.backend.Runtime("crt"))
    for number, text in enumerate(testing.c_sources(lib)):
        (folder / f"lib{number}.c").write_text(text)
    # What TVM's archive of a model has in its place.
    (folder / "tvmgen_default.h").write_text(
        "struct tvmgen_default_inputs { void *x, *y; };\n"
        "struct tvmgen_default_outputs { void* output; };\n"
    )
    files = [str(path) for path in folder.glob("*.c")]
    command = ["gcc", "-shared", "-fPIC", f"-I{folder}", *dnnl.c_source_options(), *files]
    subprocess.run([*command, "-o", str(folder / "model.so")], check=True)
    return str(folder / "model.so")


@pytest.mark.parametrize("api", ["packed", "unpacked"])
def test_microtvm(api, tmp_path):
    """TVM's C code for a microcontroller calls ours, run here on the host."""
    x, y = values("float32", (2, 3), (3,))
    mod = partition(relay.nn.relu(relay.subtract(var("x", x), var("y", y))))
    assert ops_of(mod) == ({"subtract": 1}, 1)
    options = {"unpacked-api": True, "interface-api": "c"} if api == "unpacked" else {}
    path = compile_for_micro(mod, tmp_path, options)
    # Inputs, output, and the workspace that the board's program would provide.
    arrays = [x, y, np.zeros((2, 3), "float32"), np.zeros(1 << 16, "uint8")]
    if api == "packed":
        arrays = [tvm.nd.array(array) for array in arrays]
        tvm.runtime.load_module(path)["tvmgen_default___tvm_main__"](*arrays)
    else:
        main = ctypes.CDLL(path).tvmgen_default___tvm_main__
        assert main(*(array.ctypes.data_as(ctypes.c_void_p) for array in arrays)) == 0
    testing.assert_close(arrays[2:3], [np.maximum(x - y, 0)], 0)


def test_the_header_of_the_target_comes_first():
    target = tvm.target.Target("ccompiler -header='/* by hand */'")
    a, b = values("float32", (3,), (3,))
    mod = partition(relay.add(var("a", a), var("b", b)))
    host = testing.host_target()
    lib = relay.build(mod, target=[host, target])
    (source,) = testing.c_sources(lib)
    assert "/* by hand */" in source.split("#include")[0]
    testing.assert_close(testing.Runner(lib)({"a": a, "b": b}), [a + b], 0)


REFUSED = {
    "half": ("float16", (3,), "float16"),
    "bool": ("bool", (3,), "bool"),
    "dynamic": ("float32", (relay.Any(),), "dynamic shape"),
    "empty": ("float32", (0, 3), "no elements"),
}


@pytest.mark.parametrize("dtype, shape, text", REFUSED.values(), ids=REFUSED.keys())
def test_refused(dtype, shape, text):
    a, b = (relay.var(name, shape=shape, dtype=dtype) for name in "ab")
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.add(a, b)))
    assert text in ccompiler.refusal(mod["main"].body)
    assert ops_of(partition(relay.add(a, b))) == ({}, 0)


def annotated(op, *args):
    """Return a call that is marked for `ccompiler` whether or not the policy would take it."""
    args = [relay.annotation.compiler_begin(arg, "ccompiler") for arg in args]
    call = relay.annotation.compiler_end(op(*args), "ccompiler")
    passes = [relay.transform.InferType(), relay.transform.PartitionGraph()]
    return tvm.transform.Sequential(passes)(tvm.IRModule.from_expr(call))


def test_an_op_that_it_does_not_have_is_an_error_at_compile_time():
    x = relay.var("x", shape=(3,))
    with pytest.raises(tvm.TVMError, match="has no op tan; it has add, subtract, multiply"):
        testing.build(annotated(relay.tan, x))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "bool"])
def test_a_type_that_c_does_not_have_is_an_error_at_compile_time(dtype):
    """The bits of these would be added as those of whole numbers."""
    a, b = (relay.var(name, shape=(3,), dtype=dtype) for name in "ab")
    with pytest.raises(tvm.TVMError, match=f"add of {dtype}"):
        testing.build(annotated(relay.add, a, b))


def test_the_two_lists_of_ops_agree():
    assert [str(op) for op in tvm.get_global_func("relay.ext.ccompiler.ops")()] == [*ccompiler.OPS]


def test_nothing_is_needed_but_a_compiler():
    assert cc.get_cc()
    text = source_of(partition(graph()[0].fields[0]))
    assert "dnnl" not in text.lower()
    assert "for (int64_t i0 = 0; i0 < 2; ++i0) {" in text


if __name__ == "__main__":
    tvm.testing.main()
