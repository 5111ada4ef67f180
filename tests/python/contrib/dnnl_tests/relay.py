# SPDX-License-Identifier: Apache-2.0
"""Relay modules for the tests of the offload policy, and what was done to them."""

import warnings

import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.reference import rand


def var(name, *shape, dtype="float32"):
    """Return a variable; a dimension None is symbolic."""
    return relay.var(name, shape=[relay.Any() if d is None else d for d in shape], dtype=dtype)


def const(*shape, dtype="float32", seed=0):
    """Return a constant of values that are the same in every run."""
    return relay.const(rand(*shape, seed=seed), dtype)


def conv(data, out_channels=8, kernel=3, in_channels=8, seed=0, **attrs):
    """Convolve NCHW data with a constant weight, padded to keep its size."""
    weight = const(out_channels, in_channels, kernel, kernel, seed=seed)
    attrs.setdefault("padding", (kernel // 2,) * 2)
    return relay.nn.conv2d(
        data, weight, channels=out_channels, kernel_size=(kernel, kernel), **attrs
    )


def module(*outputs):
    """Return a module of a function main with the free variables of `outputs` as parameters."""
    body = outputs[0] if len(outputs) == 1 else relay.Tuple(outputs)
    func = relay.Function(relay.analysis.free_vars(body), body)
    return relay.transform.InferType()(tvm.IRModule.from_expr(func))


def partition(mod, params=None, **options):
    """Partition a module; a function that is left alone because a pass failed is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        partitioned = dnnl.partition_for_dnnl(mod, params, **options)
    check_complete(partitioned)
    return partitioned


def check_complete(mod):
    """Assert that a partitioned module is plain Relay outside of its partitions."""
    relay.transform.InferType()(mod)
    for func in mod.functions.values():
        if isinstance(func, relay.Function) and not compiler_of(func):
            text = func.astext(show_meta_data=False)
            assert "Composite" not in text and "compiler_begin" not in text, text
        elif isinstance(func, relay.Function) and compiler_of(func) == "dnnl":
            result = func.checked_type.ret_type
            fields = result.fields if isinstance(result, relay.TupleType) else [result]
            assert all(isinstance(field, relay.TensorType) for field in fields)
            assert all(isinstance(param.checked_type, relay.TensorType) for param in func.params)


def compiler_of(func):
    """Return the compiler of a function, or None."""
    attrs = func.attrs or {}
    return str(attrs["Compiler"]) if "Compiler" in attrs else None


def composites(mod, **options):
    """Partition a module without pruning and return how often it has each composite."""
    return dict(dnnl.offload_report(partition(mod, prune=False, **options)).composites)


def without_dnnl(mod):
    """Put the partitions of a module back into its functions."""
    names = [
        var
        for var, func in mod.functions.items()
        if isinstance(func, relay.Function) and compiler_of(func) == "dnnl"
    ]
    passes = [relay.transform.InlineCompilerFunctionsBoundTo(names)] if names else []
    return tvm.transform.Sequential([*passes, relay.transform.InferType()])(mod)


def assert_same_result(mod, partitioned, inputs, params=None, executor="graph", rtol=1e-5):
    """Run a module, and what it was partitioned into, put together again, on TVM alone."""
    want = direct.run(mod, inputs, params, executor=executor)
    got = direct.run(without_dnnl(partitioned), inputs, executor=executor)
    testing.assert_close(got, want, rtol)
