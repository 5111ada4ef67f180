# SPDX-License-Identifier: Apache-2.0
"""How far each unary function may be off, over its whole range, fused and not.

The bounds are those of docs/numerics.md. `ONEDNN_MAX_CPU_ISA` and `--onednn-newer` test other code.
"""

import numpy as np
import pytest
from scipy import special
from tvm.contrib.onednn.ops.table import TABLE

from dnnl_tests.kernel import outer_product, run_kernel
from dnnl_tests.marks import json_only

pytestmark = json_only

# Of max(1, |result|).
BOUND = 2e-6
# Of the result itself, where a function keeps its relative accuracy; smaller results may be zero.
RELATIVE = 6e-6
SMALLEST = 1e-35


def softplus(x):
    return np.logaddexp(0, x)


def hard_sigmoid(x):
    return np.clip(np.float32(1 / 6) * x + 0.5, 0, 1)


def gelu_tanh(x):
    return x * special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


def pow_of(exponent):
    return lambda x: np.power(x, exponent)


SLOPE = float(np.float32(0.1))
# op: (numpy function, attributes, whether small results are as accurate as large ones)
FUNCTIONS = {
    "nn.relu": (lambda x: np.maximum(x, 0), {}, True),
    "nn.leaky_relu": (lambda x: np.where(x > 0, x, SLOPE * x), {"alpha": "0.1"}, True),
    "abs": (np.abs, {}, True),
    "clip": (lambda x: np.clip(x, -1, 6), {"a_min": "-1", "a_max": "6"}, True),
    "exp": (np.exp, {}, True),
    "log": (np.log, {}, True),
    "negative": (np.negative, {}, True),
    "rsqrt": (lambda x: 1 / np.sqrt(x), {}, True),
    "sigmoid": (special.expit, {}, True),
    "sqrt": (np.sqrt, {}, True),
    "tanh": (np.tanh, {}, True),
    "dnnl.elu": (lambda x: np.where(x > 0, x, np.expm1(x)), {"alpha": "1"}, False),
    "dnnl.gelu_erf": (lambda x: x * special.ndtr(x), {}, False),
    "dnnl.gelu_tanh": (gelu_tanh, {}, False),
    "dnnl.hard_sigmoid": (hard_sigmoid, {"alpha": str(1 / 6), "beta": "0.5"}, False),
    "dnnl.hard_swish": (lambda x: x * hard_sigmoid(x), {"alpha": str(1 / 6), "beta": "0.5"}, False),
    "dnnl.linear": (lambda x: 3 * x - 2, {"alpha": "3", "beta": "-2"}, False),
    "dnnl.mish": (lambda x: x * np.tanh(softplus(x)), {}, False),
    "dnnl.pow": (pow_of(3), {"alpha": "1", "beta": "3"}, True),
    "dnnl.rsqrt": (lambda x: 1 / np.sqrt(x), {}, True),
    "dnnl.softplus": (softplus, {}, True),
    "dnnl.swish": (lambda x: x * special.expit(x), {"alpha": "1"}, True),
}


# Nothing is fused to these, nor are they to others.
ALONE = {"cos": np.cos, "erf": special.erf, "sin": np.sin}


def test_each_unary_function_is_here():
    assert sorted(FUNCTIONS) == sorted(name for name, op in TABLE.items() if op.post == "eltwise")


def arguments():
    """Return numbers of each magnitude and sign, more where functions bend, and about 1."""
    powers = 2.0 ** np.linspace(-126, 126, 6000)
    lines = [
        np.linspace(-110, 110, 20000),
        np.linspace(-20, 20, 20000),
        np.linspace(0.9, 1.1, 5000),
    ]
    x = np.concatenate([powers, -powers, *lines]).astype("float32")
    return x[: len(x) // 16 * 16 - 5]


WAYS = {
    "alone": lambda op, x, attrs: run_kernel(op, [x], attrs),
    "after-a-matmul": lambda op, x, attrs: run_kernel(
        "nn.matmul",
        list(outer_product(x)),
        {f"post_ops.0.{name}": value for name, value in attrs.items()},
        [op],
        (len(x), 24),
    )[:, 7],
    "after-a-sum": lambda op, x, attrs: run_kernel(
        "add",
        [x, np.zeros(1, "float32")],
        {f"post_ops.0.{name}": value for name, value in attrs.items()},
        [op],
    ),
}


@pytest.mark.parametrize("op", ALONE)
def test_accuracy_alone(op):
    x = np.concatenate([arguments(), np.linspace(-13000, 13000, 100000, dtype="float32")])
    got = run_kernel(op, [x], {})
    assert np.abs(got - ALONE[op](x.astype("float64"))).max() <= BOUND
    special_values = np.array([np.nan, np.inf, -np.inf, 0, -0.0] * 5, "float32")
    with np.errstate(invalid="ignore"):
        expected = ALONE[op](special_values)
    np.testing.assert_allclose(run_kernel(op, [special_values], {}), expected, rtol=5e-7, atol=0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("exponent", [0.75, 0.25, -1.5, 3.25, 4, -3, 0.3, 5])
def test_accuracy_of_powers(exponent, way):
    """Quarters are roots and products; for other exponents, the C library's function is called."""
    x = np.geomspace(1e-7, 1e7, 1000, dtype="float32")[:-5]
    attrs = {"alpha": ["0.5"], "beta": [str(exponent)]}
    got = WAYS[way]("dnnl.pow", x, attrs)
    np.testing.assert_allclose(got, 0.5 * x.astype("float64") ** exponent, rtol=2e-6)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_accuracy(op, way):
    function, attrs, is_relative = FUNCTIONS[op]
    x = arguments()
    with np.errstate(all="ignore"):
        expected = function(x.astype("float64"))
        is_finite = np.abs(expected) < np.finfo("float32").max
    got = WAYS[way](op, x, {name: [value] for name, value in attrs.items()}).astype("float64")
    x, got, expected = x[is_finite], got[is_finite], expected[is_finite]
    assert np.isfinite(got).all()
    error, size = np.abs(got - expected), np.abs(expected)
    worst = np.argmax(error / np.maximum(size, 1))
    assert error[worst] <= BOUND * max(1, size[worst]), x[worst]
    if is_relative:
        assert (error <= np.maximum(RELATIVE * size, SMALLEST)).all()
