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
"""Each op of the DNNL backend alone: what oneDNN computes, against numpy."""

import numpy as np
import pytest
import tvm
from dnnl_tests import small_graph
from dnnl_tests.reference import RTOL, batch_norm, conv2d, dense, rand
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing


def run_single(expr, inputs, params, reference, op, rtol=RTOL):
    """Offload one op, which must be the only call, and compare it with the reference."""
    mod = tvm.IRModule.from_expr(expr)
    partitioned = testing.check(
        mod,
        inputs,
        params,
        ops={op: 1},
        partitions=1,
        reference=[reference],
        rtol=rtol,
        options={"prune": False},
    )
    assert not testing.offload(partitioned).host_ops


def var(name, shape):
    return relay.var(name, shape=shape, dtype="float32")


# End to end, with code of LLVM: `dnnl_tests/ops` has more cases of each op.
CONV2D_CASES = {
    "1x1": dict(kernel_size=(1, 1)),
    "3x3-pad1": dict(kernel_size=(3, 3), padding=(1, 1)),
    "pad-one-value": dict(kernel_size=(3, 3), padding=1),
    "strides": dict(kernel_size=(3, 3), strides=(2, 3), padding=(1, 1)),
    "groups": dict(kernel_size=(3, 3), groups=4, channels=24),
    "depthwise": dict(kernel_size=(3, 3), groups=16, channels=16, padding=(1, 1)),
}


