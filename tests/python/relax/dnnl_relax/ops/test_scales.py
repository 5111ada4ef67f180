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
"""Factors and summands of channels, such as those of a batch_norm, after a convolution."""

import pytest
from tvm import relax
from tvm.relax import op

from dnnl_relax.modules import X4, check_case, const, conv, rand


def batch_norm(builder, y, seed=0, axis=1):
    size = int(y.ty.shape.values[axis])
    params = [const(size, seed=seed + k) for k in range(3)]
    variance = relax.const(rand(size, seed=seed) ** 2 + 0.5)
    result = builder.emit(op.nn.batch_norm(y, *params, variance, axis=axis, training=False))
    return builder.emit(relax.TupleGetItem(result, 0))


def biased(builder, y):
    return builder.emit(op.add(y, const(1, int(y.ty.shape.values[1]), 1, 1)))


def dropout(builder, y):
    return builder.emit(relax.TupleGetItem(builder.emit(op.nn.dropout(y)), 0))


def _dropped(builder, x):
    return op.nn.relu(batch_norm(builder, dropout(builder, biased(builder, conv(builder, x)))))


def _twice(builder, x):
    return op.nn.relu(batch_norm(builder, batch_norm(builder, x), seed=5))


def chain(first, *steps):
    """Constants after an op: each step is an op, after "<" if they come first, and a shape."""

    def build(builder, x):
        y = first(builder, x)
        for seed, (name, *shape) in enumerate(steps):
            args = [relax.const(rand(*each, seed=seed + 2) + 1.5) for each in shape]
            operands = [*args, y] if name[0] == "<" else [y, *args]
            y = builder.emit(getattr(op, name.strip("<"))(*operands))
        return op.nn.relu(y)

    return build


CHANNELS, ONE = (4, 1, 1), ()


def _nhwc(builder, x):
    return builder.emit(
        op.nn.conv2d(x, const(4, 3, 3, 9), data_layout="NHWC", kernel_layout="OHWI")
    )


def _transposed(builder, x):
    return builder.emit(op.nn.conv2d_transpose(x, const(6, 2, 3, 3), groups=2))


def _matmul(builder, x):
    return builder.emit(op.matmul(x, const(9, 4)))


# By name: the function, and what is in its partition. Relay's tests have the other cases:
# `rewrites/test_fold_scale.py` and `rewrites/test_fold_batch_norm.py`.
CASES = {
    "batch_norms": (_twice, {"dnnl.multiply_add_multiply_add_relu": 1}),
    "conv-bias-dropout-batch_norm": (_dropped, {"dnnl.conv2d_bias_relu": 1}),
    "factors-and-summands": (
        chain(conv, ("add", CHANNELS), ("multiply", CHANNELS), ("<subtract", ONE), ("negative",)),
        {"dnnl.conv2d_bias_relu": 1},
    ),
    "channels-last": (
        chain(_nhwc, ("multiply", (4,)), ("subtract", (1, 1, 1, 4))),
        {"dnnl.conv2d_bias_relu": 1},
    ),
    "transposed": (
        chain(_transposed, ("multiply", CHANNELS), ("add", CHANNELS)),
        {"dnnl.conv2d_transpose_bias_relu": 1},
    ),
    "matmul-batch_norm": (
        lambda b, x: batch_norm(b, _matmul(b, x), axis=-1),
        {"dnnl.dense_bias": 1},
    ),
    "batch_norm-of-other-channels": (
        lambda b, x: batch_norm(b, _matmul(b, x)),
        {"dnnl.dense": 1, "dnnl.multiply_add": 1},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_folded(name):
    build, wanted = CASES[name]
    check_case(build, [X4], wanted)
