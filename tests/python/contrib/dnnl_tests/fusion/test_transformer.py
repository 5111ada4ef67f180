# SPDX-License-Identifier: Apache-2.0
"""Transformers as exporters write them stay in one partition."""

import math

import numpy as np
import pytest
from tvm import relay
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.reference import RTOL, rand
from dnnl_tests.relay import const, module, partition
from dnnl_tests.single_op import var


def F(value):
    """Return a scalar constant."""
    return relay.const(np.float32(value))


def mean(x, **attrs):
    return relay.mean(x, **dict(dict(axis=-1, keepdims=True), **attrs))


def layer_norm(x, size, epsilon=1e-5):
    """Write a layer normalization out."""
    centred = x - mean(x)
    variance = mean(relay.power(centred, F(2.0)))
    return centred / relay.sqrt(variance + F(epsilon)) * const(size) + const(size, seed=1)


def gelu(x):
    return x * F(0.5) * (F(1.0) + relay.erf(x / F(math.sqrt(2))))


def linear(x, dims, units, seed=0):
    """Multiply the last dimension of `dims` by a matrix, by way of rows."""
    rows = relay.reshape(x, (-1, dims[-1]))
    out = relay.nn.dense(rows, const(units, dims[-1], seed=seed))
    return relay.reshape(out, (*dims[:-1], units)) + const(units, seed=seed + 1)


def product(a, a_dims, b, b_dims):
    """Multiply two tensors of rank 4, as ONNX's MatMul is imported."""
    batch = a_dims[0] * a_dims[1]
    left = relay.reshape(a, (batch, *a_dims[2:]))
    right = relay.reshape(b, (batch, *b_dims[2:]))
    out = relay.nn.batch_matmul(left, right, transpose_b=False)
    return relay.reshape(out, (*a_dims[:3], b_dims[3]))


def attention(x, mask, batch, length, heads, size):
    """Attend, with queries, keys and values of the same tensor."""
    dims, inner = (batch, length, heads * size), (batch, length, heads, size)
    query, key, value = (
        relay.reshape(linear(x, dims, dims[-1], seed=10 * i), inner) for i in range(3)
    )
    query, value = (relay.transpose(y, (0, 2, 1, 3)) for y in (query, value))
    key = relay.transpose(key, (0, 2, 3, 1))
    scores = product(query, (batch, heads, length, size), key, (batch, heads, size, length))
    weights = relay.nn.softmax(scores / F(math.sqrt(size)) + mask, -1)
    mixed = product(weights, (batch, heads, length, length), value, (batch, heads, length, size))
    mixed = relay.reshape(relay.transpose(mixed, (0, 2, 1, 3)), dims)
    return linear(mixed, dims, dims[-1], seed=40)


def encoder_layer(x, mask, batch, length, heads, size):
    dims = (batch, length, heads * size)
    x = layer_norm(x + attention(x, mask, batch, length, heads, size), dims[-1])
    hidden = gelu(linear(x, dims, 4 * dims[-1], seed=50))
    return layer_norm(x + linear(hidden, (*dims[:-1], 4 * dims[-1]), dims[-1], seed=60), dims[-1])


@pytest.mark.parametrize("batch, length", [(1, 20), (2, 20), (2, 12)])
def test_encoder_layer_is_one_partition(batch, length):
    shape = (batch, length, 32)
    x, mask = rand(*shape), rand(batch, 1, 1, length, seed=1)
    mod = module(encoder_layer(var("x", shape), var("mask", mask.shape), batch, length, 4, 8))
    partitioned = direct.check(mod, {"x": x, "mask": mask}, partitions=1, rtol=RTOL)
    offload = testing.offload(partitioned)
    assert not offload.host_ops, offload
    # Biases, the sums of residuals and gelu are fused though reshapes lie between.
    assert offload.composites["dnnl.dense_bias"] == 3
    assert offload.composites["dnnl.dense_bias_sum"] == 2
    assert offload.composites["dnnl.dense_bias_gelu_erf"] == 1
    scores = "dnnl.batch_matmul_divide" + ("_add" if batch == 1 else "")
    assert offload.composites["dnnl.attention" if length == 12 else scores] == 1
    assert offload.ops["nn.layer_norm"] == 2 and offload.ops["mean"] == 0
    runner = direct.Runner(partitioned)
    runner({"x": x, "mask": mask})
    (plan,) = testing.plans(runner)
    slow = [step for step in plan["primitives"] if step["reference"]]
    assert not slow, slow


