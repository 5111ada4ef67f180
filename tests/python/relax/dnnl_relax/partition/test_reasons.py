# SPDX-License-Identifier: Apache-2.0
"""Partitions of Relax modules: reasons, reports and options."""

import numpy as np
import pytest
import tvm
import tvm_dnnl
from tvm import relax
from tvm.contrib.onednn.failures import PartitionWarning
from tvm.contrib.onednn.rewrites import pipeline as rewrites
from tvm.relax import op
from tvm.script import ir_module
from tvm.script import relax as R
from tvm_dnnl._dnnl import pipeline

from dnnl_relax.modules import (
    X3,
    X4,
    check,
    compiled,
    composites,
    const,
    conv,
    conv_bias_relu,
    module,
    partitions,
    rand,
    residual,
    run,
    var,
)

# What stays on TVM, and why.
REFUSED = {
    "axis": (
        lambda b, x: op.nn.layer_norm(x, const(2, 5), const(2, 5), axes=[0, 1]),
        [X3],
        "layer_norm",
        "axes=[0, 1] are not the last axes in order",
    ),
    "dtype": (lambda b, x: op.nn.relu(x), [var("x", 4, 8, dtype="float64")], "nn.relu", "float64"),
    "virtual-op": (
        lambda b, x: op.nn.gelu(x),
        [var("x", 256, 256, dtype="float64")],
        "nn.gelu",
        "float64",
    ),
    "tuple": (
        lambda b, x: op.split(x, [2, 3], axis=1),
        [var("x", 256, 8)],
        "split",
        "read as one tuple",
    ),
    "no-row": (lambda b, x: op.atan(x), [X3], "atan", "no rule for this op"),
    "training": (
        lambda b, x: relax.TupleGetItem(b.emit(op.nn.batch_norm(x, *[const(6)] * 4, 1)), 0),
        [X4],
        "batch_norm",
        "training=True",
    ),
    "window": (
        lambda b, x: op.nn.attention(x, x, x, window_size=2),
        [var("x", 1, 5, 2, 4)],
        "attention",
        "no sliding window",
    ),
    "many-indices": (
        lambda b, x: op.take(x, relax.const(np.array([0, 1, 7], "int64")), axis=1),
        [X3],
        "take",
        "index 7 may be out of range",
    ),
    "index": (
        lambda b, x: op.take(x, relax.const(np.array(-1, "int64")), axis=1, mode="clip"),
        [X3],
        "take",
        "index -1 may be out of range",
    ),
    "small": (lambda b, x: op.nn.relu(x), [X3], "nn.relu", "too small to be faster"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_stays_has_a_reason(case):
    build, params, name, reason = REFUSED[case]
    mod = tvm_dnnl.partition_for_dnnl(module(build, *params))
    assert partitions(mod) == 0
    report = tvm_dnnl.offload_report(mod)
    name = name if name in report.ops else f"nn.{name}"
    assert report.offloaded == 0 and report.ops[name] == 1
    assert reason in "".join(report.reasons[name])


def test_partitioned_twice():
    """What the first time left gets names of its own."""
    mod = tvm_dnnl.partition_for_dnnl(module(_two_convs, X4), exclude=["nn.avg_pool2d"])
    assert partitions(mod) == 2
    again = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert partitions(again) == 3
    relax.analysis.well_formed(mod)
    relax.analysis.well_formed(again)
    x = rand(2, 6, 9, 9)
    (one,), (other,) = run(compiled(again), x), run(module(_two_convs, X4), x)
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_passes_of_whole_modules_see_no_composites(monkeypatch):
    """TVM's elimination of dead code takes time that is quadratic in them."""
    seen, eliminate = [], relax.transform.DeadCodeElimination

    def spied(names):
        def run_pass(mod):
            seen.append(mod)
            return eliminate(names)(mod)

        return run_pass

    monkeypatch.setattr(relax.transform, "DeadCodeElimination", spied)
    mod = module(_two_convs, X4).with_attr("owner", "someone")
    mod = tvm_dnnl.partition_for_dnnl(mod, exclude=["nn.avg_pool2d"])
    assert [(partitions(each), len(each.functions)) for each in seen] == [(0, 3)]
    assert partitions(mod) == 2 and mod.attrs["owner"] == "someone"


def _two_convs(builder, x):
    y = builder.emit(op.nn.avg_pool2d(conv(builder, x, channels=6), (3, 3), padding=(1, 1)))
    # A tuple that has a variable.
    both = builder.emit(relax.Tuple([y, const(2, 6, 9, 9)]))
    return conv(builder, builder.emit(op.concat(both, axis=1)))


def test_params_of_any_function():
    """As `nn.Module.export_tvm` makes them: the function is not main."""
    mod = module(lambda b, x, w: op.matmul(x, w), X3, var("w", 8, 3))
    mod = tvm.IRModule({"forward": mod["main"].with_attr("global_symbol", "forward")})
    weight = tvm.runtime.tensor(rand(8, 3))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, {"w": weight, "other": weight})
    assert composites(partitioned) == {"dnnl.dense": 1}
    assert [param.name for param in partitioned["forward"].params] == ["x"]


def test_report():
    """The report has the module's ops, the composites and what each reads."""
    mod = module(residual, X4)
    report = tvm_dnnl.offload_report(tvm_dnnl.partition_for_dnnl(mod))
    assert (report.offloaded, report.total, report.partitions) == (4, 4, 1)
    assert report.composites == {"dnnl.conv2d_bias_sum_relu": 1}
    assert [node.kind for node in report.nodes] == ["input", "dnnl", "output"]
    assert report.nodes[1].ops == ["nn.conv2d", "add", "add", "nn.relu"]
    before = tvm_dnnl.offload_report(mod)
    assert (before.offloaded, before.total) == (0, 4)
    assert "not partitioned" in str(before)


def test_options():
    """Options that make no sense name themselves; those that do show."""
    mod = module(conv_bias_relu, X4)
    with pytest.raises(ValueError, match="nn.conv2e"):
        tvm_dnnl.partition_for_dnnl(mod, exclude=["nn.conv2e"])
    with pytest.raises(TypeError, match="IRModule"):
        tvm_dnnl.partition_for_dnnl(mod["main"])
    with pytest.raises(TypeError, match="IRModule"):
        tvm_dnnl.offload_report(mod["main"])
    for name in ("relax.add", "add"):
        report = tvm_dnnl.offload_report(tvm_dnnl.partition_for_dnnl(mod, exclude=[name]))
        assert report.reasons["add"] == {"excluded by option": 1}
    kept = tvm_dnnl.partition_for_dnnl(mod, exclude=["nn.relu"])
    assert composites(kept) == {"dnnl.conv2d_bias": 1}
    (code,) = compiled(tvm_dnnl.partition_for_dnnl(mod, num_threads=1)).attrs["external_mods"]
    symbol = str(code["get_symbol"]())
    assert symbol == "default_dnnl_main_0"


def test_shared_operand_of_two_partitions():
    """What a composite has a copy of stays where others read it too."""

    def build(builder, x):
        scale, zero = relax.const(0.05, "float32"), relax.const(3, "int8")
        y = builder.emit(op.quantize(x, scale, zero, axis=1, out_dtype="int8"))
        y = builder.emit(op.dequantize(y, scale, zero, axis=1))
        weight = relax.const(np.random.default_rng(0).integers(-9, 9, (6, 6, 1, 1)).astype("int8"))
        weight = builder.emit(
            op.dequantize(
                weight, relax.const(rand(6) ** 2 + 0.1), relax.const(np.zeros(6, "int8")), 0
            )
        )
        z = builder.emit(op.nn.conv2d(y, weight))
        return builder.emit(op.add(z, builder.emit(op.atan(y))))

    # The largest value is near 40, and both sum products of small integers.
    check(
        module(build, X4),
        {"dnnl.quantize": 1, "dnnl.dequantize": 1, "dnnl.qnn.conv2d_sum": 1},
        rand(2, 6, 9, 9),
        tolerance=1e-4,
    )


def test_weight_that_stays():
    """A matmul has the weight of a dense on oneDNN, and its own on TVM."""
    mod = module(lambda b, x: op.matmul(x, const(8, 3)), X3)
    check(mod, {"dnnl.dense": 1}, rand(2, 5, 8))
    stayed = tvm_dnnl.partition_for_dnnl(mod, exclude=["matmul"])
    report = tvm_dnnl.offload_report(stayed)
    assert report.ops == {"matmul": 1}, "the weight is transposed at every run"


def test_operand_that_stays_too():
    """A dequantize that a composite does as it reads stays for TVM's ops."""

    def build(builder, x):
        zero = relax.const(3, "uint8")
        y = builder.emit(op.dequantize(x, relax.const(0.05, "float32"), zero, axis=1))
        weight = relax.const(np.random.default_rng(0).integers(-9, 9, (6, 6, 1, 1)).astype("int8"))
        scale, zero = relax.const(rand(6) ** 2 + 0.1), relax.const(np.zeros(6, "int8"))
        weight = builder.emit(op.dequantize(weight, scale, zero, axis=0))
        return relax.Tuple([builder.emit(op.nn.conv2d(y, weight)), builder.emit(op.atan(y))])

    x = np.random.default_rng(1).integers(0, 9, (2, 6, 9, 9)).astype("uint8")
    mod = module(build, var("x", 2, 6, 9, 9, dtype="uint8"))
    partitioned = check(mod, {"dnnl.qnn.conv2d": 1}, x, prune=True)
    report = tvm_dnnl.offload_report(partitioned)
    assert report.reasons["dequantize"].total() == 1


def test_report_of_a_quantize_that_stays():
    def build(builder, x):
        scale, zero = relax.const(0.05, "float32"), relax.const(3, "int8")
        return op.quantize(builder.emit(op.tanh(x)), scale, zero, axis=1, out_dtype="int8")

    partitioned = tvm_dnnl.partition_for_dnnl(module(build, X3), prune=False, exclude=["quantize"])
    text = str(tvm_dnnl.offload_report(partitioned))
    assert "quantized ops that stay on TVM: 1 x quantize. Others" in text


def test_report_of_a_weight_in_float32():
    """Of a weight of groups that int8 has no room for, less its zero point."""
    values = np.random.default_rng(0).integers(1, 255, (6, 3, 1, 1), endpoint=True)

    def build(builder, x):
        scale, zero = relax.const(0.05, "float32"), relax.const(3, "uint8")
        y = builder.emit(op.dequantize(x, scale, zero, axis=1))
        weight, zero = relax.const(values.astype("uint8")), relax.const(100, "uint8")
        weight = builder.emit(op.dequantize(weight, scale, zero, axis=0))
        return op.nn.conv2d(y, weight, groups=2)

    x = np.random.default_rng(1).integers(0, 9, (2, 6, 9, 9)).astype("uint8")
    mod = module(build, var("x", 2, 6, 9, 9, dtype="uint8"))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert composites(partitioned) == {"dnnl.dequantize": 1, "dnnl.conv2d": 1}
    text = "nn.conv2d between 8-bit tensors: the weight minus its zero point does not fit into int8"
    assert tvm_dnnl.offload_report(partitioned).in_float32 == {text: 1}
    np.testing.assert_allclose(
        run(compiled(partitioned), x)[0], run(compiled(mod), x)[0], rtol=1e-5, atol=1e-5
    )


@ir_module
class Branches:
    """Two branches between ops that oneDNN runs, of which it runs none."""

    @R.function
    def main(x: R.Tensor((2, 8), "float32"), is_first: R.Tensor((), "bool")) -> R.Tensor(
        (2, 8), "float32"
    ):
        y = R.tanh(x)
        if is_first:
            z = R.add(R.nn.relu(y), y)
        else:
            z = R.exp(y)
        return R.sigmoid(z)


@pytest.mark.parametrize("is_first", [True, False])
def test_ops_in_branches_are_counted(is_first):
    partitioned = check(
        Branches, {"dnnl.tanh": 1, "dnnl.sigmoid": 1}, rand(2, 8), np.array(is_first)
    )
    report = tvm_dnnl.offload_report(partitioned)
    assert (report.total, report.offloaded) == (5, 2)
    assert report.reasons == {
        name: {"in a branch of an if": 1} for name in ("add", "exp", "nn.relu")
    }
    (node,) = [node for node in report.nodes if node.name == "if"]
    names = [report.nodes[i].name for i in node.inputs]
    assert sorted(names) == ["dnnl.tanh", "is_first"] and len(node.ops) == 3
    assert "if" in report.to_json()


def test_ops_of_a_function_inside_another_are_counted():
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 8), "float32"))
    y = relax.Var("y", x.ty)
    inner = relax.Function([y], relax.SeqExpr([], op.exp(y)), x.ty)
    with builder.function("main", [x]):
        called = builder.emit(relax.Call(builder.emit(inner), [x]))
        builder.emit_func_output(builder.emit(op.nn.relu(called)))
    report = tvm_dnnl.offload_report(tvm_dnnl.partition_for_dnnl(builder.get(), prune=False))
    assert report.reasons == {"exp": {"in a function inside another": 1}}
    assert (report.total, report.offloaded) == (2, 1)


def _failing(*args, **kwargs):
    raise tvm.error.InternalError("Traceback\nno way")


@pytest.mark.parametrize("step", ["partition", "decompose", "fold_scale", "fuse_formulas"])
def test_a_step_that_fails_is_a_warning(step, monkeypatch):
    """A model compiles, and computes the same, even when a step cannot cope with it."""
    _failing.__name__ = step
    if step == "partition":
        monkeypatch.setattr(pipeline, "FunctionWriter", _failing)
    else:
        monkeypatch.setattr(rewrites, step, _failing)
    mod = module(conv_bias_relu, X4)
    with pytest.warns(PartitionWarning, match=f"function main: {step} failed: no way"):
        partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False, strict=False)
    report = tvm_dnnl.offload_report(partitioned)
    assert report.failures == {"main": f"{step} failed: no way"}
    assert f"function main: {step} failed: no way" in str(report)
    # The other steps are done.
    assert partitions(partitioned) == (step != "partition")
    if step == "partition":
        assert report.reasons["nn.conv2d"] == {"partition failed: no way": 1}
    x = rand(2, 6, 9, 9)
    # Sums of the same products in another order.
    for one, other in zip(run(compiled(partitioned), x), run(mod, x)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
