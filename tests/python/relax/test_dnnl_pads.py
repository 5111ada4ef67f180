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
"""Pads: those of ONNX, and what is folded into the convolution or pool behind it."""

import numpy as np
import pytest
import tvm_dnnl
from dnnl_modules import (
    X4,
    check,
    check_case,
    compiled,
    composites,
    const,
    conv,
    module,
    rand,
    run,
    var,
)
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import from_onnx


def _pad_of_onnx(shape, widths, mode, value):
    """Return a pad as ONNX's importer writes it: a function of TIR."""
    names = ("widths", "value")
    constants = (np.array(widths, "int64"), np.array(value, "float32"))
    node = helper.make_node("Pad", ["x", *names], ["y"], mode=mode)
    graph = helper.make_graph(
        [node],
        "pad",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))],
        [numpy_helper.from_array(array, name) for array, name in zip(constants, names)],
    )
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return from_onnx(model, keep_params_in_input=False)


@pytest.mark.parametrize("widths", [(0, 0, 1, 2, 0, 0, 0, 3), (0, 1, 0, 0, 0, 0, 2, 0)], ids=str)
@pytest.mark.parametrize("mode, value", [("constant", 1.5), ("reflect", 0.0), ("edge", 0.0)])
def test_pad_of_onnx(mode, value, widths):
    mod = _pad_of_onnx([2, 6, 5, 4], widths, mode, value)
    assert "call_tir" in mod.script()
    check(mod, {"dnnl.pad": 1}, rand(2, 6, 5, 4), tolerance=0)


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_pad_of_onnx_of_any_batch(mode):
    mod = _pad_of_onnx(["n", 6, 5, 4], (0, 0, 1, 1, 0, 0, 1, 1), mode, 0.0)
    check(mod, {"dnnl.pad": 1}, rand(3, 6, 5, 4), tolerance=0)


def _not_before(row):
    """Return what is a pad but for the rows that it leaves out."""

    def write(data):
        def at(i, j):
            inside = tirx.all(i >= row, i < 6, j >= 1)
            return tirx.if_then_else(inside, data[i - 1, j - 1], 0.0)

        return te.compute((7, 9), at, name="PadInput")

    return lambda builder, x: builder.emit_te(write, x)


@pytest.mark.parametrize("row", [2, 3])
def test_what_is_no_pad_stays(row):
    check(module(_not_before(row), var("x", 6, 8)), {}, rand(6, 8))


def _pad(builder, x, value=0.0, mode="constant", widths=(0, 0, 0, 0, 1, 2, 0, 1)):
    return builder.emit(op.nn.pad(x, widths, mode, value))


def _relu(builder, x):
    return builder.emit(op.nn.relu(x))


def _two_uses(builder, x):
    padded = _pad(builder, x)
    return relax.Tuple([conv(builder, padded), builder.emit(op.tanh(padded))])


CONV = {"dnnl.conv2d": 1}
MAX, AVERAGE = {"dnnl.max_pool2d": 1}, {"dnnl.avg_pool2d": 1}
CASES = {
    "conv2d": (lambda b, x: conv(b, _pad(b, x)), CONV),
    "conv2d-strided": (lambda b, x: conv(b, _pad(b, x), strides=2), CONV),
    "conv2d-grouped": (lambda b, x: conv(b, _pad(b, x), channels=6, groups=6), CONV),
    "max-of-infinity": (lambda b, x: op.nn.max_pool2d(_pad(b, x, -np.inf), (3, 3)), MAX),
    "max-of-relu": (
        lambda b, x: op.nn.max_pool2d(_pad(b, _relu(b, x)), (3, 3)),
        {**MAX, "dnnl.relu": 1},
    ),
    "average": (lambda b, x: op.nn.avg_pool2d(_pad(b, x), (3, 3)), AVERAGE),
}
# What is before the pad stays on TVM.
BEHIND_OTHERS = {
    "refused": lambda b, x: b.emit(op.nn.softplus(x, beta=2.0)),
    "without-a-row": lambda b, x: b.emit(op.sin(x)),
}
KEPT = {
    "value": (lambda b, x: conv(b, _pad(b, x, 1.0)), CONV),
    "edge": (lambda b, x: conv(b, _pad(b, x, mode="replicate")), CONV),
    "channels": (lambda b, x: conv(b, _pad(b, x, widths=(0, 0, 0, 1, 0, 0, 0, 0))), CONV),
    "max": (lambda b, x: op.nn.max_pool2d(_pad(b, x), (3, 3)), MAX),
    "max-of-padding-only": (
        lambda b, x: op.nn.max_pool2d(
            _pad(b, _relu(b, x), widths=(0, 0, 0, 0, 4, 1, 0, 0)), (3, 3)
        ),
        {**MAX, "dnnl.relu": 1},
    ),
    "average-with-padding": (lambda b, x: op.nn.avg_pool2d(_pad(b, x), (3, 3), padding=1), AVERAGE),
    "transposed": (
        lambda b, x: op.nn.conv2d_transpose(_pad(b, x), const(6, 4, 3, 3)),
        {"dnnl.conv2d_transpose": 1},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_folded(case):
    build, wanted = CASES[case]
    check_case(build, [X4], wanted)


@pytest.mark.parametrize("case", BEHIND_OTHERS)
def test_folded_behind_what_stays(case):
    mod = module(lambda b, x: conv(b, _pad(b, BEHIND_OTHERS[case](b, x))), X4)
    check(mod, CONV, rand(2, 6, 9, 9))


@pytest.mark.parametrize("case", KEPT)
def test_kept(case):
    build, wanted = KEPT[case]
    check_case(build, [X4], {**wanted, "dnnl.pad": 1})


def test_another_use_keeps_the_pad():
    wanted = {**CONV, "dnnl.pad": 1, "dnnl.tanh": 1}
    check(module(_two_uses, X4), wanted, rand(2, 6, 9, 9))


def test_folded_with_open_sizes():
    mod = module(lambda b, x: conv(b, _pad(b, x)), var("x", "n", 6, "h", 9))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert composites(partitioned) == CONV
    x = rand(2, 6, 7, 9)
    got, want = run(compiled(partitioned), x), run(mod, x)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["nn.pad", "nn.conv2d"])
def test_excluded(name):
    mod = module(lambda b, x: conv(b, _pad(b, x)), X4)
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False, exclude=[name])
    assert name in tvm_dnnl.offload_report(partitioned).reasons