class TestLayerNorm:
    x = rand(2, 7, 16)

    def check(self, expr, inputs=None, is_one_op=True):
        mod = module(expr)
        inputs = dict({"x": self.x}, **(inputs or {}))
        partitioned = direct.check(mod, inputs, options={"prune": False}, rtol=RTOL)
        offload = testing.offload(partitioned)
        assert offload.ops["nn.layer_norm"] == is_one_op, offload
        if is_one_op:
            assert not offload.host_ops and "mean" not in offload.ops
        return partitioned

    def written(self, x=None, center=None, spread=None, square=None, eps=1e-5):
        """Return the normal form with some parts replaced."""
        x = var("x", self.x.shape) if x is None else x
        centred = (center or (lambda x: x - mean(x)))(x)
        squared = (square or (lambda y: relay.power(y, F(2.0))))(centred)
        return (spread or (lambda y, v: y / relay.sqrt(v + F(eps))))(centred, mean(squared))

    SPREADS = {
        "divide": lambda y, v: y / relay.sqrt(v + F(1e-5)),
        "epsilon-first": lambda y, v: y / relay.sqrt(F(1e-5) + v),
        "rsqrt": lambda y, v: y * relay.rsqrt(v + F(1e-5)),
        "rsqrt-first": lambda y, v: relay.rsqrt(v + F(1e-5)) * y,
        "inverse": lambda y, v: y * (F(1.0) / relay.sqrt(v + F(1e-5))),
        "power": lambda y, v: y / relay.power(v + F(1e-5), F(0.5)),
    }

    @pytest.mark.parametrize("spread", SPREADS)
    def test_spellings(self, spread):
        self.check(self.written(spread=self.SPREADS[spread]) * const(16) + const(16, seed=1))

    def test_product_with_itself(self):
        self.check(self.written(square=lambda y: y * y))

    def of_variance(self, axis=2, **attrs):
        """Return the form that ONNX's LayerNormalization is imported as."""
        x = var("x", self.x.shape)
        middle = mean(x, axis=axis)
        attrs = {"axis": axis, "keepdims": True, "with_mean": middle, **attrs}
        inverse = F(1.0) / relay.sqrt(relay.variance(x, **attrs) + F(1e-5))
        return (x - middle) * inverse * const(16) + const(16, seed=1)

    def test_variance(self):
        self.check(self.of_variance())
        self.check(self.of_variance(with_mean=None))

    def test_variance_of_another_kind(self):
        self.check(self.of_variance(unbiased=True), is_one_op=False)
        self.check(self.of_variance(axis=1), is_one_op=False)
        self.check(
            self.of_variance(with_mean=mean(var("y", self.x.shape))), {"y": self.x + 1}, False
        )

    def test_data_that_is_not_centred(self):
        x = var("x", self.x.shape)
        y = x / relay.sqrt(relay.variance(x, axis=2, keepdims=True) + F(1e-5))
        offload = testing.offload(self.check(y, is_one_op=False))
        assert "dnnl.rms_norm" not in offload.composites

    def test_centred_twice(self):
        x = var("x", self.x.shape)
        twice = relay.power(x - mean(x), F(2.0))
        y = (x - mean(x, axis=2)) / relay.sqrt(mean(twice) + F(1e-5))
        self.check(y * const(16))

    AFFINE = {
        "none": lambda y: y,
        "factor": lambda y: const(16) * y,
        "summand": lambda y: y + const(1, 1, 16),
        "both": lambda y: const(16, seed=1) + const(1, 16) * y,
    }

    @pytest.mark.parametrize("affine", AFFINE)
    def test_factor_and_summand(self, affine):
        self.check(self.AFFINE[affine](self.written()))

    def test_factor_that_is_not_constant(self):
        y = self.written() * var("g", (16,)) + relay.reshape(var("b", (4, 4)), (1, 1, 16))
        self.check(y, {"g": rand(16), "b": rand(4, 4)})

    def test_epsilon_counts(self):
        partitioned = self.check(self.written(eps=0.25))
        assert "epsilon=0.25" in str(partitioned)

    def kept(self):
        x = var("x", self.x.shape)
        return {
            "other-axis": self.written(center=lambda x: x - mean(x, axis=1)),
            "other-mean": self.written(center=lambda x: x - mean(relay.abs(x))),
            "cube": self.written(square=lambda y: relay.power(relay.abs(y), F(3.0))),
            "other-square": self.written(square=lambda y: y * (y * F(2.0))),
            "epsilon-outside": self.written(spread=lambda y, v: y / (relay.sqrt(v) + F(0.1))),
            "epsilon-varies": self.written(
                spread=lambda y, v: y / relay.sqrt(v + relay.abs(const(16)) + F(0.1))
            ),
            "numerator": self.written(spread=lambda y, v: y * (F(2.0) / relay.sqrt(v + F(0.1)))),
            "two-axes": (x - mean(x, axis=[1, 2]))
            / relay.sqrt(mean(relay.power(x - mean(x, axis=[1, 2]), F(2.0))) + F(0.1)),
        }

    @pytest.mark.parametrize(
        "name",
        [
            "other-axis",
            "other-mean",
            "cube",
            "other-square",
            "epsilon-outside",
            "epsilon-varies",
            "numerator",
            "two-axes",
        ],
    )
    def test_kept(self, name):
        self.check(self.kept()[name], is_one_op=False)

    def test_rows_are_no_factor(self):
        """One value for each row is the factor of a channel."""
        y = self.written() * const(7, 1)
        offload = testing.offload(self.check(y, is_one_op=False))
        assert offload.ops["nn.instance_norm"] == 1

    def test_a_part_that_is_read_elsewhere(self):
        x = var("x", self.x.shape)
        centred = x - mean(x)
        variance = mean(relay.power(centred, F(2.0)))
        mod = module(centred / relay.sqrt(variance + F(1e-5)), variance)
        partitioned = direct.check(mod, {"x": self.x}, options={"prune": False}, rtol=RTOL)
        assert testing.offload(partitioned).ops["nn.layer_norm"] == 0

    def test_exclude(self):
        mod = module(self.written())
        for exclude in ("nn.layer_norm", "mean"):
            offload = testing.offload(partition(mod, prune=False, exclude=[exclude]))
            assert offload.ops["nn.layer_norm"] == 0


