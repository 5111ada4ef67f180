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
"""ONNX's own tests of its quantized ops, with TVM alone and partitioned.

The four tests of QLinearMatMul in int8 expect results that wrap around. onnxruntime's results and
ONNX's specification saturate, and so do ours. All other results are those of the tests.
"""

import glob
import os

import numpy as np
import onnx
import pytest
import tvm_dnnl
from dnnl_modules import compiled, run
from onnx import TensorProto, numpy_helper

NODE_TESTS = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "node")
OPS = ("qlinear", "convinteger", "matmulinteger", "dynamicquantize")
NAMES = sorted(
    os.path.basename(path)[len("test_") :]
    for op in OPS
    for path in glob.glob(os.path.join(NODE_TESTS, f"test_{op}*"))
)


def saturated(values):
    """Return what a QLinearMatMul of one scale and zero point each computes."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = values
    a, b = (x.astype("float64") - zero for x, zero in ((a, a_zero), (b, b_zero)))
    product = (a @ b) * a_scale * b_scale / y_scale
    limits = np.iinfo(y_zero.dtype)
    return np.clip(np.round(product) + y_zero, limits.min, limits.max).astype(y_zero.dtype)


@pytest.mark.parametrize("name", NAMES)
def test_node(name):
    folder = os.path.join(NODE_TESTS, f"test_{name}")
    model = onnx.load(os.path.join(folder, "model.onnx"))

    def tensors(kind, infos):
        for k in range(len(infos)):
            with open(os.path.join(folder, "test_data_set_0", f"{kind}_{k}.pb"), "rb") as file:
                yield numpy_helper.to_array(TensorProto.FromString(file.read()))

    values = list(tensors("input", model.graph.input))
    wanted = list(tensors("output", model.graph.output))
    if name.startswith("qlinearmatmul") and "int8" in name and "uint8" not in name:
        wanted = [saturated(values)]
    mod = tvm_dnnl.from_onnx(model)
    for each in (mod, compiled(tvm_dnnl.partition_for_dnnl(mod, prune=False))):
        for got, want in zip(run(each, *values), wanted):
            assert got.shape == want.shape and got.dtype == want.dtype
            # An element of test_dynamicquantizelinear lies in the middle of two steps.
            steps = want.dtype in ("int8", "uint8") and name == "dynamicquantizelinear"
            np.testing.assert_allclose(got.astype("float64"), want, rtol=1e-6, atol=steps)
