# SPDX-License-Identifier: Apache-2.0

"""Which ops compute in bfloat16 or float16 where the option `precision` asks for it.

The CPU need not have these types: the partitions are looked at and computed in numpy, not run.
"""

import json
from collections import Counter

import numpy as np
import pytest
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.rewrites.reduced_calls import ReducedCalls
from tvm.relay.op.contrib._dnnl.ir.dataflow_graph import DataflowGraph
from tvm.relay.op.contrib._dnnl.ir.relay_view import callee_name
from tvm.testing import dnnl as testing

from dnnl_tests.graphs.evaluate import evaluate
from dnnl_tests.graphs.partitions import flattened
from dnnl_tests.marks import json_only, nightly_after, nightly_except
from dnnl_tests.models import onnx_networks
from dnnl_tests.partition.any_module import MODULES
from dnnl_tests.quantized import Quantization
from dnnl_tests.reference import rand
from dnnl_tests.relay import const, conv, module, partition, var

SHAPE = (1, 8, 6, 6)
X = var("x", *SHAPE)
REDUCED = ("bfloat16", "float16")
relu, atan = relay.nn.relu, relay.atan


@pytest.fixture(autouse=True)
def any_cpu(monkeypatch):
    """Pretend that the CPU has all types."""
    monkeypatch.setattr(cpu, "computes", lambda dtype: True)


def dense(x, units=8, seed=0, width=8):
    return relay.nn.dense(x, const(units, width, seed=seed))


def ops(mod):
    """Count (op or composite, type of its result) in the functions of a partitioned module."""
    counts = Counter()
    for func in mod.functions.values():
        graph = DataflowGraph(func.body)
        for name, expr in zip(map(callee_name, graph.nodes), graph.nodes):
            type_ = expr.checked_type
            if name:
                fields = type_.fields if isinstance(type_, relay.TupleType) else [type_]
                counts[name, str(fields[0].dtype)] += 1
    return counts


def calls(body):
    """Return the calls of composites."""
    graph = DataflowGraph(body)
    return [e for e in graph.nodes if isinstance(getattr(e, "op", None), relay.Function)]


def casts(mod):
    """Count the casts of a partitioned module by the type that they make."""
    return {dtype: count for (name, dtype), count in ops(mod).items() if name == "cast"}


def check(mod, precision, rtol=2e-2):
    """Partition, compare the numbers with those of float32, and return the module."""
    partitioned = partition(mod, precision=precision, prune=False)
    inputs = {p.name_hint: rand(*map(int, p.checked_type.shape)) for p in mod["main"].params}
    wide = partition(mod, prune=False)
    got, want = (evaluate(flattened(each), inputs) for each in (partitioned, wide))
    assert [value.dtype for value in got] == [value.dtype for value in want]
    difference = testing.difference(got, want).relative
    assert 1e-6 < difference < rtol
    return partitioned


def network(name, **sizes):
    """Return a small transformer as TVM imports it from ONNX."""
    model = getattr(onnx_networks, name)(**sizes)
    return relay.frontend.from_onnx(model, freeze_params=True)[0]


@pytest.fixture(scope="module")
def bert():
    return network("bert", layers=2, length=20, size=32, heads=4)


@pytest.fixture(scope="module")
def vit():
    return network("vit", layers=2, image=32, patch=8, size=32, heads=4, classes=10)


@pytest.mark.parametrize("precision", nightly_after(1, REDUCED))
def test_residuals_and_norms_of_bert(bert, precision):
    partitioned = check(bert, precision)
    wide = ops(partition(bert, prune=False))
    narrow = ops(partitioned)
    # All is fused as in float32.
    assert narrow["add", precision] == narrow["add", "float32"] == 0
    for name, dtype in wide:
        if dtype == "float32":
            assert narrow[name, precision] + narrow[name, "float32"] == wide[name, dtype]
    if precision == "bfloat16":
        # Normalizations read and write the residual stream, which stays in float32; matmuls read
        # it in bfloat16.
        assert narrow["dnnl.batch_matmul_bias_sum", "float32"] == 4
        assert narrow["nn.layer_norm", "float32"] == 5
        assert casts(partitioned) == {precision: 4}
    else:
        # The first normalization is of the input, the last one is the output.
        assert narrow["nn.layer_norm", "float32"] == 2
        assert casts(partitioned) == {precision: 1, "float32": 1}


