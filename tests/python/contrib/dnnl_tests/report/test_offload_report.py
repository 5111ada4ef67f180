# SPDX-License-Identifier: Apache-2.0
"""What offload_report tells, as numbers and as text."""

import json

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn.partition.prune import LIGHT_ELEMENTS
from tvm.relay import testing as networks
from tvm.relay.op.contrib import dnnl
from tvm.relay.qnn import op as qnn

from dnnl_tests.quantized import Quantization
from dnnl_tests.relay import const, conv, module, partition, var

SHAPE = (1, 8, 6, 6)
X = var("x", *SHAPE)
relu, atan = relay.nn.relu, relay.atan


def light(elements):
    return f"pruned: too small to be faster: cost of {elements} elements, below {LIGHT_ELEMENTS}"


def network():
    """Return a module with something for every part of the report."""
    stats = [relay.const(np.ones(8, "float32")) for _ in range(4)]
    y = relay.nn.batch_norm(conv(X), *stats)[0]
    y = atan(relu(relay.nn.dropout(y)))
    y = relay.nn.batch_flatten(conv(y, seed=1) + const(6))
    return module(relay.cast(relay.nn.dense(y, const(4, 288)) + const(4), "float64"), relu(X))


def test_counts():
    report = dnnl.offload_report(partition(network()))
    assert report.ops == {
        "nn.conv2d": 2,
        "add": 3,
        "nn.relu": 2,
        "atan": 1,
        "nn.batch_flatten": 1,
        "nn.dense": 1,
        "cast": 1,
    }
    assert report.offloaded_ops == {
        "nn.conv2d": 2,
        "add": 3,
        "nn.relu": 1,
        "nn.batch_flatten": 1,
        "nn.dense": 1,
    }
    assert (report.total, report.offloaded, report.partitions) == (11, 8, 2)
    assert report.composites == {"dnnl.conv2d_bias_relu": 1, "dnnl.dense_bias": 1}
    assert report.folded == {"nn.batch_norm": 1, "nn.dropout": 1}
    assert report.reasons == {
        "atan": {"no rule for this op": 1},
        "cast": {"result is float64, not float32, bfloat16 or float16": 1},
        "nn.relu": {light(288): 1},
    }


def test_every_call_is_offloaded_or_has_a_reason():
    for options in ({}, {"prune": False}, {"exclude": ["add", "nn.dense"]}):
        report = dnnl.offload_report(partition(network(), **options))
        for op, count in report.ops.items():
            explained = sum(report.reasons.get(op, {}).values())
            assert count == report.offloaded_ops.get(op, 0) + explained, op


def test_the_old_name_of_ops():
    report = dnnl.offload_report(network())
    with pytest.warns(DeprecationWarning, match="is now .ops"):
        assert report.calls == report.ops


def test_module_that_is_not_partitioned():
    report = dnnl.offload_report(network())
    assert (report.offloaded, report.partitions) == (0, 0)
    assert not report.composites and not report.folded
    ready = "can be offloaded; the module is not partitioned"
    assert report.reasons["nn.conv2d"] == {ready: 2}
    assert report.reasons["atan"] == {"no rule for this op": 1}


def test_module_without_types():
    mod = tvm.IRModule.from_expr(relu(conv(X)))
    assert dnnl.offload_report(mod).total == 2


def test_reasons_of_one_op_are_counted_apart():
    small, large = var("a", None, 4), var("b", None, 4, dtype="float64")
    mod = module(relu(small), relu(large), relu(large + large), relu(var("c", 2, 4)))
    report = dnnl.offload_report(partition(mod))
    assert report.reasons["nn.relu"] == {
        "data is float64, not float32, bfloat16 or float16": 2,
        # An open dimension counts as one.
        light(4): 1,
        light(8): 1,
    }


def test_reasons_that_differ_in_numbers_are_one_line():
    shapes = [relu(var(f"y{n}", -1, n)) for n in (1, 2, 3)]
    text = str(dnnl.offload_report(partition(module(*shapes))))
    reason = "3 x data has shape (-1, 1); give the input a size there, or leave it open"
    assert text.count("give the input") == 1 and f"{reason}; 2 more like this" in text


def stayed(mod):
    """Return each op that stayed on TVM, with the shape of its result, and why."""
    nodes = dnnl.offload_report(mod).nodes
    return {(node.name, node.shape): node.reason for node in nodes if node.kind == "tvm"}


