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
"""LSTM and GRU as TVM's ONNX importer unrolls them."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 16, 32
# By kind: gates, attributes, and the composites of a layer in one direction. The matmul of all
# inputs is one more; that of the first state, which is zeros, is a constant.
KINDS = {
    "LSTM": (
        4,
        {},
        {
            "dnnl.dense_bias": 1,
            "dnnl.dense_sum": STEPS - 1,
            "dnnl.sigmoid_multiply": 2 * STEPS,
            "dnnl.sigmoid_multiply_sum": STEPS,
        },
    ),
    "GRU": (
        3,
        {"linear_before_reset": 1},
        {
            "dnnl.add_sigmoid": STEPS,
            "dnnl.add_sigmoid_multiply_sum_tanh": STEPS,
            "dnnl.dense_bias": 1 + STEPS - 1,
            "dnnl.subtract_multiply_sum": STEPS,
        },
    ),
}


def recurrent(kind, directions):
    """Return an ONNX model of one layer with random weights."""
    gates, attrs, _ = KINDS[kind]
    random = np.random.default_rng(0)
    shapes = {
        "w": (directions, gates * HIDDEN, INPUTS),
        "r": (directions, gates * HIDDEN, HIDDEN),
        "b": (directions, 2 * gates * HIDDEN),
    }
    weights = [
        numpy_helper.from_array(random.standard_normal(shape, "float32") / 8, name)
        for name, shape in shapes.items()
    ]
    direction = "bidirectional" if directions == 2 else "forward"
    node = helper.make_node(
        kind, ["x", *shapes], ["y", "last"], hidden_size=HIDDEN, direction=direction, **attrs
    )
    ends = {
        "x": (STEPS, BATCH, INPUTS),
        "y": (STEPS, directions, BATCH, HIDDEN),
        "last": (directions, BATCH, HIDDEN),
    }
    x, *outputs = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in ends.items()
    )
    graph = helper.make_graph([node], kind, [x], outputs, weights)
    opset = [helper.make_opsetid("", 14)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


@pytest.mark.parametrize("directions", [1, 2], ids=["forward", "bidirectional"])
@pytest.mark.parametrize("kind", KINDS)
def test_unrolled(kind, directions):
    model = recurrent(kind, directions)
    onnx.checker.check_model(model)
    mod, params = relay.frontend.from_onnx(model, freeze_params=True)
    mod = dnnl.partition_for_dnnl(mod, params)
    _, _, composites = KINDS[kind]
    report = dnnl.offload_report(mod)
    assert report.composites == {name: n * directions for name, n in composites.items()}
    assert report.partitions == 1 and report.offloaded == report.total

    x = np.random.default_rng(1).standard_normal((STEPS, BATCH, INPUTS), "float32")
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    # Sums of 48 products in float32, in four steps that squash them: 1e-5 of the largest output.
    testing.assert_close(testing.run(mod, {"x": x}), expected, 1e-5)
