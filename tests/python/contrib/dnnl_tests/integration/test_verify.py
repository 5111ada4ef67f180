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
"""`verify` tells the error of each op of an ONNX model."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relay
from tvm.relay.frontend import onnx as frontend
from tvm.relay.op.contrib import dnnl

pytest.importorskip("onnxruntime")


def model():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Tanh", ["m"], ["t"], name="activation"),
        helper.make_node("Add", ["t", "x"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (4, 16)) for n in "xy")
    unread = helper.make_tensor_value_info("unread.1", TensorProto.FLOAT, (1,))
    w = np.random.default_rng(0).standard_normal((16, 16)).astype("float32")
    graph = helper.make_graph(nodes, "g", [x, unread], [y], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_right():
    result = dnnl.verify(model(), {"x": np.ones((4, 16), "float32")}, prune=False)
    assert [each.name for each in result.ops] == ["m", "t", "y"] and not result.wrong
    assert all(each.error < 1e-6 for each in result.ops)


def test_wrong(monkeypatch):
    own = frontend._get_convert_map

    def convert_map(opset):
        return {**own(opset), "Tanh": lambda inputs, attrs, params: relay.sigmoid(inputs[0])}

    monkeypatch.setattr(frontend, "_get_convert_map", convert_map)
    result = dnnl.verify(model())
    assert [each.name for each in result.wrong] == ["t"]
    assert result.wrong[0].where == "node activation"


def test_page():
    mod, params = dnnl.from_onnx(model())
    report = dnnl.offload_report(dnnl.partition_for_dnnl(mod, params))
    pytest.importorskip("graphviz")
    page = report.to_html(errors=dnnl.verify(model()).page_rows())
    assert "Error of each op" in page and "m: 4x16 float32, bound" in page
