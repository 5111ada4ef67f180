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
"""The import of ONNX models by `dnnl.from_onnx`, compared with onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import helper, numpy_helper
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.reference import rand


def model(text, constants):
    """Return a model from ONNX's text format, with constants by name."""
    graph = onnx.parser.parse_graph(text)
    graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in constants.items())
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


PROTO = model(
    """g (float[n, 3, h, 4] x) => (float[n, 5] y) {
        s = Shape(x) d = Slice(s, zero, one) t = Concat<axis=0>(d, minus) r = Reshape(x, t)
        q = Gemm(r, w) y = Relu(q)
    }""",
    {
        "zero": np.array([0]),
        "one": np.array([1]),
        "minus": np.array([-1]),
        "w": rand(24, 5),
    },
)


@pytest.mark.parametrize("given", [{"x": (2, 3, 2, 4)}, {"n": 2, "h": 2}], ids=str)
def test_computed_shapes(given, tmp_path):
    x = rand(2, 3, 2, 4)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(PROTO.SerializeToString(), options)
    onnx.save(PROTO, tmp_path / "m.onnx")
    mod, params = dnnl.from_onnx(tmp_path / "m.onnx", shape=given)
    assert [int(size) for size in mod["main"].params[0].checked_type.shape] == [2, 3, 2, 4]
    partitioned = dnnl.partition_for_dnnl(mod, params, prune=False)
    assert str(dnnl.offload_report(partitioned).summary).count("1 partition") == 1
    testing.assert_close(testing.run(partitioned, {"x": x}), session.run(None, {"x": x}))


def test_open_dimensions_stay_open():
    mod, params = dnnl.from_onnx(PROTO, shape={"x": (None, 3, 2, "w")})
    sizes = mod["main"].params[0].checked_type.shape
    assert [isinstance(size, tvm.tir.Any) for size in sizes] == [True, False, False, True]
    assert not params


def test_wrong_shapes():
    with pytest.raises(ValueError, match="no input 'y'; its inputs are x of rank 4 .n, 3, h, 4."):
        dnnl.from_onnx(PROTO, shape={"y": (1,)})
