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
    conv,
    module,
    rand,
    run,
    var,
)
from dnnl_onnx_nodes import node_model
from tvm import te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import from_onnx


def _pad_of_onnx(shape, widths, mode, value):
    """Return a pad as ONNX's importer writes it: a function of TIR."""
    data = np.zeros([1 if isinstance(size, str) else size for size in shape], "float32")
    operands = {"x": data, "widths": np.array(widths, "int64"), "value": np.float32(value)}
    options = dict(domain="", opset=18, consts=("widths", "value"), dims={"x": shape})
    model = node_model("Pad", operands, mode=mode, **options)
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


def _pad(builder, x, value=0.0):
    return builder.emit(op.nn.pad(x, (0, 0, 0, 0, 1, 2, 0, 1), "constant", value))


CONV = {"dnnl.conv2d": 1}
# Relay's tests have the other cases, and those that are kept: `rewrites/test_fold_pad.py`.
CASES = {
    "conv2d": (lambda b, x: conv(b, _pad(b, x)), CONV),
    "max-of-infinity": (
        lambda b, x: op.nn.max_pool2d(_pad(b, x, -np.inf), (3, 3)),
        {"dnnl.max_pool2d": 1},
    ),
    "average": (lambda b, x: op.nn.avg_pool2d(_pad(b, x), (3, 3)), {"dnnl.avg_pool2d": 1}),
    "kept": (lambda b, x: conv(b, _pad(b, x, 1.0)), {**CONV, "dnnl.pad": 1}),
}
# What is before the pad stays on TVM.
BEHIND_OTHERS = {
    "refused": lambda b, x: b.emit(op.nn.softplus(x, beta=2.0)),
    "without-a-row": lambda b, x: b.emit(op.sin(x)),
}


@pytest.mark.parametrize("case", CASES)
def test_folded(case):
    build, wanted = CASES[case]
    check_case(build, [X4], wanted)


@pytest.mark.parametrize("case", BEHIND_OTHERS)
def test_folded_behind_what_stays(case):
    mod = module(lambda b, x: conv(b, _pad(b, BEHIND_OTHERS[case](b, x))), X4)
    check(mod, CONV, rand(2, 6, 9, 9))


def test_folded_with_open_sizes():
    mod = module(lambda b, x: conv(b, _pad(b, x)), var("x", "n", 6, "h", 9))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert composites(partitioned) == CONV
    x = rand(2, 6, 7, 9)
    got, want = run(compiled(partitioned), x), run(mod, x)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)
