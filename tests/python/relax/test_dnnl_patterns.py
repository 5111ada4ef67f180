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
"""Composites that somebody else has made by patterns, as TVM's own tests do."""

import re

import numpy as np
import pytest
import tvm
import tvm_dnnl  # noqa: F401, it registers the code generator
from dnnl_modules import X2, X4, const, conv_bias_relu, module, rand, residual, run, var
from tvm import relax
from tvm.relax import op
from tvm.relax.dpl import is_op, is_tuple, wildcard


def conv_bias_relu_pattern():
    conv = is_op("relax.nn.conv2d")(wildcard(), wildcard())
    return is_op("relax.nn.relu")(is_op("relax.add")(conv, wildcard()))


def residual_pattern():
    conv = is_op("relax.nn.conv2d")(wildcard(), wildcard())
    add = is_op("relax.add")(is_op("relax.add")(conv, wildcard()), wildcard())
    return is_op("relax.nn.relu")(add)


def conv_of_arguments(builder, x, weight):
    return op.nn.relu(builder.emit(op.nn.conv2d(x, weight, padding=1)))


def open_rows(builder, x):
    """4 * n rows: FuseOpsByPattern passes n to the composite."""
    rows = builder.emit(op.reshape(x, (4 * x.ty.shape.values[0], 8)))
    return op.matmul(rows, const(8, 3))


CASES = {
    "constants": (conv_bias_relu, [X4], conv_bias_relu_pattern()),
    "residual": (residual, [X4], residual_pattern()),
    "weight is an argument": (
        conv_of_arguments,
        [X4, var("w", 4, 6, 3, 3)],
        is_op("relax.nn.relu")(is_op("relax.nn.conv2d")(wildcard(), wildcard())),
    ),
    "open batch": (conv_bias_relu, [var("x", "n", 6, 9, 9)], conv_bias_relu_pattern()),
    "symbol that is passed": (
        open_rows,
        [var("x", "n", 4, 8)],
        is_op("relax.matmul")(wildcard(), wildcard()),
    ),
    "one op": (lambda _, x: op.exp(x), [X2], is_op("relax.exp")(wildcard())),
    "gelu is one op": (lambda _, x: op.nn.gelu(x), [X2], is_op("relax.nn.gelu")(wildcard())),
    "turned weight": (
        lambda builder, x: op.matmul(x, builder.emit(op.permute_dims(const(3, 8)))),
        [X2],
        is_op("relax.matmul")(wildcard(), is_op("relax.permute_dims")(wildcard())),
    ),
    "tuple": (
        lambda builder, x: op.concat([x, builder.emit(op.exp(x))], 1),
        [X2],
        is_op("relax.concat")(is_tuple([wildcard(), wildcard()])),
    ),
}


def partitioned(mod, pattern, bind_constants, merge):
    fuse = relax.transform.FuseOpsByPattern(
        [("dnnl.any", pattern)], bind_constants=bind_constants, annotate_codegen=not merge
    )
    merging = [relax.transform.MergeCompositeFunctions()] if merge else []
    return tvm.transform.Sequential([fuse, *merging])(mod)


def values(params):
    shapes = ([3 if size == "n" else size for size in shape] for _, shape, _ in params)
    return [rand(*shape, seed=seed) for seed, shape in enumerate(shapes)]


@pytest.mark.parametrize("merge", [True, False], ids=["merged", "alone"])
@pytest.mark.parametrize("bind_constants", [True, False], ids=["inside", "passed"])
@pytest.mark.parametrize("build, params, pattern", CASES.values(), ids=CASES.keys())
def test_composite(build, params, pattern, bind_constants, merge):
    mod = module(build, *params)
    compiled = relax.transform.RunCodegen()(partitioned(mod, pattern, bind_constants, merge))
    (code,) = compiled.attrs["external_mods"]
    assert code.inspect_source("json").count('"kernel"') == 1
    inputs = values(params)
    for one, other in zip(run(compiled, *inputs), run(mod, *inputs)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


REFUSED = {
    "an op without a rule": (
        lambda _, x: op.atan(x),
        is_op("relax.atan")(wildcard()),
        "dnnl.any is not a oneDNN kernel: atan: no rule for this op",
    ),
    "two kernels": (
        lambda builder, x: op.nn.softmax(builder.emit(op.matmul(x, const(8, 3)))),
        is_op("relax.nn.softmax")(is_op("relax.matmul")(wildcard(), wildcard())),
        "nn.matmul: not fused with what follows",
    ),
}


@pytest.mark.parametrize("build, pattern, message", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_kernel(build, pattern, message):
    """It says so when it is compiled, not when it is run."""
    mod = partitioned(module(build, X2), pattern, True, True)
    with pytest.raises(ValueError, match=re.escape(message)):
        relax.transform.RunCodegen()(mod)
