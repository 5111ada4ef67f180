# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: the numpy definition against onnxruntime, and the rule's reasons."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.ir.op import attributes_of, infer
from tvm.contrib.onednn.ir.op_view import OpView, Tensor
from tvm.contrib.onednn.ops.evaluate import evaluate_op
from tvm.contrib.onednn.ops.recurrent import DIRECTIONS, GATES, LSTM, operand_shapes
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE

STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 3, 5
# By op: where ONNX has each gate of oneDNN's order.
ORDERS = {"LSTM": [0, 2, 3, 1], "GRU": [0, 1, 2], "RNN": [0]}

CASES = [
    ("LSTM", {}),
    ("GRU", {"linear_before_reset": False}),
    ("GRU", {"linear_before_reset": True}),
    ("RNN", {"activation": "tanh"}),
    ("RNN", {"activation": "relu"}),
]
IDS = ["lstm", "gru", "lbr_gru", "rnn_tanh", "rnn_relu"]


def operands(name, attrs):
    """Return values of the operands of an op."""
    data = (BATCH, STEPS, INPUTS) if attrs.batch_first else (STEPS, BATCH, INPUTS)
    rng = np.random.default_rng(0)
    shapes = operand_shapes(name, attrs, data, HIDDEN)
    return [rng.normal(size=shape, scale=0.5).astype("float32") for shape in shapes]


def view(name="dnnl.lstm", direction="forward", batch_first=False, initial=False, **others):
    """Return a call with constant weights as the rule sees it."""
    attrs = dict(direction=direction, batch_first=batch_first, has_initial_state=initial)
    more = {"dnnl.gru": {"linear_before_reset": False}, "dnnl.rnn": {"activation": "tanh"}}
    attrs = attributes_of(name, SimpleNamespace(**attrs, **{**more.get(name, {}), **others}))
    args = [Tensor(each.shape, "float32", each) for each in operands(name, attrs)]
    args = [Tensor(each.dims, "float32") if k in (0, 4, 5) else each for k, each in enumerate(args)]
    return OpView(name, args, infer(name, args, attrs), attrs, returns_tuple=True)


def onnx_gates(op, array):
    """Return gates along axis 1 in the order of ONNX."""
    gates = np.split(array, len(ORDERS[op]), 1)
    return np.concatenate([gates[ORDERS[op].index(k)] for k in range(len(gates))], 1)


