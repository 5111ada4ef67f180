# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers of ONNX that are one op: open sizes, sequence lengths, and what TVM runs."""

import pytest
import tvm_dnnl
from tvm import relax
from tvm.contrib.onednn import cpu

from dnnl_relax.modules import compiled, composites, run
from dnnl_relax.onnx.layers import (
    BATCH,
    GATES,
    HIDDEN,
    PLAIN,
    RESULTS,
    SIZE,
    STEPS,
    assert_close,
    check,
    inputs_of,
    model_of,
    onnxruntime_results,
    operands_of,
    turned,
)

KINDS = {
    "LSTM": ("LSTM", {}),
    "GRU": ("GRU", {}),
    "GRU-linear-before-reset": ("GRU", dict(linear_before_reset=1)),
    "RNN": ("RNN", {}),
    "RNN-relu": ("RNN", dict(activations=["Relu"] * 2)),
}


@pytest.mark.parametrize("layout", [0, 1], ids=["time-first", "batch-first"])
@pytest.mark.parametrize("kind", KINDS)
def test_open_steps(kind, layout):
    op, attrs = KINDS[kind]
    values = operands_of(op, "bidirectional", PLAIN[op])
    attrs = dict(attrs, direction="bidirectional")
    wanted = onnxruntime_results(model_of(op, values, **attrs), values)
    dims = {"X": ("steps", "n", SIZE), **dict.fromkeys(PLAIN[op][1:], (2, "n", HIDDEN))}
    if layout:
        values = turned(values)
        wanted = turned(dict(zip(RESULTS, wanted)), results=True).values()
        dims = {name: (dim[1], dim[0], dim[2]) for name, dim in dims.items()}
    counts = check(op, values, [*wanted], layout=layout, dims=dims, **attrs)
    assert counts[f"dnnl.{op.lower()}"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_without_onednn(kind):
    """TVM compiles the op as it is."""
    op, attrs = KINDS[kind]
    values = operands_of(op, "bidirectional", PLAIN[op])
    dims = {"X": ("steps", "n", SIZE), **dict.fromkeys(PLAIN[op][1:], (2, "n", HIDDEN))}
    model = model_of(op, values, dims=dims, direction="bidirectional", **attrs)
    mod = tvm_dnnl.from_onnx(model)
    got = run(compiled(mod), *inputs_of(model, values).values())
    assert_close(got, onnxruntime_results(model, values))


@pytest.mark.parametrize("op", GATES)
def test_number_of_steps_does_not_change_the_number_of_ops(op):
    def bindings(steps):
        values = operands_of(op, optional=PLAIN[op])
        dims = {"X": (steps, BATCH, SIZE)}
        mod = tvm_dnnl.from_onnx(model_of(op, values, dims=dims))
        return sum(len(block.bindings) for block in mod["main"].body.blocks)

    assert bindings(STEPS) == bindings(1000) <= 8


@pytest.mark.parametrize("length", ["constant", "given"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lengths_of_a_gru(direction, length):
    values = operands_of("GRU", direction, PLAIN["GRU"], [1, 3])
    consts = [*"WRB"] + ["sequence_lens"] * (length == "constant")
    counts = check("GRU", values, consts=consts, parts=None, direction=direction)
    assert counts["dnnl.gru"] == 1


@pytest.mark.skipif(not cpu.computes("bfloat16"), reason="the CPU has no bfloat16")
def test_precision_of_other_ops():
    """A layer stays in float32 where other ops compute in reduced precision."""
    values = operands_of("GRU", optional=PLAIN["GRU"])
    model = model_of("GRU", values)
    partitioned = tvm_dnnl.partition_for_dnnl(
        tvm_dnnl.from_onnx(model), precision="bfloat16", prune=False
    )
    assert composites(partitioned)["dnnl.gru"] == 1
    got = run(compiled(partitioned), *inputs_of(model, values).values())
    assert_close(got, onnxruntime_results(model, values))


def test_excluded():
    """What is excluded stays on TVM, and no function of it is left where it does not."""
    values = operands_of("LSTM", optional=PLAIN["LSTM"])
    model = model_of("LSTM", values)
    mod = tvm_dnnl.from_onnx(model)
    excluded = tvm_dnnl.partition_for_dnnl(mod, exclude=["dnnl.lstm"], prune=False)
    assert "dnnl.lstm" not in composites(excluded)
    got = run(compiled(excluded), *inputs_of(model, values).values())
    assert_close(got, onnxruntime_results(model, values))
    ran = relax.transform.RunCodegen()(tvm_dnnl.partition_for_dnnl(mod, prune=False))
    assert [var.name_hint for var in ran.get_global_vars()] == ["main"]
