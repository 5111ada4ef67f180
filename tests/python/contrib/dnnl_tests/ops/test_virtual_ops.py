# SPDX-License-Identifier: Apache-2.0
"""Virtual ops: formulas of several Relay ops that oneDNN has as one."""

import math

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.graphs import formulas
from dnnl_tests.graphs.formulas import FORMULAS, gelu, sigmoid
from dnnl_tests.reference import conv2d, rand
from dnnl_tests.single_op import run_alone, var

# oneDNN's erf is off by up to 1.5e-7, its exp by five roundings; the rest is rounding to float32.
RTOL = 4e-7
F = relay.const


def relay_sqrt2(x):
    return formulas.relay_sqrt2(x, F)


def elu_tail(x):
    return formulas.elu_tail(x, F)


POSITIVE = ("rsqrt", "reciprocal", "root", "fraction")
SHAPE = (4, 8, 16)


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name):
    """Any of the spellings becomes the one op, and its numbers are those of the formula."""
    op, expr, function = FORMULAS[name]
    low = 0.5 if name in POSITIVE else -8
    x = np.linspace(low, 8, math.prod(SHAPE), dtype="float32").reshape(SHAPE)
    kinds = ["eltwise"] * (2 if op == "rsqrt" else 1)
    reference = function(x.astype("float64"))
    run_alone(
        expr(var("x", SHAPE), F),
        {"x": x},
        None,
        reference,
        kinds=kinds,
        rtol=RTOL,
        composites={f"dnnl.{op}": 1},
    )


@pytest.mark.parametrize("name", FORMULAS)
def test_tvm_runs_what_is_pruned(name):
    """Nothing of a virtual op is left in what goes back to TVM."""
    _, expr, function = FORMULAS[name]
    low = 0.5 if name in POSITIVE else -8
    x = np.linspace(low, 8, 100, dtype="float32")
    mod = tvm.IRModule.from_expr(expr(var("x", x.shape), F))
    pruned = dnnl.partition_for_dnnl(mod)
    assert testing.offload(pruned).partitions == 0
    assert not testing.offload(pruned).composites
    tvm.ir.assert_structural_equal(pruned["main"], relay.transform.InferType()(mod)["main"])
    testing.assert_close(direct.run(pruned, {"x": x}), [function(x.astype("float64"))], 1e-6)


def test_a_pruned_composite_leaves_nothing_of_a_virtual_op():
    x, y = var("x", SHAPE), var("y", SHAPE)
    total = x + y
    mod = tvm.IRModule.from_expr(total * F(0.5) * (F(1.0) + relay_sqrt2(total)))
    kept = dnnl.partition_for_dnnl(mod, prune=False)
    assert testing.offload(kept).composites == {"dnnl.add_gelu_erf": 1}
    pruned = dnnl.partition_for_dnnl(mod)["main"]
    tvm.ir.assert_structural_equal(pruned, relay.transform.InferType()(mod)["main"])


NEAR_MISSES = {
    "gelu-short-root": lambda x: x * F(0.5) * (F(1.0) + relay.erf(x / F(1.41421))),
    "gelu-no-half": lambda x: x * (F(1.0) + relay_sqrt2(x)),
    "gelu-other-half": lambda x: x * F(0.5001) * (F(1.0) + relay_sqrt2(x)),
    "gelu-other-one": lambda x: x * F(0.5) * (F(0.999) + relay_sqrt2(x)),
    "gelu-shifted": lambda x: x * F(0.5) * (F(1.0) + relay_sqrt2(x + F(0.1))),
    "gelu-minus": lambda x: x * F(0.5) * (F(1.0) - relay_sqrt2(x)),
    "gelu-tanh-short": lambda x: (
        x * F(0.5) * (F(1.0) + relay.tanh(F(0.7979) * (x + F(0.044715) * relay.power(x, F(3.0)))))
    ),
    "gelu-tanh-square": lambda x: (
        x
        * F(0.5)
        * (F(1.0) + relay.tanh(F(0.7978845608) * (x + F(0.044715) * relay.power(x, F(2.0)))))
    ),
    "silu-shifted": lambda x: x * relay.sigmoid(x + F(0.1)),
    "silu-twice": lambda x: F(2.0) * (x * relay.sigmoid(x)) * x,
    "hard-swish-bound": lambda x: x * relay.clip(x + F(3.0), 0.0, 5.0) / F(6.0),
    "hard-swish-low": lambda x: x * relay.clip(x + F(3.0), 0.1, 6.0) / F(6.0),
    "hard-swish-six": lambda x: x * relay.clip(x + F(3.0), 0.0, 6.0) / F(6.001),
    "hard-sigmoid-high": lambda x: relay.clip(x * F(0.2) + F(0.5), 0, 0.999),
    "clip": lambda x: relay.clip(x * F(2.0), 0, 1),
    "mish-two": lambda x: x * relay.tanh(relay.log(F(2.0) + relay.exp(x))),
    "mish-twice": lambda x: x * relay.tanh(relay.log(F(1.0) + relay.exp(x * F(2.0)))),
    "elu-one": lambda x: relay.nn.relu(x) - relay.nn.relu(F(0.9) - relay.exp(x)),
    "elu-other-input": lambda x: relay.nn.relu(x) - elu_tail(x + F(0.1)),
}