@pytest.mark.parametrize("precision", nightly_after(1, reversed(REDUCED)))
def test_residuals_and_norms_of_vit(vit, precision):
    partitioned = check(vit, precision)
    wide = {name for name, dtype in ops(partitioned) if dtype == "float32"}
    if precision == "bfloat16":
        # A residual stream in float32; what each normalization writes is rounded for its readers.
        assert casts(partitioned) == {precision: 6}
        assert ops(partitioned)["dnnl.batch_matmul_bias_sum", "float32"] == 4
        assert ops(partitioned)["nn.layer_norm", "float32"] == 5
    else:
        # The last matmul writes float32.
        assert casts(partitioned) == {precision: 1}
        assert ops(partitioned)["nn.layer_norm", precision] == 5
        assert wide == {"dnnl.dense_bias"}


@pytest.mark.parametrize("batch", [1, 2])
def test_positional_embedding_begins_the_residual_stream(batch):
    """Its sum is an operand of the next one; that it is the same for each image changes nothing."""
    x = relay.reshape(conv(var("x", batch, 8, 6, 6)), (0, 0, 36))
    x = relay.transpose(x, (0, 2, 1)) + const(36, 8)
    normal = relay.nn.layer_norm(x, const(8), const(8))
    flat = relay.reshape(dense(relay.reshape(normal, (-1, 8))), (batch, 36, 8))
    partitioned = check(module(x + flat), "bfloat16")
    wide = {name for name, dtype in ops(partitioned) if dtype == "float32"}
    assert {"nn.conv2d", "add", "nn.layer_norm"} <= wide
    assert casts(partitioned) == {"bfloat16": 2}


def test_residual_sums_in_float32_are_more_accurate(monkeypatch):
    """Rounding the residual stream in each layer was most of bfloat16's error."""
    mod = network("bert", layers=3, length=16, size=64, heads=4)
    inputs = {p.name_hint: rand(*map(int, p.checked_type.shape)) for p in mod["main"].params}
    want = evaluate(flattened(partition(mod, prune=False)), inputs)

    def error():
        narrow = partition(mod, precision="bfloat16", prune=False)
        got = evaluate(flattened(narrow), inputs)
        return np.sqrt(np.mean(np.square(got[0].astype("float64") - want[0])))

    in_float32 = error()
    monkeypatch.setattr(ReducedCalls, "_is_residual_sum", lambda self, i: False)
    assert in_float32 < 0.8 * error()


@pytest.mark.parametrize("rows", [None, 1], ids=["open", "one"])
def test_float32_is_kept_for_any_number_of_rows(rows):
    """In the residual stream and in biases."""

    def types(rows):
        x = var("x", rows, 8)
        x = x + (dense(x, seed=1) + const(8))
        x = x + (dense(relay.nn.layer_norm(x, const(8), const(8)), seed=2) + const(8))
        mod = partition(module(dense(x, seed=3)), precision="bfloat16", prune=False)
        inner = [node.op for func in mod.functions.values() for node in calls(func.body)]
        read = [[str(param.checked_type.dtype) for param in func.params] for func in inner]
        return sorted(zip([func.attrs["Composite"] for func in inner], read)), ops(mod)

    assert types(rows) == types(4)
    assert types(rows)[1]["dnnl.dense_bias_sum", "float32"] == 1


def test_virtual_ops_stay_fused():
    gated = dense(var("x", 4, 8))
    mod = module(dense(gated * relay.sigmoid(gated), seed=1))
    assert dict(ops(check(mod, "bfloat16"))) == {
        ("cast", "bfloat16"): 1,
        ("dnnl.dense_swish", "bfloat16"): 1,
        ("nn.dense", "float32"): 1,
    }


