# SPDX-License-Identifier: Apache-2.0
"""Each op of the DNNL backend alone: what oneDNN computes, against numpy."""

import numpy as np
import pytest
import tvm
from dnnl_tests import small_graph
from dnnl_tests.reference import RTOL, batch_norm, conv2d, rand
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


# End to end, with code of LLVM: `dnnl_tests/graphs/test_infer.py` draws more calls of each op.
CONV2D_CASES = {
    "3x3": ("NCHW", "OIHW", dict(padding=(1, 1)), True),
    "strides": ("NHWC", "HWIO", dict(strides=(2, 3)), False),
    "depthwise": ("NHWC", "OHWI", dict(groups=16, channels=16), True),
}


@pytest.mark.parametrize(
    "layout, kernel_layout, case, constant", CONV2D_CASES.values(), ids=CONV2D_CASES
)
def test_conv2d(layout, kernel_layout, case, constant):
    attrs = dict(channels=20, kernel_size=(3, 3), data_layout=layout, kernel_layout=kernel_layout)
    attrs.update(case)
    sizes = dict(O=attrs["channels"], I=16 // attrs.get("groups", 1), H=3, W=3)
    x = rand(*(dict(N=2, C=16, H=13, W=11)[c] for c in layout))
    w = rand(*(sizes[c] for c in kernel_layout), seed=1)
    expr = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    inputs, params = ({"x": x}, {"w": w}) if constant else ({"x": x, "w": w}, None)
    run_single(expr, inputs, params, conv2d(x, w, attrs), "nn.conv2d")


def test_relu():
    x = rand(1, 16, 9, 7)
    run_single(relay.nn.relu(var("x", x.shape)), {"x": x}, None, np.maximum(x, 0), "nn.relu", 0)


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