class TestEachOpHasItsOwnReason:
    """Two calls of one op stay for different reasons."""

    SMALL = var("a", 2, 4)

    def test_two_regions_that_are_too_small(self):
        reasons = stayed(partition(module(relu(self.SMALL), relu(X))))
        assert reasons == {("nn.relu", "2x4"): light(8), ("nn.relu", "1x8x6x6"): light(288)}

    def test_a_view_left_out_and_a_region_of_views(self):
        y = conv(X)
        alone, edge = relay.reshape(self.SMALL, (8,)), relay.reshape(y, (8, 36))
        assert stayed(partition(module(y, alone, edge))) == {
            ("reshape", "8x36"): "left out: a view at the edge of a partition",
            ("reshape", "8"): "pruned: it only moves data",
        }

    def test_what_was_fused_and_went_back(self):
        pooled = relay.nn.max_pool2d(X, (2, 2), (2, 2))
        reasons = stayed(partition(module(relu(self.SMALL), relu(pooled))))
        assert reasons == {
            ("nn.relu", "2x4"): light(8),
            ("nn.max_pool2d", "1x8x3x3"): light(72),
            ("nn.relu", "1x8x3x3"): light(72),
        }

    def test_two_functions(self):
        mod = module(relu(self.SMALL))
        mod["another"] = relay.Function([X], relu(X))
        reasons = stayed(partition(mod))
        assert reasons == {("nn.relu", "2x4"): light(8), ("nn.relu", "1x8x6x6"): light(288)}

    def test_text_and_passes(self):
        mod = partition(module(relu(self.SMALL), relu(X), conv(X)))
        want = stayed(mod)
        passes = [relay.transform.ToANormalForm(), relay.transform.ToGraphNormalForm()]
        assert stayed(tvm.transform.Sequential(passes)(mod)) == want
        assert stayed(tvm.ir.load_json(tvm.ir.save_json(mod))) == want

    def test_a_sum_that_the_partitioner_simplifies(self):
        """What it makes of x + x is other ops; those of the rest keep their reasons."""
        y = atan(conv(X))
        reasons = stayed(partition(module(y + y, relu(conv(X) + atan(y)), relu(self.SMALL))))
        assert reasons[("nn.relu", "2x4")] == light(8)

    def test_a_module_that_was_changed_since(self):
        """The report is of what was decided; nobody guesses which op was which."""
        mod = partition(module(relu(self.SMALL), atan(relu(X)), conv(X)))
        want = dnnl.offload_report(mod).to_json()
        body = relay.Tuple([relu(var("b", 3)), *mod["main"].body.fields[::-1]])
        mod["main"] = relay.Function(relay.analysis.free_vars(body), body)
        assert dnnl.offload_report(mod).to_json() == want


def test_partitioning_twice_counts_once():
    once = partition(network())
    want = dnnl.offload_report(once)
    again = dnnl.offload_report(partition(once))
    assert (again.folded, again.reasons) == (want.folded, want.reasons)


def test_record_survives_passes_and_text():
    mod = partition(network(), exclude=["add"])
    want = dnnl.offload_report(mod).to_dict()
    assert want["ops"]["add"]["reasons"] == {"excluded by option": 2}
    passes = [relay.transform.InferType(), relay.transform.ToBasicBlockNormalForm()]
    assert dnnl.offload_report(tvm.transform.Sequential(passes)(mod)).to_dict() == want
    assert dnnl.offload_report(tvm.ir.load_json(tvm.ir.save_json(mod))).to_dict() == want


def test_to_dict_is_plain():
    fields = dnnl.offload_report(partition(network())).to_dict()
    assert json.loads(json.dumps(fields)) == fields
    assert fields["ops"]["nn.relu"] == {
        "ops": 2,
        "calls": 2,
        "offloaded": 1,
        "reasons": {light(288): 1},
    }
    assert set(fields) == {
        "total",
        "offloaded",
        "partitions",
        "ops",
        "composites",
        "in_8_bits",
        "in_float32",
        "folded",
        "failures",
        "unrolled",
        "verified",
    }


def test_text():
    y = relu(conv(X) + const(8, 1, 1))
    mod = partition(module(relay.sinh(y), relu(X), relu(var("i", 2, dtype="int32"))))
    assert str(dnnl.offload_report(mod)) == "\n".join(
        [
            "op         count  oneDNN  why the others stayed on TVM",
            "-" * 95,
            f"nn.relu        3       1  1 x {light(288)}",
            "                          1 x data is int32, not float32, bfloat16 or float16",
            "add            1       1",
            "nn.conv2d      1       1",
            "sinh           1       0  1 x no rule for this op",
            "-" * 95,
            "total          6       3  in 1 partition",
            "composites: 1 x dnnl.conv2d_bias_relu",
        ]
    )


def test_text_of_nothing():
    text = str(dnnl.offload_report(module(X)))
    assert text.splitlines()[-1] == "total      0       0  in 0 partitions"


