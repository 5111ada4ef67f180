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
"""ONNX models for tests: from ONNX's text format, or node by node."""

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 14


def onnx_model(nodes, shapes, constants=(), outputs=("y",), opset=17):
    """Return a model whose nodes are in ONNX's text format.

    Parameters
    ----------
    nodes : list of str
        Such as "y = Relu(x)".
    shapes : dict of str to list
        Of the inputs, which are float32; names are dimensions that stay open.
    constants : dict of str to numpy.ndarray
        The constants by name.
    outputs : sequence of str
        The outputs, of any type.
    opset : int
        The version of ONNX's ops.
    """
    parsed = onnx.parser.parse_graph("g (float x) => (float y) {" + "\n".join(nodes) + "}")
    graph = helper.make_graph(
        list(parsed.node),
        "g",
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, dims) for k, dims in shapes.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in dict(constants).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


class Graph:
    """An ONNX graph that grows call by call; values are their names.

    Parameters
    ----------
    name : str
        Of the graph.
    shape : tuple of int or str
        Of its only input, ``x``; names are dimensions that stay open.
    seed : int
        Of the weights.
    opset : int
        The version of ONNX's ops.

    Attributes
    ----------
    nodes, constants : list of onnx.NodeProto, list of onnx.TensorProto
        What it has so far.
    """

    def __init__(self, name, shape, seed=0, opset=OPSET):
        self.name, self.shape, self.opset = name, shape, opset
        self._random = np.random.default_rng(seed)
        self.nodes, self.constants = [], []

    def op(self, kind, *inputs, outputs=1, **attrs):
        """Add a node of names and constants; return the name of its result, or those of several."""
        number = len(self.nodes)
        names = [f"{kind}_{number}_{i}" for i in range(outputs)]
        inputs = [x if isinstance(x, str) else self.constant(x, None) for x in inputs]
        self.nodes.append(helper.make_node(kind, inputs, names, **attrs))
        return names[0] if outputs == 1 else names

    def constant(self, value, dtype="float32"):
        """Add a constant."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *shape, fan_in):
        """Add random weights with which activations keep their scale."""
        return self.constant(self._random.normal(0, math.sqrt(1 / fan_in), shape))

    def vector(self, size, mean=0.0):
        """Add a random vector: a bias, or with a mean of one a scale."""
        return self.constant(self._random.normal(mean, 0.1, size))

    def done(self, shape, *outputs, dtype=TensorProto.FLOAT):
        """Return the model for a shape of ``x``, whose results have no types yet."""
        x = helper.make_tensor_value_info("x", dtype, shape)
        infos = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, self.name, [x], infos, self.constants)
        opset = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8)

    def model(self, output, shape):
        """Return the model whose result is `output`."""
        proto = self.done(self.shape, output)
        info = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
        proto.graph.output[0].CopyFrom(info)
        onnx.checker.check_model(proto)
        return proto

    def conv(self, x, channels_in, channels, kernel, stride=1, groups=1):
        """Add a convolution that keeps the size, with a bias."""
        fan_in = channels_in // groups * kernel * kernel
        weight = self.weight(channels, channels_in // groups, kernel, kernel, fan_in=fan_in / 2)
        return self.op(
            "Conv",
            x,
            weight,
            self.vector(channels),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=groups,
        )
