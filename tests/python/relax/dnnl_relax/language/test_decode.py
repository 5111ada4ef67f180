# SPDX-License-Identifier: Apache-2.0
"""A language model's decode loop: each call has another length, and needs no new primitives."""

import json

import numpy as np
import pytest
import tvm
import tvm_dnnl
from dnnl_tests.onnx_models import onnx_session
from onnx import TensorProto, helper, numpy_helper

from dnnl_relax.modules import compiled, imported, partitions, virtual_machine
from dnnl_relax.onnx.nodes import CONTRIB, assert_close, normal

LAYERS, HIDDEN, HEADS, GROUPS, INNER, VOCAB, LONGEST = 2, 64, 4, 2, 96, 50, 64
SIZE = HIDDEN // HEADS
CACHES = [f"layer{layer}.{name}" for layer in range(LAYERS) for name in ("key", "value")]


class Decoder:
    """Builds an ONNX model of a decoder of one token with an open past."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def weight(self, *shape):
        name = f"w{len(self.weights)}"
        value = normal(*shape, seed=len(self.weights)) / np.sqrt(np.float32(shape[0]))
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def node(self, op, *inputs, outputs=(), **attrs):
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name, *outputs], name=name, **attrs))
        return name

    def matmul(self, x, *shape):
        return self.node("MatMul", x, self.weight(*shape))

    def norm(self, x):
        return self.node("SimplifiedLayerNormalization", x, self.weight(HIDDEN), epsilon=1e-5)

    def attention(self, x, layer):
        sizes = (HEADS * SIZE, GROUPS * SIZE, GROUPS * SIZE)
        operands = [self.matmul(x, HIDDEN, size) for size in sizes]
        names = CACHES[2 * layer : 2 * layer + 2]
        attended = self.node(
            "GroupQueryAttention",
            *operands,
            *names,
            "last",
            "total",
            "cos",
            "sin",
            outputs=[f"new {name}" for name in names],
            domain=CONTRIB,
            num_heads=HEADS,
            kv_num_heads=GROUPS,
            do_rotary=1,
        )
        return self.matmul(attended, HIDDEN, HIDDEN)

    def mlp(self, x):
        gate = self.matmul(x, HIDDEN, INNER)
        swish = self.node("Mul", gate, self.node("Sigmoid", gate))
        return self.matmul(self.node("Mul", swish, self.matmul(x, HIDDEN, INNER)), INNER, HIDDEN)

    def build(self):
        angles = np.arange(LONGEST)[:, None] / 10000 ** (np.arange(SIZE // 2) / (SIZE // 2))
        for name, table in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
            self.weights.append(numpy_helper.from_array(table.astype("float32"), name))
        x = self.node("Gather", self.weight(VOCAB, HIDDEN), "ids")
        for layer in range(LAYERS):
            x = self.node("Add", x, self.attention(self.norm(x), layer))
            x = self.node("Add", x, self.mlp(self.norm(x)))
        logits = self.matmul(self.norm(x), HIDDEN, VOCAB)
        inputs = [
            helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 1]),
            helper.make_tensor_value_info("last", TensorProto.INT32, [1]),
            helper.make_tensor_value_info("total", TensorProto.INT32, []),
        ]
        for name in CACHES:
            shape = [1, GROUPS, "past", SIZE]
            inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        names = [logits, *(f"new {name}" for name in CACHES)]
        outputs = [helper.make_empty_tensor_value_info(name) for name in names]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.fixture(scope="module")
def decoder():
    """Return the functions that run a token, by onnxruntime and here, and the partition."""
    model = Decoder().build()
    session = onnx_session(model)
    names = [each.name for each in model.graph.input]
    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model), prune=False)
    assert partitions(partitioned) == 1
    machine = virtual_machine(compiled(partitioned))

    def expected(*values):
        return session.run(None, dict(zip(names, values)))

    def got(*values):
        result = machine["main"](*(tvm.runtime.tensor(value) for value in values))
        return [value.numpy() for value in result]

    (partition,) = imported(machine.module, "dnnl_json")
    return expected, got, partition


def call(token, past, caches):
    ids, last = np.array([[token]], "int64"), np.array([past], "int32")
    return [ids, last, np.array(past + 1, "int32"), *caches]


def test_decode_loop(decoder):
    expected, got, partition = decoder
    caches = [np.zeros((1, GROUPS, 0, SIZE), "float32")] * len(CACHES)
    token = 7
    for past in range(40):
        values = call(token, past, caches)
        wanted, results = expected(*values), got(*values)
        assert_close(results, wanted)
        token, caches = int(wanted[0].argmax()), wanted[1:]
    plan = json.loads(partition["get_plan"]())["plans"][0]
    assert plan["stages"] == 2 * LAYERS + 1
    # Nothing that depends on the length is a primitive of oneDNN.
    for step in plan["primitives"]:
        if step["op"] in ("nn.batch_matmul", "nn.softmax"):
            assert step["impl"] == "tvm:any", step
        # Nor is anything that takes a primitive longer to call than to run.
        if step["kind"] in ("binary", "concat", "eltwise"):
            assert step["impl"] == "tvm:any", step


def test_interleaved_lengths(decoder):
    expected, got, _ = decoder
    for past in (5, 30, 6, 1, 31, 5, 0, 50):
        caches = [normal(1, GROUPS, past, SIZE, seed=k) for k in range(len(CACHES))]
        values = call(past % VOCAB, past, caches)
        assert_close(got(*values), expected(*values))


def test_memory_is_flat(decoder):
    _, got, partition = decoder
    sizes = []
    for past in range(60):
        caches = [np.zeros((1, GROUPS, past, SIZE), "float32")] * len(CACHES)
        got(*call(1, past, caches))
        if past >= 20:
            described = json.loads(partition["get_plan"]())
            sizes.append(described["packed_constant_bytes"] + described["run_bytes"])
    # The scores of the 16 lengths that are kept grow: 4 floats of each position and layer.
    assert sizes[-1] - sizes[0] <= 16 * 40 * 4 * HEADS * LAYERS * 2
