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
"""ONNX models whose shapes are computed: TVM's importer fails, `tvm_dnnl.from_onnx` imports them."""

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
import tvm_dnnl
from dnnl_modules import compiled, rand, run
from onnx import TensorProto, helper, numpy_helper
from tvm.relax.frontend.onnx import from_onnx

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, shapes, constants=(), outputs=("y",), opset=17, dtypes=None):
    """Return a model of nodes in ONNX's text format, such as "y = Relu(x)"."""
    inputs = [helper.make_tensor_value_info(name, FLOAT, dims) for name, dims in shapes.items()]
    text = "g (float[1] x) => (float[1] y) {" + "\n".join(nodes) + "}"
    parsed = onnx.parser.parse_graph(text)
    graph = helper.make_graph(
        list(parsed.node),
        "g",
        inputs,
        [
            helper.make_tensor_value_info(name, (dtypes or {}).get(name, FLOAT), None)
            for name in outputs
        ],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in dict(constants).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def expected(proto, inputs):
    """Return onnxruntime's outputs, without its optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, inputs)


def check(proto, *inputs, mod=None):
    """Compare an imported and partitioned model with onnxruntime; return the report."""
    mod = tvm_dnnl.from_onnx(proto) if mod is None else mod
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    names = [each.name for each in proto.graph.input]
    for values in inputs:
        results = run(compiled(partitioned), *values)
        wanted = expected(proto, dict(zip(names, values)))
        assert len(results) == len(wanted)
        for one, other in zip(results, wanted):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            # Sums of at most a few hundred products, in another order.
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    return tvm_dnnl.offload_report(partitioned)


W = rand(12, 4)
TWO, ONE, ZERO, MINUS = (np.array([n], "int64") for n in (2, 1, 0, -1))

# By the message of TVM 0.27: the nodes, the shapes, the constants, and sizes of the open dimension.
CASES = {
    "Reshape expects the input data to be a Tensor": (
        [
            "s = Shape(x)",
            "n = Gather(s, zero)",
            "m = Reshape(n, one)",
            "t = Concat<axis=0>(m, minus)",
            "r = Reshape(x, t)",
            "y = MatMul(r, w)",
        ],
        {"x": ["n", 3, 4]},
        {"zero": np.array(0), "one": ONE, "minus": MINUS, "w": W},
    ),
    "Node identity cannot handle ShapeExpr inputs": (
        [
            "s = Shape(x)",
            "i = Identity(s)",
            "d = Slice(i, zero, one)",
            "t = Concat<axis=0>(d, minus)",
            "r = Reshape(x, t)",
            "y = MatMul(r, w)",
        ],
        {"x": ["n", 3, 4]},
        {"zero": ZERO, "one": ONE, "minus": MINUS, "w": W},
    ),
}


@pytest.mark.parametrize("message", CASES)
def test_shapes_that_are_computed(message):
    nodes, shapes, constants = CASES[message]
    proto = model(nodes, shapes, constants)
    with pytest.raises(Exception, match=message):
        from_onnx(proto)
    inputs = [[rand(*(size if s == "n" else s for s in shapes["x"]))] for size in (1, 3)]
    check(proto, *inputs)