def virtual_ops(expr, **options):
    """Return the names of the virtual ops in the partitions of an expression."""
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), prune=False, **options)
    ops = set(map(str, tvm.get_global_func("runtime.contrib.dnnl.ops")()))
    names = set()

    def visit(node):
        if isinstance(node, relay.Function) and node.attrs and "Composite" in node.attrs:
            names.add(str(node.attrs["Composite"]))

    for func in mod.functions.values():
        relay.analysis.post_order_visit(func, visit)
    return {name[len("dnnl.") :] for name in names & ops}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_no_formula(name):
    """Not with another constant, however near; and what runs is still right."""
    x = np.linspace(-3, 3, math.prod(SHAPE), dtype="float32").reshape(SHAPE)
    expr = NEAR_MISSES[name](var("x", SHAPE))
    # A constant minus something is an op of its own; others may be a part of something.
    parts = {"linear", "pow", {"silu-twice": "swish", "mish-twice": "softplus"}.get(name)}
    assert virtual_ops(expr) <= parts
    mod = tvm.IRModule.from_expr(expr)
    partitioned = dnnl.partition_for_dnnl(mod, prune=False)
    testing.assert_close(direct.run(partitioned, {"x": x}), direct.run(mod, {"x": x}), 1e-6)


def test_an_inner_value_that_is_used_elsewhere_is_left_alone():
    x = var("x", SHAPE)
    gate = relay.sigmoid(x)
    assert virtual_ops(relay.Tuple([x * gate, gate])) == set()


def test_different_operands_are_no_formula():
    x, y = var("x", SHAPE), var("y", SHAPE)
    assert virtual_ops(x * relay.sigmoid(y)) == set()
    assert virtual_ops(x * F(0.5) * (F(1.0) + relay_sqrt2(y))) == set()


def test_a_constant_that_adds_dimensions_is_no_formula():
    scale = relay.const(np.full((1, 1, 1, 1), 0.5, "float32"))
    x = var("x", SHAPE)
    assert virtual_ops(x * scale * (F(1.0) + relay_sqrt2(x))) == set()
    one = relay.const(np.full((1, 1), 0.5, "float32"))
    assert virtual_ops(x * one * (F(1.0) + relay_sqrt2(x))) == {"gelu_erf"}


def test_the_operand_may_itself_have_a_constant():
    """Of 2x * sigmoid(2x) the operand is 2x; of 2x * sigmoid(x) there is no formula."""
    x = var("x", SHAPE)
    doubled = x * F(2.0)
    assert virtual_ops(doubled * relay.sigmoid(doubled)) == {"swish"}
    assert virtual_ops(doubled * relay.sigmoid(x)) == set()


@pytest.mark.parametrize("name", ["dnnl.gelu_erf", "erf", "multiply"])
def test_excluded(name):
    x = var("x", SHAPE)
    assert virtual_ops(x * F(0.5) * (F(1.0) + relay_sqrt2(x)), exclude=[name]) == set()


def test_other_types_are_left_alone():
    x = relay.var("x", shape=SHAPE, dtype="float64")
    mod = tvm.IRModule.from_expr(x * relay.sigmoid(x))
    assert testing.offload(dnnl.partition_for_dnnl(mod, prune=False)).partitions == 0


def test_one_formula_in_another():
    """The operand of a gelu is a silu, in a network with a convolution before it."""
    x, w = rand(1, 8, 6, 6), rand(8, 8, 3, 3, seed=1)
    attrs = dict(kernel_size=(3, 3), channels=8)
    y = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    y = y * relay.sigmoid(y)
    y = y * F(0.5) * (F(1.0) + relay_sqrt2(y))
    out = conv2d(x, w, attrs).astype("float64")
    out = gelu(out * sigmoid(out))
    mod = tvm.IRModule.from_expr(y)
    partitioned = dnnl.partition_for_dnnl(mod, {"w": w})
    offload = testing.offload(partitioned)
    assert offload.partitions == 1 and not offload.host_ops
    for executor in ("graph", "vm"):
        outputs = direct.run(partitioned, {"x": x}, executor=executor)
        testing.assert_close(outputs, [out], 2e-5)


def test_constants_after_those_of_a_formula():
    """The constants inside of a virtual op are part of its body and get no number."""
    x, w = rand(1, 8, 6, 6), rand(8, 8, 3, 3, seed=1)
    attrs = dict(kernel_size=(3, 3), channels=8)
    data = var("x", x.shape)
    y = data * F(0.5) * (F(1.0) + relay_sqrt2(data))
    partitioned = dnnl.partition_for_dnnl(
        tvm.IRModule.from_expr(relay.nn.conv2d(y, F(w), **attrs)), prune=False
    )
    assert testing.offload(partitioned).partitions == 1
    expected = conv2d(gelu(x).astype("float32"), w, attrs)
    for executor in ("graph", "vm"):
        outputs = direct.run(partitioned, {"x": x}, executor=executor)
        testing.assert_close(outputs, [expected], 2e-5)


def test_the_report_counts_the_ops_of_a_formula():
    x = var("x", SHAPE)
    mod = tvm.IRModule.from_expr(x * F(0.5) * (F(1.0) + relay_sqrt2(x)))
    report = dnnl.offload_report(dnnl.partition_for_dnnl(mod, prune=False))
    assert report.offloaded == report.total == 5
    assert report.composites == {"dnnl.gelu_erf": 1}
