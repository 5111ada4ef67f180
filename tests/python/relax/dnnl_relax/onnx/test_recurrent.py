# SPDX-License-Identifier: Apache-2.0
"""ONNX's LSTM, GRU and RNN, and DynamicQuantizeLSTM of onnxruntime, imported into Relax."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm_dnnl
from onnx import numpy_helper

from dnnl_relax.modules import compiled, composites, partitions, run
from dnnl_relax.onnx.layers import (
    BATCH,
    DIRECTIONS,
    GATES,
    HIDDEN,
    OPTIONAL,
    PLAIN,
    RESULTS,
    SIZE,
    STEPS,
    assert_close,
    check,
    model_of,
    onnxruntime_results,
    operands_of,
    quantized_operands,
    turned,
)

# Directions, layouts, and which inputs and outputs there are.

#: Composites of ops around a layer.
MOVES = ("dnnl.reshape", "dnnl.transpose")

KINDS = {
    "LSTM": ("LSTM", {}),
    "LSTM-input-forget": ("LSTM", dict(input_forget=1)),
    "GRU": ("GRU", {}),
    "GRU-linear-before-reset": ("GRU", dict(linear_before_reset=1)),
    "RNN": ("RNN", {}),
}


@pytest.mark.parametrize("layout", [0, 1], ids=["time-first", "batch-first"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_directions(kind, direction, layout):
    """Layout 1 is compared with layout 0, the only one of onnxruntime."""
    counts = directions(kind, direction, layout, PLAIN)
    own = {name: n for name, n in counts.items() if name not in MOVES}
    assert own == {f"dnnl.{kind.split('-')[0].lower()}": 1}


@pytest.mark.parametrize("layout", [0, 1], ids=["time-first", "batch-first"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_peepholes(direction, layout):
    counts = directions("LSTM", direction, layout, OPTIONAL)
    assert sum(n for name, n in counts.items() if "dense" in name) >= STEPS


def directions(kind, direction, layout, optional):
    """Compare a node in a layout with onnxruntime; return its composites."""
    op, attrs = KINDS[kind]
    values = operands_of(op, direction, optional[op])
    attrs = dict(attrs, direction=direction)
    wanted = onnxruntime_results(model_of(op, values, **attrs), values)
    if layout:
        values = turned(values)
        wanted = turned(dict(zip(RESULTS, wanted)), results=True).values()
    return check(op, values, [*wanted], layout=layout, **attrs)


@pytest.mark.parametrize(
    "op, optional", [(op, name) for op in GATES for name in ("none", *OPTIONAL[op])]
)
def test_absent_inputs(op, optional):
    check(op, operands_of(op, "bidirectional", [optional]), direction="bidirectional")


@pytest.mark.parametrize(
    "op, results",
    [(op, results) for op in GATES for results in ("Y", "Y_h")]
    + [("LSTM", "Y_c"), ("LSTM", "Y-Y_c")],
)
def test_absent_outputs(op, results):
    check(op, operands_of(op), results=results.split("-"))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_inputs(kind):
    op, attrs = KINDS[kind]
    values = operands_of(op, "bidirectional", OPTIONAL[op])
    check(op, values, consts=(), direction="bidirectional", parts=None, **attrs)


@pytest.mark.parametrize("kind", KINDS)
def test_one_step(kind):
    op, attrs = KINDS[kind]
    values = operands_of(op, "bidirectional")
    check(op, {**values, "X": values["X"][:1]}, direction="bidirectional", **attrs)


def test_input_forget_of_another_activation():
    activations = dict(activations=["HardSigmoid", "Tanh", "Tanh"])
    parameters = dict(activation_alpha=[0.3], activation_beta=[0.4])
    check("LSTM", operands_of("LSTM"), input_forget=1, **activations, **parameters)


UNROLLED = {
    "clip": ("GRU", dict(clip=0.6), "clip"),
    "input_forget": (
        "LSTM",
        dict(input_forget=1, activations=["HardSigmoid", "Tanh", "Tanh"]),
        "the activations hardsigmoid, tanh, tanh",
    ),
}


@pytest.mark.parametrize("kind", UNROLLED)
def test_report_says_why_layers_are_unrolled(kind):
    op, attrs, reason = UNROLLED[kind]
    mod = tvm_dnnl.from_onnx(model_of(op, operands_of(op), **attrs))
    for each in (mod, tvm_dnnl.partition_for_dnnl(mod)):
        report = tvm_dnnl.offload_report(each)
        assert report.unrolled == [f"{op} layer: it has {reason}"]
        assert f"unrolled: {op} layer: it has {reason}" in str(report)


@pytest.mark.parametrize("kind", KINDS)
def test_clip(kind):
    op, attrs = KINDS[kind]
    values = operands_of(op, optional=OPTIONAL[op])
    # Beyond the bound, as is the cell state.
    values.update({name: values[name] * 4 for name in values if name in ("W", "initial_c")})
    check(op, values, clip=0.6, **attrs)


# Activations.

ACTIVATIONS = {
    "Affine": (0.5, 0.1),
    "Elu": (0.7,),
    "HardSigmoid": (0.3, 0.4),
    "LeakyRelu": (0.3,),
    "Relu": (),
    "ScaledTanh": (0.8, 0.6),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": (0.2,),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    """With all parameters: onnxruntime reads missing ones as 0, not as the defaults."""
    parameters = dict(zip(("activation_alpha", "activation_beta"), zip(ACTIVATIONS[name])))
    values = operands_of("RNN", optional=("B",))
    parts = None if name == "ThresholdedRelu" else 1
    check("RNN", values, parts=parts, activations=[name], **parameters)


def test_parameters_of_activations():
    """They belong to the functions that have some, in order."""
    names = ["HardSigmoid", "Tanh", "LeakyRelu", "Sigmoid", "Affine", "ScaledTanh"]
    check(
        "LSTM",
        operands_of("LSTM", "bidirectional", OPTIONAL["LSTM"]),
        direction="bidirectional",
        activations=names,
        activation_alpha=[0.3, 0.2, 0.7, 0.9],
        activation_beta=[0.4, 0.1, 0.8],
    )


DEFAULTS = {
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "LeakyRelu": lambda x: np.where(x < 0, 0.01 * x, x),
    "ThresholdedRelu": lambda x: np.where(x > 1, x, 0),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_default_parameters_of_activations(name):
    values = operands_of("RNN")
    state, sequence = np.zeros((BATCH, HIDDEN), "float32"), []
    for x in values["X"]:
        state = DEFAULTS[name](x @ values["W"][0].T + state @ values["R"][0].T).astype("float32")
        sequence.append(state)
    wanted = [np.array(sequence)[:, None], state[None]]
    check("RNN", values, wanted, parts=None, activations=[name])


# Lengths of sequences.

LENGTHS = {"shorter": [3, 2], "one-is-full": [1, 4]}


@pytest.mark.parametrize("consts", [(), ("sequence_lens",)], ids=["given", "constant"])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("op", GATES)
def test_lengths(op, lengths, consts):
    values = operands_of(op, "bidirectional", OPTIONAL[op], LENGTHS[lengths])
    names = [name for name in OPTIONAL[op] if name != "P"]
    options = dict(direction="bidirectional", consts=(*"WRB", *consts))
    counts = check(op, operands_of(op, "bidirectional", names, LENGTHS[lengths]), **options)
    assert counts[f"dnnl.{op.lower()}"] == 1
    check(op, values, parts=None, **options)


def test_lengths_in_batch_first():
    values = operands_of("LSTM", "reverse", OPTIONAL["LSTM"], [3, 2])
    attrs = dict(direction="reverse")
    wanted = dict(zip(RESULTS, onnxruntime_results(model_of("LSTM", values, **attrs), values)))
    check("LSTM", turned(values), [*turned(wanted, True).values()], None, layout=1, **attrs)


def test_padding_is_not_read():
    values = operands_of("RNN", "bidirectional", lengths=[3, 2])
    values["X"][3, 0] = values["X"][2:, 1] = np.nan
    check("RNN", values, direction="bidirectional")


@pytest.mark.parametrize("op", GATES)
def test_lengths_of_all_steps_are_no_mask(op):
    counts = check(op, operands_of(op, lengths=[STEPS] * BATCH), consts=(*"WRB", "sequence_lens"))
    assert counts == check(op, operands_of(op))


# Open dimensions.


@pytest.mark.parametrize("lengths", [None, [3, 2]], ids=["all", "lengths"])
@pytest.mark.parametrize(
    "op, initial", [*((op, "none") for op in GATES), ("GRU", "initial_h"), ("LSTM", "initial_c")]
)
def test_open_batch(op, initial, lengths):
    values = operands_of(op, optional=("B", initial), lengths=lengths)
    dims = {"X": (STEPS, "n", SIZE), "initial_h": (1, "n", HIDDEN), "initial_c": (1, "n", HIDDEN)}
    dims["sequence_lens"] = ("n",)
    check(op, values, dims=dims, parts=None)


# Refused nodes.

REFUSED = {
    "open-length": (
        dict(dims={"X": ("steps", BATCH, SIZE)}, clip=0.5),
        "the sequence length, steps, is open, .* unrolled: it has clip; .*shape=",
    ),
    "unknown-shape": (dict(dims={"X": None}), "the shape of X is unknown.*shape="),
    "activation": (dict(activations=["Selu"]), "the activation selu is not supported"),
    "activations": (dict(activations=["Tanh", "Tanh"]), "activations has 2 functions, not 1"),
    "alpha": (dict(activations=["Affine"]), "activation_alpha has no value .* affine"),
    "direction": (dict(direction="backward"), "direction=backward"),
    "hidden-size": (dict(hidden_size=7), "hidden_size=7 and R with 5 columns do not match"),
    "clip": (dict(clip=-1.0), "clip=-1.0 is not positive"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    options, message = REFUSED[case]
    with pytest.raises(
        tvm.error.OpAttributeUnImplemented, match="ONNX RNN, node layer: " + message
    ):
        tvm_dnnl.from_onnx(model_of("RNN", operands_of("RNN"), **options))


@pytest.mark.parametrize("lengths", [[5, 1], [-1, 1]], ids=["too-long", "negative"])
def test_refused_lengths(lengths):
    model = model_of("GRU", operands_of("GRU", lengths=lengths), consts=("sequence_lens",))
    with pytest.raises(tvm.error.OpAttributeUnImplemented, match="node layer: sequence_lens="):
        tvm_dnnl.from_onnx(model)


@pytest.mark.parametrize("name", ["B", "initial_h", "sequence_lens"])
def test_refused_shapes(name):
    values = operands_of("GRU", optional=OPTIONAL["GRU"], lengths=[3, 2])
    values[name] = np.concatenate([values[name]] * 2, -1)
    with pytest.raises(tvm.error.OpAttributeUnImplemented, match=f"layer: {name} has shape"):
        tvm_dnnl.from_onnx(model_of("GRU", values, consts=()))


def test_refused_names_of_the_batch():
    values = operands_of("RNN", optional=("initial_h",))
    dims = {"X": (STEPS, "n", SIZE), "initial_h": (1, "m", HIDDEN)}
    model = model_of("RNN", values, dims=dims)
    wanted = r"layer: initial_h has shape \(1, m, 5\), not \(1, n, 5\); give the shapes"
    with pytest.raises(tvm.error.OpAttributeUnImplemented, match=wanted):
        tvm_dnnl.from_onnx(model)
    shape = {"X": values["X"].shape, "initial_h": values["initial_h"].shape}
    assert tvm_dnnl.from_onnx(model, shape=shape)


def test_refused_constant_lengths_of_an_open_batch():
    values = operands_of("RNN", lengths=[3, 2])
    model = model_of("RNN", values, consts=("sequence_lens",), dims={"X": (STEPS, "n", SIZE)})
    with pytest.raises(tvm.error.OpAttributeUnImplemented, match="the batch, n, is open"):
        tvm_dnnl.from_onnx(model)


# ONNX's own tests.

NODES = Path(onnx.__file__).parent / "backend/test/data/node"
STANDARD = sorted(
    path.name.removeprefix("test_")
    for kind in ("lstm", "gru", "rnn", "simple_rnn")
    for path in NODES.glob(f"test_{kind}_*")
)


@pytest.mark.parametrize("name", STANDARD)
def test_of_the_standard(name):
    folder = NODES / f"test_{name}"
    model = onnx.load(folder / "model.onnx")

    def tensors(kind):
        paths = sorted((folder / "test_data_set_0").glob(f"{kind}_*.pb"))
        return [numpy_helper.to_array(onnx.load_tensor(path)) for path in paths]

    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model), prune=False)
    assert partitions(partitioned) > 0
    assert_close(run(compiled(partitioned), *tensors("input")), tensors("output"), 1e-5)


# DynamicQuantizeLSTM.


@pytest.mark.parametrize("per_channel", [False, True], ids=["per-tensor", "per-channel"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_dynamic_quantize_lstm(direction, dtype, per_channel):
    values = operands_of("LSTM", direction, OPTIONAL["LSTM"])
    own, values = quantized_operands(values, dtype, per_channel)
    consts = [name for name in own if name not in ("X", "initial_h", "initial_c")]
    options = dict(domain="com.microsoft", consts=consts, direction=direction)
    in_float = onnxruntime_results(model_of("LSTM", values, direction=direction), values)
    check("DynamicQuantizeLSTM", own, in_float, **options)
    # onnxruntime quantizes data and states in [-1, 1] to 255 steps, so that a gate is off by
    # half a step for each of the products at most, and by less than a step after its activation.
    got = onnxruntime_results(model_of("DynamicQuantizeLSTM", own, **options), own)
    for one, other in zip(got, in_float):
        assert np.abs(one - other).max() < 2 / 255


def test_dynamic_quantize_lstm_of_weights_that_are_inputs():
    own, _ = quantized_operands(operands_of("LSTM"), "int8", False)
    model = model_of("DynamicQuantizeLSTM", own, domain="com.microsoft", consts=())
    wanted = "ONNX DynamicQuantizeLSTM, node layer: W, its scale or its zero point is not constant"
    with pytest.raises(tvm.error.OpAttributeUnImplemented, match=wanted):
        tvm_dnnl.from_onnx(model)


# What is computed of a layer.


def test_steps_share_their_weight():
    """One matmul of the data, one of each state, and one constant for the latter."""
    values = operands_of("LSTM", optional=OPTIONAL["LSTM"])
    mod = tvm_dnnl.from_onnx(model_of("LSTM", values, consts=(*"WRB",)))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert sum(n for name, n in composites(partitioned).items() if "dense" in name) == STEPS + 1
    (library,) = compiled(partitioned).attrs["external_mods"]
    assert library.inspect_source().count('"op": "const"') == 3
