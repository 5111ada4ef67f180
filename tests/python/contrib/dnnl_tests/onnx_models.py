# SPDX-License-Identifier: Apache-2.0
"""ONNX models for tests: from ONNX's text format, node by node, or of the conformance suite."""

import contextlib
import functools
import math
import os
import pathlib
import tempfile
import warnings

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 14
# Ops of the conformance cases of which importers want to know all inputs after the first, as models
# that people export tell.
PARAMETERS = (
    *(
        "BatchNormalization",
        "Clip",
        "CumProd",
        "CumSum",
        "Dropout",
        "GRU",
        "LSTM",
        "NonMaxSuppression",
    ),
    *("OneHot", "RNN", "Resize", "Upsample"),
)


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


def onnx_session(model):
    """Open a model with onnxruntime, without its optimizations and with one thread."""
    # Here: only comparisons need it.
    import onnxruntime  # pylint: disable=import-outside-toplevel

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _node_cases(folder):
    """Write the cases of nodes, of which onnx >= 1.21 has the programs only, to a folder.

    Inputs and outputs that are not tensors are left out.
    """
    from onnx.backend.test import loader  # pylint: disable=import-outside-toplevel

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        cases = loader.load_node_model_tests()
    for case in cases:
        data = folder / case.name / "test_data_set_0"
        data.mkdir(parents=True, exist_ok=True)
        (folder / case.name / "model.onnx").write_bytes(case.model.SerializeToString())
        for kind, values in zip(("input", "output"), case.data_sets[0]):
            for number, value in enumerate(values):
                if isinstance(value, (np.ndarray, np.generic)):
                    value = numpy_helper.from_array(np.asarray(value))
                if isinstance(value, TensorProto):
                    (data / f"{kind}_{number}.pb").write_bytes(value.SerializeToString())


@functools.cache
def _node_folder(data):
    """Return the folder of the cases of nodes, which is written once per version of onnx."""
    if (data / "node" / "test_relu").exists():
        return data / "node"
    folder = pathlib.Path(tempfile.gettempdir()) / f"onnx-{onnx.__version__}-cases-{os.getuid()}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as new:
            _node_cases(pathlib.Path(new) / "node")
            with contextlib.suppress(OSError):  # another process was faster
                (pathlib.Path(new) / "node").rename(folder)
    return folder


def conformance_cases():
    """Return the folders of the conformance cases of the `onnx` package by name.

    Those that draw random numbers, which are compared with other draws, are left out.
    """
    data = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
    folders = {name: data / name for name in ("simple", "pytorch-operator", "pytorch-converted")}
    folders["node"] = _node_folder(data)
    return {
        f"{name}/{path.parent.name.removeprefix('test_')}": path.parent
        for name, folder in sorted(folders.items())
        for path in sorted(folder.glob("*/model.onnx"))
        if "bernoulli" not in path.parent.name
    }


def _values(folder, kind, infos):
    """Return the arrays of a case's inputs or outputs."""
    values = []
    for number, info in enumerate(infos):
        if info.type.WhichOneof("value") != "tensor_type":
            raise NotImplementedError(f"a {info.type.WhichOneof('value')} is no tensor")
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / "test_data_set_0" / f"{kind}_{number}.pb").read_bytes())
        values.append(numpy_helper.to_array(tensor))
    return values


def conformance_case(folder):
    """Return a conformance case's model, its inputs by name, and its outputs.

    Integers after the first input, such as axes and shapes, become constants, and so does all after
    the first input of `PARAMETERS`.
    """
    model = onnx.load(str(folder / "model.onnx"))
    held = {tensor.name for tensor in model.graph.initializer}
    infos = [info for info in model.graph.input if info.name not in held]
    inputs, has_parameters = {}, model.graph.node[0].op_type in PARAMETERS
    for number, (info, value) in enumerate(zip(infos, _values(folder, "input", infos))):
        if number and (value.dtype == "int64" or has_parameters):
            model.graph.initializer.append(numpy_helper.from_array(value, info.name))
            model.graph.input.remove(info)
        else:
            inputs[info.name] = value
    return model, inputs, _values(folder, "output", model.graph.output)
