# SPDX-License-Identifier: Apache-2.0
"""Modules of Relax for tests: how they are made, partitioned, run and compared."""

import tempfile
from collections import Counter

import numpy as np
import tvm
import tvm_dnnl
from tvm import relax
from tvm.relax import op
from tvm.relax.ir.instrument import WellFormedInstrument

# What TVM computes itself: unoptimized code is made in a fifth of the time.
TARGET = tvm.target.Target({"kind": "llvm", "opt-level": 0})


def rand(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


def const(*shape, seed=1):
    return relax.const(rand(*shape, seed=seed))


def var(name, *shape, dtype="float32"):
    """A parameter; a dimension that is given as text is open."""
    return name, shape, dtype


def module(build, *params):
    """Return the module of a function that `build` makes of its parameters."""
    builder, symbols = relax.BlockBuilder(), {}

    def dim(size):
        if not isinstance(size, str):
            return size
        return symbols.setdefault(size, tvm.tirx.Var(size, "int64"))

    variables = [
        relax.Var(name, relax.TensorType([dim(size) for size in shape], dtype))
        for name, shape, dtype in params
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            result = build(builder, *variables)
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()


def composites(mod):
    """Return the composites of a partitioned module, each as often as there are some."""
    counts = Counter()
    for func in mod.functions.values():
        if isinstance(func, relax.Function) and func.attrs and "Codegen" in func.attrs:
            for block in func.body.blocks:
                for binding in block.bindings:
                    if isinstance(binding.value, relax.Function):
                        counts[str(binding.value.attrs["Composite"])] += 1
    return counts


def partitions(mod):
    return sum(
        isinstance(func, relax.Function) and "Codegen" in (func.attrs or {})
        for func in mod.functions.values()
    )


def virtual_machine(mod):
    """Return a virtual machine that runs a module, which is linked: LLVM's JIT takes longer."""
    executable = tvm.compile(mod, target=TARGET)
    with tempfile.TemporaryDirectory() as folder:
        executable.export_library(f"{folder}/model.so")
        library = tvm.runtime.load_module(f"{folder}/model.so")
    return relax.VirtualMachine(library, tvm.cpu())


def run(mod, *inputs):
    result = virtual_machine(mod)["main"](*(tvm.runtime.tensor(value) for value in inputs))
    results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [value.numpy() for value in results]


def imported(loaded, kind):
    """Return the modules of a kind that a library has."""
    modules = [loaded] if loaded.kind == kind else []
    return modules + [each for one in loaded.imports for each in imported(one, kind)]


def compiled(partitioned):
    return relax.transform.RunCodegen()(partitioned)


def check(mod, wanted, *inputs, tolerance=1e-5, prune=False):
    """Partition, assert the composites if they are given, and compare with TVM alone."""
    before = mod.script()
    # Each pass of TVM reads and returns a well-formed module, as TVM's own tests require.
    with tvm.transform.PassContext(instruments=[WellFormedInstrument()]):
        partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=prune)
    assert mod.script() == before, "the caller's module was changed"
    counts = composites(partitioned)
    assert wanted is None or counts == Counter(wanted), counts
    relax.analysis.well_formed(partitioned)
    got = run(compiled(partitioned), *inputs)
    expected = run(mod, *inputs)
    assert len(got) == len(expected)
    for one, other in zip(got, expected):
        assert one.dtype == other.dtype
        # Sums of the same products in another order.
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    return partitioned


def check_case(build, params, wanted):
    """Check the function that `build` makes of some parameters: it is one partition."""
    inputs = [rand(*shape, dtype=dtype, seed=k) for k, (_, shape, dtype) in enumerate(params)]
    assert partitions(check(module(build, *params), wanted, *inputs)) == 1


X4 = var("x", 2, 6, 9, 9)
X2 = var("x", 4, 8)
X3 = var("x", 2, 5, 8)


def conv(builder, x, channels=4, kernel=3, **attrs):
    weight = const(channels, int(x.ty.shape.values[1]) // attrs.get("groups", 1), kernel, kernel)
    return builder.emit(op.nn.conv2d(x, weight, padding=1, **attrs))


def conv_bias_relu(builder, x):
    y = builder.emit(op.add(conv(builder, x), const(1, 4, 1, 1)))
    return op.nn.relu(y)


def residual(builder, x):
    y = conv(builder, x, channels=6)
    y = builder.emit(op.add(y, const(1, 6, 1, 1)))
    return op.nn.relu(builder.emit(op.add(y, x)))
