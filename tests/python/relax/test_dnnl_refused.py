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
"""Ops that stay on TVM since oneDNN would compute something else: the reason, and the numbers."""

import pytest
import tvm_dnnl
from dnnl_modules import X3, check, module, rand
from tvm.relax import op

# By name: the function, its parameters, the op that stays, and why.
CASES = {
    **{
        f"{name}-of-no-axis": (
            lambda b, x, name=name: op.nn.relu(b.emit(getattr(op, name)(x, []))),
            [X3],
            name,
            "axis=[] is none",
        )
        for name in ("max", "mean", "min", "prod", "sum")
    },
}


@pytest.mark.parametrize("case", CASES)
def test_as_tvm_computes_it(case):
    build, params, name, reason = CASES[case]
    inputs = [rand(*shape, dtype=dtype, seed=k) for k, (_, shape, dtype) in enumerate(params)]
    partitioned = check(module(build, *params), None, *inputs)
    (text,) = tvm_dnnl.offload_report(partitioned).reasons[name]
    assert reason in text
