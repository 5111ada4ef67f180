# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Random quantized graphs are right, and the drawing reaches what it should."""

import collections

import pytest

from dnnl_tests import graphs as random_graphs
from dnnl_tests.graphs.quantized import draw

SEED, COUNT = 77000, 24


def test_random_quantized_graphs():
    statistics = random_graphs.fuzz(SEED, COUNT, kind="quantized")
    assert not statistics.failures, "\n".join(
        f"seed {failure.seed}: {failure.verdict.text}\n{failure.text}"
        for failure in statistics.failures
    )
    assert statistics.verdicts["same"] >= COUNT - 2
    assert sum(statistics.offloaded.values()) == sum(statistics.calls.values())


def test_drawing():
    """The same seed draws the same; zero points lie at both ends, and many values are cut off."""
    assert str(draw(5).mod) == str(draw(5).mod)
    seen = collections.Counter()
    for seed in range(40):
        for tensor in draw(seed).tensors:
            quantization = tensor.quantization
            seen[quantization.dtype, quantization.zero_point] += 1
            if tensor.exact:
                low, high = {"uint8": (0, 255), "int8": (-128, 127)}[quantization.dtype]
                cut = ((tensor.values == low) | (tensor.values == high)).mean()
                seen["cut off"] += cut > 0.3
    ends = [("uint8", 0), ("uint8", 255), ("int8", -128), ("int8", 127)]
    assert all(seen[end] > 2 for end in ends) and seen["cut off"] > 5, seen


OPS = "conv1d conv2d conv3d conv1d_transpose conv2d_transpose conv3d_transpose dense batch_matmul"
OPS += " avg_pool2d max_pool1d max_pool2d max_pool3d concatenate lone_relu lone_tanh sum rounded"
OPS += (
    " qnn.conv2d qnn.conv2d_transpose qnn.conv2d_multiplier qnn.dense qnn.batch_matmul bias_along"
)
OPS += " qnn.avg_pool2d int32_avg_pool2d qnn.add qnn.subtract qnn.mul qnn.requantize cast clip"


@pytest.mark.parametrize("op", OPS.split())
def test_ops_are_drawn(op):
    assert any(op in name for seed in range(120) for name in draw(seed).ops)


def test_what_stays_is_drawn():
    """Averages whose padding does not stand for zero, in both dialects."""
    ops = collections.Counter()
    for seed in range(120):
        ops += draw(seed).on_tvm
    assert {"qnn.avg_pool2d", "nn.avg_pool2d"} <= set(ops)