def rms_norm(x, size):
    return x * relay.rsqrt(mean(x * x) + F(1e-6)) * const(size)


def test_rms_norm_is_one_partition():
    x = rand(2, 7, 16)
    mod = module(rms_norm(var("x", x.shape), 16))
    partitioned = direct.check(mod, {"x": x}, partitions=1, options={"prune": False}, rtol=RTOL)
    assert not testing.offload(partitioned).host_ops


class TestReshapesInAChain:
    x = rand(6, 8)

    def check(self, expr, name, inputs=None):
        """Run one composite of this name and a view or two."""
        partitioned = direct.check(
            module(expr),
            dict({"x": self.x}, **(inputs or {})),
            composites={name: 1},
            partitions=1,
            rtol=RTOL,
        )
        assert not testing.offload(partitioned).host_ops

    def dense(self):
        return relay.nn.dense(var("x", (6, 8)), const(5, 8))

    def test_bias_and_residual(self):
        y = relay.reshape(self.dense(), (2, 3, 5)) + const(5)
        y = relay.nn.relu(y + var("r", (2, 3, 5)))
        self.check(y, "dnnl.dense_bias_sum_relu", {"r": rand(2, 3, 5)})

    def test_two_reshapes(self):
        y = relay.expand_dims(relay.reshape(self.dense(), (2, 3, 5)), 0) + const(1, 1, 1, 5)
        self.check(relay.squeeze(y, [0]), "dnnl.dense_bias")

    def test_reshape_of_the_columns_is_not_crossed(self):
        y = relay.reshape(relay.nn.relu(self.dense()), (6, 5, 1)) + const(5, 1)
        self.check(y, "dnnl.dense_relu")

    @pytest.mark.parametrize("units", [3, 5])
    def test_bias_before_more_dimensions(self, units):
        """The axis of the bias counts in the result before the reshape."""
        y = relay.nn.dense(var("x", (6, 8)), const(units, 8))
        y = relay.reshape(relay.nn.bias_add(y, const(units), axis=1), (2, 3, units))
        self.check(relay.nn.relu(y), "dnnl.dense_bias_relu")

    @pytest.mark.parametrize("op", ["bias", "relu_add"])
    def test_operand_before_fewer_dimensions(self, op):
        y = relay.nn.batch_matmul(relay.reshape(var("x", (6, 8)), (1, 6, 8)), const(1, 5, 8))
        y = (relay.nn.relu(y) if op == "relu_add" else y) + const(1, 1, 5)
        self.check(relay.nn.relu(relay.squeeze(y, [0])), f"dnnl.batch_matmul_{op}_relu")

    def test_residual_before_a_reshape(self):
        y = relay.reshape(self.dense() + var("r", (6, 5)), (2, 3, 5)) + const(5)
        self.check(y, "dnnl.dense_sum", {"r": rand(6, 5)})

    def test_weights_that_are_computed(self):
        y = relay.nn.dense(var("x", (6, 8)), relay.exp(var("w", (5, 8))))
        y = relay.nn.relu(relay.reshape(y, (2, 3, 5)) + const(5))
        self.check(y, "dnnl.dense_bias_relu", {"w": rand(5, 8)})

    def test_batches(self):
        y = relay.nn.batch_matmul(relay.reshape(var("x", (6, 8)), (6, 2, 4)), const(6, 3, 4))
        y = relay.reshape(y, (2, 3, 2, 3)) * F(0.5) + const(1, 1, 1, 3)
        self.check(
            relay.tanh(y + var("r", (2, 3, 2, 3))),
            "dnnl.batch_matmul_multiply_add_sum_tanh",
            {"r": rand(2, 3, 2, 3)},
        )

    def rows_of_matrices(self):
        y = relay.nn.batch_matmul(relay.reshape(var("x", (6, 8)), (6, 2, 4)), const(6, 3, 4))
        return relay.reshape(y, (12, 3))

    def test_rows_of_a_matrix_are_not_crossed(self):
        y = self.rows_of_matrices() * var("r", (12, 3))
        inputs = {"x": self.x, "r": rand(12, 3)}
        partitioned = direct.check(module(y), inputs, composites={}, partitions=1, rtol=RTOL)
        assert testing.offload(partitioned).ops["multiply"] == 1

    def test_relu_moves_before_rows_of_a_matrix(self):
        self.check(relay.nn.relu(self.rows_of_matrices()), "dnnl.batch_matmul_relu")