def conv2d_shapes(case, data_layout, kernel_layout, batch=2, channels_in=16, size=(13, 11)):
    """Return the attributes and the shapes of data and weights in the given layouts."""
    attrs = dict(channels=20, data_layout=data_layout, kernel_layout=kernel_layout)
    attrs.update(case)
    groups = attrs.get("groups", 1)
    data = dict(N=batch, C=channels_in, H=size[0], W=size[1])
    weight = dict(O=attrs["channels"], I=channels_in // groups)
    weight.update(zip("HW", attrs["kernel_size"]))
    return attrs, [data[c] for c in data_layout], [weight[c] for c in kernel_layout]


@pytest.mark.parametrize("constant", [True, False], ids=["const-weight", "var-weight"])
@pytest.mark.parametrize(
    "layouts", [("NCHW", "OIHW"), ("NHWC", "HWIO"), ("NHWC", "OHWI")], ids="-".join
)
@pytest.mark.parametrize("case", CONV2D_CASES.values(), ids=CONV2D_CASES.keys())
def test_conv2d(case, layouts, constant):
    attrs, data_shape, weight_shape = conv2d_shapes(case, *layouts)
    x, w = rand(*data_shape), rand(*weight_shape, seed=1)
    expr = relay.nn.conv2d(var("x", data_shape), var("w", weight_shape), **attrs)
    inputs, params = ({"x": x}, {"w": w}) if constant else ({"x": x, "w": w}, None)
    run_single(expr, inputs, params, conv2d(x, w, attrs), "nn.conv2d")


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("layouts", [("NCHW", "OIHW"), ("NHWC", "HWOI")], ids="-".join)
def test_conv2d_depthwise_with_the_multiplier_as_input_channels(layouts, multiplier):
    """The layout that TFLite's models have: (C, multiplier) in the place of (O, I)."""
    attrs = dict(kernel_size=(3, 3), channels=16 * multiplier, groups=16, padding=(1, 1))
    attrs.update(data_layout=layouts[0], kernel_layout=layouts[1])
    data_shape = [dict(N=1, C=16, H=9, W=7)[c] for c in layouts[0]]
    weight_shape = [dict(O=16, I=multiplier, H=3, W=3)[c] for c in layouts[1]]
    x, w = rand(*data_shape), rand(*weight_shape, seed=1)
    expr = relay.nn.conv2d(var("x", data_shape), var("w", weight_shape), **attrs)
    run_single(expr, {"x": x}, {"w": w}, conv2d(x, w, attrs), "nn.conv2d")


@pytest.mark.parametrize("constant", [True, False], ids=["const-weight", "var-weight"])
@pytest.mark.parametrize("shape", [(1, 64), (5, 33), (2, 3, 40), (2, 3, 4, 10)], ids=str)
@pytest.mark.parametrize("units", [1, 48])
def test_dense(shape, units, constant):
    x, w = rand(*shape), rand(units, shape[-1], seed=1)
    expr = relay.nn.dense(var("x", shape), var("w", w.shape))
    inputs, params = ({"x": x}, {"w": w}) if constant else ({"x": x, "w": w}, None)
    run_single(expr, inputs, params, dense(x, w), "nn.dense")


@pytest.mark.parametrize("shape", [(4,), (3, 5), (1, 16, 9, 7), (1, 2, 3, 4, 5, 6)], ids=str)
def test_relu(shape):
    x = rand(*shape)
    run_single(relay.nn.relu(var("x", shape)), {"x": x}, None, np.maximum(x, 0), "nn.relu", 0)


BATCH_NORM_CASES = {
    "nchw": ((2, 16, 5, 7), {}),
    "nhwc": ((2, 5, 7, 16), dict(axis=3)),
    "negative-axis": ((2, 5, 7, 16), dict(axis=-1)),
    "middle-axis": ((2, 5, 7, 6), dict(axis=2)),
    "first-axis": ((6, 5, 7), dict(axis=0)),
    "matrix": ((3, 8), {}),
    "volume": ((1, 8, 3, 4, 5), {}),
    "rank-6": ((1, 8, 3, 2, 2, 2), {}),
    "epsilon": ((2, 4, 3, 3), dict(epsilon=0.3)),
    "no-scale": ((2, 4, 3, 3), dict(scale=False)),
    "no-center": ((2, 4, 3, 3), dict(center=False)),
    "neither": ((2, 4, 3, 3), dict(scale=False, center=False)),
}


@pytest.mark.parametrize("constant", [True, False], ids=["const", "var"])
@pytest.mark.parametrize("shape, attrs", BATCH_NORM_CASES.values(), ids=BATCH_NORM_CASES.keys())
def test_batch_norm(shape, attrs, constant):
    channels = shape[attrs.get("axis", 1)]
    values = [rand(channels, seed=i) for i in range(4)]
    values[3] = np.abs(values[3]) + 0.1
    x, names = rand(*shape), ["gamma", "beta", "mean", "variance"]
    call = relay.nn.batch_norm(var("x", shape), *(var(n, (channels,)) for n in names), **attrs)
    values = dict(zip(names, values))
    inputs, params = ({"x": x}, values) if constant else ({"x": x, **values}, None)
    # As a factor and a summand of each channel, but behind all other dimensions.
    is_affine = constant and attrs.get("axis", 1) == 1
    testing.check(
        tvm.IRModule.from_expr(call[0]),
        inputs,
        params,
        composites={"dnnl.multiply_add": 1} if is_affine else {},
        ops={"multiply": 1, "add": 1} if is_affine else {"nn.batch_norm": 1},
        partitions=1,
        reference=[batch_norm(x, *values.values(), attrs)],
        rtol=RTOL,
        options={"prune": False},
    )


def test_batch_norm_passes_the_moving_statistics_through():
    values = dict(zip(["gamma", "beta", "mean", "variance"], (rand(4, seed=i) for i in range(4))))
    values["variance"] = np.abs(values["variance"]) + 0.1
    x = rand(1, 4, 3, 3)
    call = relay.nn.batch_norm(var("x", x.shape), *(var(n, (4,)) for n in values))
    expr = relay.Tuple([call[0], call[1], call[2]])
    reference = [batch_norm(x, *values.values(), {}), values["mean"], values["variance"]]
    mod = tvm.IRModule.from_expr(expr)
    options = {"prune": False}
    testing.check(mod, {"x": x, **values}, partitions=1, reference=reference, options=options)


BROADCASTS = [
    ((2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), (4,)),
    ((2, 3, 4), ()),
    ((4,), (2, 3, 4)),
    ((1, 16, 6, 6), (16, 1, 1)),
]


@pytest.mark.parametrize("constant", [True, False], ids=["const", "var"])
@pytest.mark.parametrize("lhs, rhs", BROADCASTS, ids=str)
@pytest.mark.parametrize("op", ["add", "multiply"])
def test_binary(op, lhs, rhs, constant):
    x, y = rand(*lhs), rand(*rhs, seed=1)
    expr = getattr(relay, op)(var("x", lhs), var("y", rhs))
    inputs, params = ({"x": x}, {"y": y}) if constant else ({"x": x, "y": y}, None)
    run_single(expr, inputs, params, getattr(np, op)(x, y), op)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_bias_add(axis):
    x = rand(3, 4, 5)
    b = rand(x.shape[axis], seed=1)
    shape = [1, 1, 1]
    shape[axis] = -1
    expr = relay.nn.bias_add(var("x", x.shape), var("b", b.shape), axis=axis)
    run_single(expr, {"x": x}, {"b": b}, x + b.reshape(shape), "nn.bias_add")


@pytest.mark.parametrize("op", ["add", "multiply"])
def test_binary_of_a_tensor_with_itself(op):
    x = var("x", (2, 5))
    value = rand(2, 5)
    run_single(getattr(relay, op)(x, x), {"x": value}, None, getattr(np, op)(value, value), op)


def test_the_two_op_tables_agree():
    """Every op that the rules accept must be one that the runtime can run, and the reverse."""
    runtime = {str(name) for name in tvm.get_global_func("runtime.contrib.dnnl.ops")()}
    assert set(dnnl.TABLE) == runtime


def test_which_codegen_it_is():
    codegen = tvm.get_global_func("relay.ext.dnnl.codegen")()
    assert dnnl.dnnl_codegen() == codegen and codegen in ("JSON", "C_SRC")
    # A tree of TVM that has the patch tells there what it was configured with: ON stands for JSON.
    configured = tvm.support.libinfo().get("USE_DNNL_CODEGEN", codegen)
    assert {"ON": "JSON"}.get(configured, configured) == codegen
    mod = dnnl.partition_for_dnnl(small_graph.relay_module())
    for wish, kind in (("JSON", "dnnl_json"), ("C_SRC", "c")):
        kinds = {
            each.type_key for each in testing.imported_modules(testing.build(mod, codegen=wish))
        }
        assert kind in kinds
    with pytest.raises(tvm.TVMError, match="must be JSON or C_SRC"):
        testing.build(mod, codegen="RUST")


if __name__ == "__main__":
    tvm.testing.main()