@pytest.mark.parametrize("name", ["mobilenet", "resnet", "vgg"])
def test_convolutional_network(name):
    """Every conv2d, batch_norm, relu and dense is on oneDNN."""
    mod, params = getattr(networks, name).get_workload(1)
    report = dnnl.offload_report(partition(mod, params))
    for op in ("nn.conv2d", "nn.batch_norm", "nn.relu", "nn.dense"):
        assert report.ops.get(op, 0) == report.offloaded_ops.get(op, 0), report.reasons
    assert report.offloaded_ops["nn.conv2d"] >= 8
    assert set(report.reasons) <= {
        "nn.softmax",
        "nn.global_avg_pool2d",
        "nn.max_pool2d",
    }


def test_wrong_module():
    with pytest.raises(TypeError, match="mod must be a tvm.IRModule, not Call"):
        dnnl.offload_report(relu(X))


class TestAvailability:
    """Whether there is a code generator does not matter to the policy."""

    def test_available_is_a_bool(self):
        present = tvm.get_global_func("relay.ext.dnnl", allow_missing=True) is not None
        assert dnnl.is_dnnl_available() is present

    def test_version(self):
        if tvm.get_global_func("runtime.contrib.dnnl.version", allow_missing=True) is None:
            with pytest.raises(RuntimeError, match="no DNNL runtime; build it with USE_DNNL_CODE"):
                dnnl.dnnl_version()
        else:
            assert [part.isdigit() for part in dnnl.dnnl_version().split(".")] == [True] * 3

    def test_missing(self, monkeypatch):
        monkeypatch.setattr(tvm, "get_global_func", lambda name, allow_missing=False: None)
        assert not dnnl.is_dnnl_available()
        with pytest.raises(RuntimeError, match="USE_DNNL_CODEGEN"):
            dnnl.dnnl_version()

    def test_public_names(self):
        assert set(dnnl.__all__) <= set(dir(relay.op.contrib))


DATA = Quantization(0.02, 131, "uint8")
BITS, SCALES = Quantization(0.01, 0, "int8"), np.linspace(0.01, 0.02, 8).astype("float32")
CHANNELS = Quantization(SCALES, 0, "int8", 0)


def quantized_conv(weight):
    data = DATA.dequantize(DATA.var("x", 1, 4, 6, 6))
    return relay.nn.conv2d(data, weight, kernel_size=(3, 3), channels=8)


def quantized_dense(weight):
    return relay.nn.dense(DATA.dequantize(DATA.var("x", 5, 16)), weight)


def scaled(*shape):
    """A constant weight of a scale that is computed."""
    bits = relay.const(BITS.values(*shape))
    return qnn.dequantize(bits, relay.var("scale", shape=(shape[0],)), relay.const(0), 0)


# By name: an op, and why it does not read its weight in 8 bits.
VARYING = {
    "conv2d": (
        quantized_conv(BITS.dequantize(BITS.var("w", 8, 4, 3, 3))),
        "the weight is not constant",
    ),
    "conv2d-scale": (quantized_conv(scaled(8, 4, 3, 3)), "the scale of the weight is not constant"),
    "dense-channels": (
        quantized_dense(CHANNELS.dequantize(CHANNELS.var("w", 8, 16))),
        "the weight is not constant, and there are several scales",
    ),
    # A matmul reads such a weight in 8 bits.
    "dense": (quantized_dense(BITS.dequantize(BITS.var("w", 8, 16))), None),
}


@pytest.mark.parametrize("name", VARYING)
def test_weights_that_are_not_constant(name):
    expr, why = VARYING[name]
    report = dnnl.offload_report(partition(module(expr), prune=False))
    text = f"{expr.op.name} between 8-bit tensors: {why}"
    assert report.in_float32 == ({text: 1} if why else {})
    assert sum(report.in_8_bits.values()) == (why is None)


def test_all_quantized_ops_that_stay():
    """Not only those that quantize."""
    x = var("x", 4, 8)
    y = qnn.add(
        DATA.quantize(x),
        DATA.var("y", 4, 8),
        *(DATA.scale_expr, DATA.zero_expr) * 2,
        DATA.scale_expr,
        DATA.zero_expr,
    )
    mod = module(DATA.dequantize(y), relay.nn.softmax(var("z", 64, 256)))
    report = dnnl.offload_report(partition(mod, exclude=["qnn.add", "qnn.quantize"], prune=False))
    assert "quantized ops that stay on TVM: 1 x qnn.add, 1 x qnn.quantize. Others" in str(report)
    assert "docs/int8.md" in str(report)
    assert "quantized ops" not in str(dnnl.offload_report(mod)), "not partitioned"
