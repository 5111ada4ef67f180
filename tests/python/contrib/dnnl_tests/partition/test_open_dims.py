# SPDX-License-Identifier: Apache-2.0
"""Which calls of open dimensions are offloaded, and why others are not."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib._dnnl.relay_report import NOT_COMPILED
from tvm.testing import dnnl as testing

from dnnl_tests.marks import json_only
from dnnl_tests.reference import rand
from dnnl_tests.relay import const, conv, module, partition, var
from dnnl_tests.single_op import refusal

nn, ANY = relay.nn, None


def image(*shape, dtype="float32"):
    """Return a variable for data; None is an open dimension."""
    return var("x", *shape, dtype=dtype)


ACCEPTED = {
    "conv": lambda: conv(image(ANY, 8, ANY, ANY)),
    "conv-nhwc": lambda: nn.conv2d(
        image(ANY, ANY, ANY, 8),
        const(3, 3, 8, 4),
        data_layout="NHWC",
        kernel_layout="HWIO",
        channels=4,
        kernel_size=(3, 3),
    ),
    "conv-transpose": lambda: nn.conv2d_transpose(image(ANY, 8, ANY, ANY), const(8, 4, 3, 3)),
    "dense": lambda: nn.dense(image(ANY, 8), const(4, 8)),
    "dense-rows": lambda: nn.dense(image(ANY, ANY, 8), const(4, 8)),
    "batch_matmul": lambda: nn.batch_matmul(image(ANY, ANY, ANY), var("y", ANY, ANY, ANY)),
    "max_pool": lambda: nn.max_pool2d(image(ANY, 8, ANY, ANY), (3, 3), (2, 2), padding=(1, 1)),
    "avg_pool-ceil": lambda: nn.avg_pool2d(image(ANY, 8, ANY, ANY), (3, 3), (2, 2), ceil_mode=True),
    "global_avg_pool": lambda: nn.global_avg_pool2d(image(ANY, 8, ANY, ANY)),
    "adaptive_avg_pool": lambda: nn.adaptive_avg_pool2d(image(ANY, 8, ANY, ANY), (1, 1)),
    "batch_norm": lambda: nn.batch_norm(
        image(ANY, 8, ANY), *(const(8, seed=seed) for seed in range(4))
    )[0],
    "group_norm": lambda: nn.group_norm(image(ANY, 8, ANY), const(8), const(8), 2),
    "layer_norm": lambda: nn.layer_norm(image(ANY, ANY, 8), const(8), const(8)),
    "l2_normalize": lambda: nn.l2_normalize(image(ANY, 8, ANY), 1e-5, [1]),
    "softmax-open-axis": lambda: nn.softmax(image(ANY, ANY)),
    "log_softmax": lambda: nn.log_softmax(image(ANY, 8)),
    "mean-open-axis": lambda: relay.mean(image(ANY, ANY, 8), [1]),
    "relu": lambda: nn.relu(image(3, ANY)),
    "add-bias": lambda: image(ANY, 4) + const(4),
    "add-mask": lambda: image(ANY, 12, ANY, ANY) + var("y", ANY, 1, 1, ANY),
    "subtract-mean": lambda: image(ANY, ANY, 8) - var("y", ANY, ANY, 1),
    "less": lambda: relay.less(image(ANY, 4), const(1)),
    "cast": lambda: relay.cast(image(ANY, 4, dtype="uint8"), "float32"),
    "quantize": lambda: relay.qnn.op.quantize(
        image(ANY, 4), relay.const(0.1), relay.const(0), out_dtype="uint8"
    ),
    "reshape": lambda: relay.reshape(image(ANY, 8, 2), (-1, 16)),
    "transpose": lambda: relay.transpose(image(ANY, ANY, 4), (0, 2, 1)),
    "strided_slice": lambda: relay.strided_slice(image(ANY, 8), [2], [6], axes=[1]),
    "concatenate": lambda: relay.concatenate([image(ANY, 8), var("y", ANY, 4)], 1),
    "split": lambda: relay.split(image(ANY, 8), 2, 1)[0],
    "resize-linear": lambda: relay.image.resize2d(image(ANY, 3, ANY, ANY), (16, 16)),
}


@pytest.mark.parametrize("make", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted(make):
    """The op is in a partition, and its open dimensions are those of the parameters."""
    partitioned = partition(module(make()), prune=False)
    report = dnnl.offload_report(partitioned)
    assert (report.offloaded, report.partitions) == (report.total, 1), report


REFUSED = {
    "conv-channels": (
        lambda: nn.conv2d(image(1, ANY, 8, 8), var("w", 4, 8, 3, 3), padding=(1, 1)),
        "data of shape (1, ?, 8, 8) has open channels; oneDNN requires a fixed size",
    ),
    "conv-weight": (
        lambda: nn.conv2d(
            image(1, 8, 8, 8), var("w", 4, 8, ANY, 3), channels=4, kernel_size=(3, 3)
        ),
        None,
    ),
    "dense-columns": (
        lambda: nn.dense(image(2, ANY), var("w", 4, 8)),
        "data of shape (2, ?) has open columns; oneDNN requires a fixed size",
    ),
    "dense-weight": (
        lambda: nn.dense(image(2, 8), var("w", ANY, 8)),
        "weight of shape (?, 8) has open dimensions; oneDNN requires a fixed size",
    ),
    "max_pool-ceil": (
        lambda: nn.max_pool2d(image(1, 8, ANY, 8), (2, 2), (2, 2), padding=(1, 1), ceil_mode=True),
        "along H, the last window of 2 may contain only padding: the size is open",
    ),
    "avg_pool-counts": (
        lambda: nn.avg_pool2d(
            image(1, 8, ANY, 8), (3, 3), (2, 2), ceil_mode=True, count_include_pad=True
        ),
        "along H, ceil_mode may move the last window beyond the padding: the size is open",
    ),
    "adaptive": (
        lambda: nn.adaptive_avg_pool2d(image(1, 8, ANY, 8), (4, 4)),
        "the windows along H depend on its size, which is open",
    ),
    "group_norm": (
        lambda: nn.group_norm(image(1, ANY, 8), var("g", ANY), var("b", ANY), 2),
        "data of shape (1, ?, 8) has open channels; oneDNN requires a fixed size",
    ),
    "concatenate": (
        lambda: relay.concatenate([image(2, 8), var("y", ANY, 8)], 0),
        "tensor 1 may be empty: its size along axis 0 is open",
    ),
    "strided_slice": (
        lambda: relay.strided_slice(image(ANY, 8), [2], [4], axes=[0]),
        "the slice along axis 0, whose size is open, may be empty",
    ),
    "strided_slice-steps": (
        lambda: relay.strided_slice(image(ANY, 8), [0], [2**31 - 1], [2], axes=[0]),
        "stride 2 along axis 0, whose size is open",
    ),
    "layout_transform": (
        lambda: relay.layout_transform(image(1, ANY, 4, 4), "NCHW", "NCHW8c"),
        "data of shape (1, ?, 4, 4) has open C; oneDNN requires a fixed size",
    ),
    "resize-nearest": (
        lambda: relay.image.resize2d(image(1, 3, ANY, 8), (16, 16), method="nearest_neighbor"),
        "the values that nearest_neighbor reads depend on H, which is open",
    ),
    "no-shape-function": (
        lambda: relay.reverse_reshape(image(ANY, 8, 2), (-1, 0)),
        "the result has open dimensions, and TVM has no shape function for this op",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_dimension(name):
    """What must be known is named."""
    make, reason = REFUSED[name]
    text = refusal(make())
    assert text == reason if reason else "has open H" in text


def test_open_dimensions_in_the_report():
    """They are shown as Relay shows them."""
    partitioned = partition(module(conv(image(ANY, 8, ANY, 6))))
    report = dnnl.offload_report(partitioned)
    shapes = {node.kind: node.shape for node in report.nodes}
    assert shapes == {"input": "?x8x?x6", "dnnl": "?x8x?x6", "output": "?x8x?x6"}


def compiles(mod):
    """Whether TVM compiles a module for its VM."""
    try:
        testing.build(mod, executor="vm")
    except (tvm.TVMError, RuntimeError):
        return False
    return True


STAYING = {
    "no-shape-function": (lambda x: nn.depth_to_space(x, 2), False),
    "depthwise-conv": (lambda x: conv(x, in_channels=1, groups=8), False),
    "conv-with-groups": (lambda x: conv(x, in_channels=4, groups=2), False),
    "conv": (conv, True),
    "dense-open-matrix": (lambda x: nn.dense(relay.reshape(x, (-1, 8)), var("w", ANY, 8)), False),
    "unary": (relay.atan, True),
}


@json_only
@pytest.mark.parametrize("make, expected", STAYING.values(), ids=STAYING.keys())
def test_ops_that_stay_and_that_tvm_cannot_compile(make, expected):
    """The report says it of each: a single one keeps the module from being compiled."""
    stays = make(conv(image(ANY, 8, ANY, ANY)))
    partitioned = partition(module(nn.relu(stays)), exclude=[stays.op.name], prune=False)
    report = dnnl.offload_report(partitioned)
    is_said = any(NOT_COMPILED in reason for reason in report.reasons[stays.op.name])
    assert not is_said == compiles(partitioned) == expected


def test_nothing_is_said_of_sizes_that_are_known():
    stays = conv(image(1, 8, 6, 6), in_channels=1, groups=8)
    report = dnnl.offload_report(partition(module(stays), exclude=["nn.conv2d"]))
    assert list(report.reasons["nn.conv2d"]) == ["excluded by option"]


class TestFusion:
    """Open dimensions of an operand and of the result count as the same."""

    def composites(self, expr):
        """Return the composites of an expression."""
        return dict(dnnl.offload_report(partition(module(expr), prune=False)).composites)

    def test_bias_relu(self):
        biased = nn.bias_add(conv(image(ANY, 8, ANY, ANY)), const(8))
        assert self.composites(nn.relu(biased)) == {"dnnl.conv2d_bias_relu": 1}

    def test_residual(self):
        residual = var("y", ANY, 8, ANY, ANY)
        counts = self.composites(conv(image(ANY, 8, ANY, ANY)) + residual)
        assert counts == {"dnnl.conv2d_sum": 1}

    def test_vector_along_an_open_axis_is_no_bias(self):
        """It may have one element in a call, which no bias has."""
        scores = nn.batch_matmul(image(ANY, ANY, 8), var("y", ANY, ANY, 8))
        assert self.composites(scores + var("z", ANY)) == {}

    @pytest.mark.parametrize(
        "codes, shape, fused",
        [
            ((-4, -1, 12, 0, 0), (ANY, 12, ANY, ANY), True),
            ((-4, 2, -1, -2), (2, ANY, ANY, ANY), True),
            ((0, 0, -4, -1, 1), (ANY, ANY, ANY, 1), False),
        ],
    )
    def test_reshape_of_matrices(self, codes, shape, fused):
        """A reshape is fused if its codes say that it keeps the matrices."""
        scores = nn.batch_matmul(image(ANY, ANY, 8), var("y", ANY, ANY, 8))
        counts = self.composites(relay.reshape(scores, codes) * var("z", *shape))
        assert counts == ({"dnnl.batch_matmul_multiply": 1} if fused else {})

    def test_factor_moves_before_a_reshape(self):
        scores = nn.batch_matmul(image(ANY, ANY, 8), var("y", ANY, ANY, 8))
        counts = self.composites(relay.reshape(scores, (0, 0, -4, -1, 1)) * relay.const(0.5))
        assert counts == {"dnnl.batch_matmul_multiply": 1}


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("kind", ["where", "multiply"])
def test_what_tvm_broadcasts_is_not_fused_to_it(kind, size):
    """TVM alone reads beyond a causal mask that it casts and applies in one function."""
    mask, scores = var("m", None, None, None, None, dtype="uint8"), var("x", None, 4, None, None)
    row = relay.nn.dense(var("r", 1, 8), const(8, 8))
    if kind == "where":
        chosen = relay.where(relay.cast(mask, "bool"), scores, relay.const(-1e4))
    else:
        chosen = scores * relay.cast(mask, "float32")
    mod = module(relay.abs(chosen * relay.const(2.0)), row)
    partitioned = partition(mod, prune=True, exclude=["multiply", "abs", "cast"])
    report = dnnl.offload_report(partitioned)
    assert report.ops == dnnl.offload_report(mod).ops and not report.failures, report
    values = {
        "m": np.tril(np.ones((1, size, 8, 8), "uint8"))[:, :, 4:],
        "x": rand(2, 4, 4, 8),
        "r": rand(1, 8),
    }
    result = testing.run(partitioned, values, executor="vm")[0]
    other = -1e4 if kind == "where" else 0
    expected = np.abs(np.where(values["m"], values["x"], np.float32(other)) * 2)
    np.testing.assert_allclose(result, expected, 1e-6)
