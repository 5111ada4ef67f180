# SPDX-License-Identifier: Apache-2.0
"""ONNX models of one recurrent node for tests, and what onnxruntime computes."""

import numpy as np
import onnxruntime
import tvm_dnnl
from onnx import helper, numpy_helper

from dnnl_relax.modules import compiled, composites, partitions, rand, run

STEPS, BATCH, SIZE, HIDDEN = 4, 2, 3, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DIRECTIONS = ("forward", "reverse", "bidirectional")
NAMES = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
RESULTS = ("Y", "Y_h", "Y_c")
#: The optional inputs except the lengths.
OPTIONAL = {
    "LSTM": ("B", "initial_h", "initial_c", "P"),
    "GRU": ("B", "initial_h"),
    "RNN": ("B", "initial_h"),
}
#: The optional inputs with which a layer is one op.
PLAIN = {op: [name for name in names if name != "P"] for op, names in OPTIONAL.items()}


def operands_of(op, direction="forward", optional=(), lengths=None):
    """Return the inputs of a node by name: all that are needed, and some of the others."""
    count, gates = 1 + (direction == "bidirectional"), GATES[op]
    shapes = {
        "X": (STEPS, BATCH, SIZE),
        "W": (count, gates * HIDDEN, SIZE),
        "R": (count, gates * HIDDEN, HIDDEN),
        "B": (count, 2 * gates * HIDDEN),
        "initial_h": (count, BATCH, HIDDEN),
        "initial_c": (count, BATCH, HIDDEN),
        "P": (count, 3 * HIDDEN),
    }
    values = {
        name: rand(*shape, seed=k)
        for k, (name, shape) in enumerate(shapes.items())
        if name in (*"XWR", *optional)
    }
    if lengths is not None:
        values["sequence_lens"] = np.array(lengths, "int32")
    return values


def model_of(op, values, results=None, consts=("W", "R", "B", "P"), dims=None, domain="", **attrs):
    """Return the model of one node, whose inputs and results are some of the op's."""
    names = [*NAMES, *(name for name in values if name not in NAMES)]
    while names[-1] not in values:
        names.pop()
    results = results or (RESULTS if op.endswith("LSTM") else RESULTS[:2])
    outputs = [name if name in results else "" for name in RESULTS]
    while not outputs[-1]:
        outputs.pop()
    attrs = {"hidden_size": HIDDEN, **attrs}
    inputs = [name if name in values else "" for name in names]
    node = helper.make_node(op, inputs, outputs, name="layer", domain=domain, **attrs)
    tensors = {name: numpy_helper.from_array(value, name) for name, value in values.items()}
    infos = [
        helper.make_tensor_value_info(name, tensor.data_type, (dims or {}).get(name, tensor.dims))
        for name, tensor in tensors.items()
        if name not in consts
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in outputs if name]
    weights = [tensors[name] for name in tensors if name in consts]
    graph = helper.make_graph([node], "model", infos, outputs, weights)
    opsets = [helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def inputs_of(model, values):
    return {each.name: values[each.name] for each in model.graph.input}


def onnxruntime_results(model, values):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs_of(model, values))


def assert_close(got, wanted, tolerance=2e-6):
    """Compare float32: sums have another order, and each step adds its rounding."""
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def check(op, values, wanted=None, parts=1, **options):
    """Compare a node with onnxruntime, or with given results; return its composites."""
    model = model_of(op, values, **options)
    wanted = onnxruntime_results(model, values) if wanted is None else wanted
    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model), prune=False)
    assert parts is None or partitions(partitioned) == parts
    assert_close(run(compiled(partitioned), *inputs_of(model, values).values()), wanted)
    return composites(partitioned)


def turned(values, results=False):
    """Return inputs or results of layout 1 for those of layout 0."""
    axes = {"X": (1, 0, 2), "initial_h": (1, 0, 2), "initial_c": (1, 0, 2), "Y": (2, 0, 1, 3)}
    axes.update({"Y_h": (1, 0, 2), "Y_c": (1, 0, 2)} if results else {})
    return {
        name: np.ascontiguousarray(value.transpose(axes[name])) if name in axes else value
        for name, value in values.items()
    }


def quantized_operands(values, dtype, per_channel):
    """Return inputs of DynamicQuantizeLSTM for an LSTM's, and its own with dequantized weights."""
    own, values, limits = dict(values), dict(values), np.iinfo(dtype)
    for name in "WR":
        weight = values[name].transpose(0, 2, 1)
        axes = (1,) if per_channel else (1, 2)
        # 7 bits: where a CPU has no VNNI, products of onnxruntime saturate in 16 bits.
        scale = np.abs(weight).max(axes) / np.float32(60)
        # Zero points of columns are zero in what onnxruntime quantizes.
        shift = 128 if limits.min == 0 else 0 if per_channel else 3
        zero_point = np.full(scale.shape, shift, dtype)
        wide = scale.reshape(len(weight), 1, -1)
        own[name] = np.clip(np.round(weight / wide) + shift, limits.min, limits.max).astype(dtype)
        values[name] = ((own[name].astype("float32") - shift) * wide).transpose(0, 2, 1)
        own.update({f"{name}_scale": scale, f"{name}_zero_point": zero_point})
    return own, values
