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
"""Ops of constants that are computed while a model is compiled, where the numbers are unusual."""

import numpy as np
import pytest
import tvm_dnnl
from dnnl_modules import compiled, module, rand, run, var
from tvm import relax
from tvm.relax import op


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "dtype, divisor", [("int64", (2, 0)), ("int64", (2, -4)), ("float32", (2, 0))]
)
def test_constants_are_divided_without_a_warning(dtype, divisor):
    """By zero, integers are not."""
    one, other = (relax.const(np.array(each), dtype) for each in ([7, -7], divisor))

    def build(b, x):
        quotient = b.emit(op.divide(one, other))
        return op.nn.relu(b.emit(op.add(x, quotient)))

    mod = module(build, var("x", 4, 2, dtype=dtype))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    is_left = "divide" in tvm_dnnl.offload_report(partitioned).ops
    assert is_left == (dtype == "int64" and 0 in divisor)
    if not is_left:
        x = (rand(4, 2) * 9).astype(dtype)
        np.testing.assert_array_equal(*(run(each, x)[0] for each in (compiled(partitioned), mod)))


@pytest.mark.filterwarnings("error")
def test_constants_that_are_too_large():
    """They are infinite."""
    mod = module(
        lambda b, x: op.add(x, b.emit(op.multiply(*[relax.const(np.full(2, 300, "float16"))] * 2))),
        var("x", 4, 2, dtype="float16"),
    )
    x = rand(4, 2, dtype="float16")
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert "multiply" not in tvm_dnnl.offload_report(partitioned).ops
    assert np.isposinf(run(compiled(partitioned), x)[0]).all()