def onnxruntime_results(op, attrs, data, weight, recurrent_weight, bias, *initial):
    """Compute a layer by onnxruntime, batch first by transposed tensors."""
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    data = data.swapaxes(0, 1) if attrs.batch_first else data
    if getattr(attrs, "linear_before_reset", False):
        parts = np.split(bias, 4, 1)
        zeros = np.zeros_like(parts[0])
        bias = np.concatenate([*parts[:3], zeros, zeros, parts[3]], 1)
    else:
        bias = np.concatenate([onnx_gates(op, bias), np.zeros_like(bias)], 1)
    weights = {
        "W": onnx_gates(op, weight),
        "R": onnx_gates(op, recurrent_weight),
        "B": bias,
        **{f"initial_{name}": value for name, value in zip("hc", initial)},
    }
    own = {"direction": attrs.direction, "hidden_size": HIDDEN}
    if op == "GRU":
        own["linear_before_reset"] = int(attrs.linear_before_reset)
    if op == "RNN":
        own["activations"] = [attrs.activation.capitalize()] * DIRECTIONS[attrs.direction]
    names = ["X", "W", "R", "B", "", *(f"initial_{name}" for name in "hc"[: len(initial)])]
    outputs = ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]
    make = onnx.helper
    graph = make.make_graph(
        [make.make_node(op, names, outputs, **own)],
        "layer",
        [make.make_tensor_value_info("X", onnx.TensorProto.FLOAT, data.shape)],
        [make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    y, *states = session.run(None, {"X": data})
    y = y.transpose(0, 2, 1, 3).reshape(STEPS, BATCH, -1)
    return [y.swapaxes(0, 1) if attrs.batch_first else y, *states]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op, own", CASES, ids=IDS)
def test_numpy_definition_is_that_of_onnxruntime(op, own, direction):
    for batch_first, has_initial_state in itertools.product((False, True), repeat=2):
        attrs = dict(direction=direction, batch_first=batch_first)
        name = f"dnnl.{op.lower()}"
        attrs = SimpleNamespace(**attrs, has_initial_state=has_initial_state, **own)
        attrs = attributes_of(name, attrs)
        values = operands(name, attrs)
        types = [Tensor(value.shape, "float32") for value in values]
        got = evaluate_op(name, attrs, infer(name, types, attrs), values)
        expected = onnxruntime_results(op, attrs, *values)
        # onnxruntime computes in float32, and approximates the sigmoid and tanh.
        for result, wanted in zip(got, expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


@pytest.fixture(autouse=True)
def any_dtype(monkeypatch):
    """Rules ask the runtime what the CPU computes; these tests have none."""
    monkeypatch.setattr(cpu, "computes", lambda dtype: True)


def reason(call):
    return Rules(TABLE).refusal(call)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", GATES)
def test_accepted(name, direction):
    for batch_first, initial in itertools.product((False, True), repeat=2):
        call = view(name, direction, batch_first, initial)
        assert reason(call) is None
        # Any number of steps and sequences.
        size = call.args[0].dims[2]
        call.args[0] = Tensor((None, None, size), "float32")
        assert reason(call) is None
    assert reason(view("dnnl.gru", linear_before_reset=True)) is None


def replaced(position, dims=None, dtype=None, constant=True):
    """Return a call with another operand at a position."""
    call = view(initial=True)
    old = call.args[position]
    value = old.value if constant else None
    call.args[position] = Tensor(dims or old.dims, dtype or old.dtype, value)
    return call


REFUSED = {
    "weight": ({"position": 1, "constant": False}, "the weight is not constant"),
    "bias": ({"position": 3, "constant": False}, "the bias is not constant"),
    "rank": ({"position": 0, "dims": (4, 3)}, "data has shape (4, 3); rank 3"),
    "inputs": ({"position": 0, "dims": (4, 2, None)}, "open inputs"),
    "dtype": ({"position": 0, "dtype": "float64"}, "data is float64"),
    "float16": ({"position": 0, "dtype": "float16"}, "data is float16, not float32 or bfloat16"),
    "state dtype": ({"position": 4, "dtype": "int32"}, "initial h is int32"),
    "shape": ({"position": 2, "dims": (1, 10, 5)}, "not (1, 20, 5)"),
    "batch": ({"position": 5, "dims": (1, 3, 5)}, "initial c has shape (1, 3, 5)"),
    "empty": ({"position": 0, "dims": (0, 2, 3)}, "which has no elements"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    given, message = REFUSED[case]
    assert message in reason(replaced(**given))


def test_refused_attributes():
    def reason_of(call, **others):
        attrs = SimpleNamespace(**{**vars(call.attrs), **others})
        return reason(OpView(call.name, call.args, call.results, attrs, returns_tuple=True))

    call = view("dnnl.rnn", activation="elu")
    assert reason(call) == "activation=elu is not tanh or relu"
    assert reason_of(call, direction="backward").startswith("direction=backward is not forward or")
    assert reason_of(view(), has_initial_state=True) == "4 operands and 3 results, not 6 and 3"


def quantized(**others):
    """Return a call whose weights are int8."""
    call = view(initial=True, has_lengths=True, **others)
    for k in (1, 2):
        values = np.zeros(call.args[k].shape, "int8")
        call.args[k] = Tensor(values.shape, "int8", values)
    rows = call.args[1].shape[:2]
    for dtype in ("float32", "int32") * 2:
        call.args.append(Tensor(rows, dtype, np.zeros(rows, dtype)))
    return call


def test_lengths():
    call = view(has_lengths=True)
    assert call.args[4].shape == (BATCH,)
    assert reason(call) == "lengths is float32, not int32"
    call.args[4] = Tensor((BATCH + 1,), "int32")
    assert reason(call) == "lengths has shape (3,), not (2,)"
    call.args[4] = Tensor((None,), "int32")
    assert reason(call) is None
    for k in (0, 1, 2):
        call.args[k] = Tensor(call.args[k].dims, "bfloat16", call.args[k].value)
    results = infer(call.name, call.args, call.attrs)
    call = OpView(call.name, call.args, results, call.attrs, returns_tuple=True)
    assert reason(call) == "sequence lengths of bfloat16 data"


def test_narrow_weights():
    call = view()
    call.args[1] = Tensor(call.args[1].dims, "bfloat16", call.args[1].value)
    assert reason(call) == "recurrent weight is float32, not bfloat16"
    call.args[2] = Tensor(call.args[2].dims, "bfloat16", call.args[2].value)
    assert reason(call) is None
    call = quantized()
    assert reason(call) == "lengths is float32, not int32"
    call.args[6] = Tensor((BATCH,), "int32")
    assert reason(call) is None
    call.args[10] = Tensor(call.args[10].dims, "int32")
    assert reason(call) == "the zero point of the recurrent weight is not constant"
    call.args.pop()
    assert reason(call) == "10 operands and 3 results, not 11 and 3"


def test_flops():
    call, weights = view(), 4 * HIDDEN * (INPUTS + HIDDEN)
    assert Rules(TABLE).flops(call) == 2 * STEPS * BATCH * weights
    assert Rules(TABLE).is_heavy(LSTM)


def test_cell_state_in_float32():
    """The cell state may be float32 where the data is of reduced precision."""
    attrs = attributes_of(LSTM, SimpleNamespace(has_initial_state=True))
    shapes = operand_shapes(LSTM, attrs, (STEPS, BATCH, INPUTS), HIDDEN)
    dtypes = [*["bfloat16"] * 3, "float32", "bfloat16", "float32"]
    types = infer(LSTM, [Tensor(*each) for each in zip(shapes, dtypes)], attrs)
    assert [type_.dtype for type_ in types] == ["bfloat16", "bfloat16", "float32"]
