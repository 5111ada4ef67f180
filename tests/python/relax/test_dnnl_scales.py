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
"""Factors and summands of channels, such as those of a batch_norm, behind a convolution."""

import numpy as np
import pytest
import tvm_dnnl
from dnnl_modules import X4, check_case, compiled, composites, const, conv, module, rand, run
from tvm import relax
from tvm.relax import op


def batch_norm(builder, y, seed=0, field=0, **attrs):
    size = int(y.ty.shape.values[1])
    params = [const(size, seed=seed + k) for k in range(3)]
    variance = relax.const(rand(size, seed=seed) ** 2 + 0.5)
    attrs = {"axis": 1, "training": False, **attrs}
    result = builder.emit(op.nn.batch_norm(y, *params, variance, **attrs))
    return builder.emit(relax.TupleGetItem(result, field))


def biased(builder, y):
    return builder.emit(op.add(y, const(1, int(y.ty.shape.values[1]), 1, 1)))


def dropout(builder, y):
    return builder.emit(relax.TupleGetItem(builder.emit(op.nn.dropout(y)), 0))


def _dropped(builder, x):
    return op.nn.relu(batch_norm(builder, dropout(builder, biased(builder, conv(builder, x)))))


def _twice(builder, x):
    return op.nn.relu(batch_norm(builder, batch_norm(builder, x), seed=5))


# By name: the function, and what is in its partition.
CASES = {
    "batch_norms": (_twice, {"dnnl.multiply_add_multiply_add_relu": 1}),
    "conv-batch_norms": (
        lambda b, x: _twice(b, conv(b, x)),
        {"dnnl.conv2d_bias_multiply_add_relu": 1},
    ),
    "conv-bias-dropout-batch_norm": (_dropped, {"dnnl.conv2d_bias_multiply_add_relu": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_folded(name):
    build, wanted = CASES[name]
    check_case(build, [X4], wanted)


def test_excluded():
    mod = module(lambda b, x: op.nn.relu(batch_norm(b, conv(b, x))), X4)
    partitioned = tvm_dnnl.partition_for_dnnl(mod, exclude=["nn.batch_norm"], prune=False)
    assert composites(partitioned) == {"dnnl.conv2d": 1, "dnnl.relu": 1}
    report = tvm_dnnl.offload_report(partitioned)
    assert report.reasons["nn.batch_norm"] == {"excluded by option": 1}
    x = rand(2, 6, 9, 9)
    (got,), (want,) = run(compiled(partitioned), x), run(mod, x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