def test_what_only_the_results_read_is_float32():
    """It is as precise as if nothing was reduced after the last convolution, without a cast."""
    partitioned = check(
        module(relay.nn.softmax(relu(conv(relu(conv(X)) + const(8, 1, 1))))), "bfloat16"
    )
    assert dict(ops(partitioned)) == {
        ("cast", "bfloat16"): 1,
        ("dnnl.conv2d_relu_add", "bfloat16"): 1,
        ("dnnl.conv2d_relu", "float32"): 1,
        ("nn.softmax", "float32"): 1,
    }


def test_last_residual_sums_are_float32():
    """The convolutions write float32, and one cast follows instead of another one."""
    block = relu(relay.nn.bias_add(conv(X), const(8)) + conv(X, seed=1))
    y = relu(relay.nn.bias_add(conv(relu(conv(block, seed=2)), seed=3), const(8)) + block)
    assert dict(ops(check(module(y), "bfloat16"))) == {
        ("cast", "bfloat16"): 2,
        ("nn.conv2d", "float32"): 1,
        ("dnnl.conv2d_bias_sum_relu", "float32"): 2,
        ("dnnl.conv2d_relu", "bfloat16"): 1,
    }


def test_what_only_reads_inputs_is_float32():
    partitioned = check(
        module(conv(relay.nn.max_pool2d(relay.tanh(X), (2, 2), (2, 2)))), "bfloat16"
    )
    assert ops(partitioned)["tanh", "float32"] == ops(partitioned)["nn.max_pool2d", "float32"] == 1


def test_what_stays_on_tvm_is_float32():
    partitioned = check(module(conv(atan(conv(X)))), "bfloat16")
    assert dict(ops(partitioned)) == {
        ("cast", "bfloat16"): 2,
        ("nn.conv2d", "float32"): 2,
        ("atan", "float32"): 1,
    }


def test_excluded_ops_stay_in_float32():
    mod = module(conv(relay.tanh(conv(X))))
    partitioned = partition(mod, precision="bfloat16", exclude=["tanh"], prune=False)
    assert ops(partitioned)["tanh", "float32"] == 1


def test_numbers_that_reach_no_product_stay():
    """Positions, for example, of which bfloat16 has no more than 256."""
    angle = relay.atan(var("positions", 1, 8, 6, 6) * relay.const(0.5))
    partitioned = check(module(conv(conv(X) + angle)), "bfloat16")
    assert ops(partitioned)["multiply", "float32"] == 1


def test_split_and_concatenate():
    left, right = relay.split(conv(X), 2, axis=1)
    mod = module(conv(relay.concatenate([relay.tanh(right), left], axis=1)))
    partitioned = check(mod, "bfloat16")
    assert ops(partitioned)["split", "bfloat16"] == ops(partitioned)["concatenate", "bfloat16"] == 1
    assert casts(partitioned) == {"bfloat16": 1}


def test_tuple_that_is_handed_on_as_a_whole():
    parts = relay.split(relay.tanh(conv(X)), 2, axis=1).astuple()
    check(module(conv(relay.concatenate(parts, axis=1))), "bfloat16")


@pytest.mark.parametrize("out_dtype", ["", "float32"])
def test_type_of_the_sums(out_dtype):
    partitioned = check(module(conv(conv(X, out_dtype=out_dtype), out_dtype=out_dtype)), "bfloat16")
    assert (
        ops(partitioned)["nn.conv2d", "bfloat16"] == ops(partitioned)["nn.conv2d", "float32"] == 1
    )


@pytest.mark.parametrize(
    "op, precision, is_reduced",
    [
        (lambda x: relay.exp(x), "bfloat16", True),
        (lambda x: relay.exp(x), "float16", False),
        (lambda x: relay.sum(x, axis=1, keepdims=True), "float16", False),
        (lambda x: relay.mean(x, axis=1, keepdims=True), "float16", True),
        # oneDNN's own constants: infinite, or zero.
        (lambda x: relay.maximum(x, relay.const(-3.4028235e38)), "bfloat16", False),
        (lambda x: relay.maximum(x, relay.const(-1e9)), "bfloat16", True),
        (lambda x: relay.maximum(x, relay.const(-1e9)), "float16", False),
        (lambda x: x / (relay.abs(x) + relay.const(1e-12)), "float16", False),
        (lambda x: x / (relay.abs(x) + relay.const(1e-12)), "bfloat16", True),
    ],
)
def test_range(op, precision, is_reduced):
    """float16 ends at 65504, and both types round the ends of float32 away."""
    x = dense(var("x", 4, 8))
    partitioned = check(module(dense(relay.tanh(op(x)) + relay.tanh(x), seed=1)), precision)
    name = op(x).op.name if op(x).op.name != "divide" else "add"
    kinds = {dtype for key, dtype in ops(partitioned) if name in key and "dense" not in key}
    assert (kinds == {precision}) == is_reduced, ops(partitioned)


BITS = Quantization(0.1, 0, "int8")


def test_quantized_ops_stay():
    """Between dequantize and quantize an op computes with integers."""
    weight = BITS.dequantize(BITS.values(8, 8, 3, 3))
    attrs = dict(kernel_size=(3, 3), channels=8, padding=(1, 1))
    y = relay.nn.conv2d(BITS.dequantize(BITS.var("x", *SHAPE)), weight, **attrs)
    y = relay.nn.conv2d(BITS.dequantize(BITS.quantize(y)), weight, **attrs)
    mod = module(conv(y, seed=2))
    before = partition(mod, prune=False)
    after = partition(mod, precision="bfloat16", prune=False)
    assert casts(after) == {"bfloat16": 1}
    assert sum(ops(after).values()) == sum(ops(before).values()) + 1


def test_matmul_of_one_operand_in_8_bits():
    """As of an attention in a model of which layers are quantized: it is of floats."""
    scores, values = relay.nn.softmax(var("x", 2, 8, 8)), BITS.dequantize(BITS.var("y", 2, 8, 8))
    mod = module(BITS.quantize(relay.nn.batch_matmul(scores, values)))
    partitioned = partition(mod, precision="bfloat16", prune=False)
    assert casts(partitioned) == {"bfloat16": 2}
    # What is quantized are the sums.
    assert ops(partitioned)["nn.batch_matmul", "float32"] == 1


@json_only
@pytest.mark.parametrize("precision", REDUCED)
def test_constants_of_post_ops_in_bfloat16_are_float32(precision):
    """As oneDNN computes post-ops in float32. A tensor as large as the result is rounded."""
    y = relay.sigmoid(relay.nn.bias_add(conv(X), const(8))) * relay.const(1.0038)
    y = relay.nn.prelu(relay.tanh(y + const(1, 8, 6, 6)) * const(8, 1, 1), const(8))
    mod = partition(module(conv(y, seed=1)), precision=precision, prune=False)
    (code,) = testing.dnnl_modules(testing.build(mod))
    nodes = json.loads(code.get_source("json"))["nodes"]
    (fused,) = (node for node in nodes if "root_op" in node["attrs"])
    read = [nodes[i]["attrs"]["dtype"][0] for i, *_ in fused["inputs"]]
    small = "float32" if precision == "bfloat16" else precision
    assert read == [precision, precision, small, small, precision, small, small]


@pytest.mark.parametrize("precision", REDUCED)
# The prelude takes 7 s of a CPU; `match`, `polymorphic` and `loop` have what it consists of.
@pytest.mark.parametrize("name", nightly_except({*MODULES} - {"prelude"}, MODULES))
def test_any_module(name, precision):
    build, _ = MODULES[name]
    mod = relay.transform.InferType()(build())
    partitioned = partition(mod, precision=precision, prune=False)
    for var_, func in mod.functions.items():
        if isinstance(func, relay.Function) and "Compiler" not in (func.attrs or {}):
            assert partitioned[var_].checked_type == func.checked_type


def test_model_of_reduced_precision_stays():
    x = relay.var("x", shape=(4, 8), dtype="float16")
    mod = module(relay.nn.dense(x, const(3, 8, dtype="float16")))
    assert not casts(partition(mod, precision="bfloat16", prune=False))
