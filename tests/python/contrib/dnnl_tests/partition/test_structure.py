# SPDX-License-Identifier: Apache-2.0
"""Any legal Relay module can be partitioned, whatever it consists of, and computes the same."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import failures
from tvm.contrib.onednn.rewrites import pipeline as rewrites
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib._dnnl import pipeline
from tvm.relay.op.contrib._dnnl.ir.dataflow_graph import Rewritten
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.partition.any_module import MODULES, SHAPE, X, atan, batch_norm_tuple, func, relu
from dnnl_tests.pretended_cpu import every_dtype
from dnnl_tests.reference import rand
from dnnl_tests.relay import (
    check_complete,
    compiler_of,
    const,
    conv,
    module,
    partition,
    var,
    without_dnnl,
)


@pytest.mark.parametrize("prune", [False, True], ids=["all", "prune"])
@pytest.mark.parametrize("name", MODULES)
def test_any_module(name, prune):
    build, count = MODULES[name]
    mod = build()
    before = mod.astext()
    partitioned = partition(mod, prune=prune)
    offloaded = dnnl.offload_report(partitioned).offloaded
    assert offloaded <= count if prune else offloaded == count
    assert mod.astext() == before, "the caller's module was changed"


def interpret(mod, *args):
    """Run a module in TVM's interpreter, which knows all of Relay; return its tensors, flat."""
    executor = relay.create_executor("debug", mod=mod, target=testing.host_target())

    def flatten(value):
        if isinstance(value, tvm.nd.NDArray):
            return [value.numpy()]
        return [leaf for field in value for leaf in flatten(field)]

    return flatten(executor.evaluate()(*args))


# The interpreter takes no TIR, and takes long for the prelude's functions.
@pytest.mark.parametrize("name", [n for n in MODULES if n not in ("tir-function", "prelude")])
def test_any_module_computes_the_same(name):
    mod = MODULES[name][0]()
    plain = without_dnnl(partition(mod, prune=False))
    args = [tvm.nd.array(rand(*SHAPE))]
    choices = {"branches": (True, False), "loop": (0, 2)}.get(name, (None,))
    for choice in choices:
        dtype = "bool" if name == "branches" else "int32"
        more = [] if choice is None else [tvm.nd.array(np.array(choice, dtype))]
        if name == "tuple-parameter":
            args = [tuple(args * 2)]
        testing.assert_close(interpret(plain, *args, *more), interpret(mod, *args, *more))


def calls_of(mod, name="main"):
    """Return the names of the global functions that a function calls, in order."""
    names = []

    def visit(expr):
        if isinstance(expr, relay.Call) and isinstance(expr.op, relay.GlobalVar):
            names.append(expr.op.name_hint)

    relay.analysis.post_order_visit(mod[name], visit)
    return names


class TestRegions:
    """Which calls share a partition."""

    def partitions(self, *outputs):
        partitioned = partition(module(*outputs), prune=False)
        return [len(ops) for ops in map(self.ops, self.functions(partitioned))]

    def functions(self, mod):
        return [mod[name] for name in calls_of(mod)]

    def ops(self, function):
        names = []
        relay.analysis.post_order_visit(
            function,
            lambda expr: (
                names.append(expr.op.name)
                if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op)
                else None
            ),
        )
        return names

    def test_chain(self):
        assert self.partitions(relu(conv(conv(X)))) == [3]

    def test_branches_that_meet(self):
        y = conv(X)
        assert self.partitions(relay.add(relu(y), conv(y))) == [4]

    def test_foreign_op_cuts(self):
        assert self.partitions(conv(atan(conv(X)))) == [1, 1]

    def test_cycle_is_not_made(self):
        """The sum needs atan, which needs the first convolution: it cannot be in one call."""
        y = conv(X)
        assert sorted(self.partitions(relay.add(y, atan(y)))) == [1, 1]

    def test_cycle_through_another_partition_is_not_made(self):
        y = conv(X)
        z = conv(atan(y), seed=1)
        assert sorted(self.partitions(relay.add(z, y))) == [1, 2]

    def test_side_branch_joins(self):
        """A foreign op that only takes from the partition does not cut it."""
        y = conv(X)
        assert self.partitions(conv(y), atan(y)) == [2]

    def test_branch_is_not_taken_early(self):
        """What only one branch of an If computes stays in that branch."""
        cond, z = var("c", dtype="bool"), conv(X)
        mod = partition(func(relay.If(cond, conv(z), relu(conv(z, seed=1))), X, cond))
        branch = mod["main"].body
        assert dnnl.offload_report(mod).partitions == 3
        for call in (branch.true_branch, branch.false_branch):
            assert isinstance(call.op, relay.GlobalVar)
            # The convolution that both branches use is not in either.
            (shared,) = call.args
            assert shared.same_as(branch.true_branch.args[0])
            assert isinstance(shared.op, relay.GlobalVar)

    def test_shared_input_is_one_parameter(self):
        mod = partition(module(relay.add(conv(X), X)))
        assert [len(function.params) for function in self.functions(mod)] == [1]

    def test_outputs_are_flat(self):
        mod = partition(batch_norm_tuple())
        (function,) = self.functions(mod)
        assert len(function.checked_type.ret_type.fields) == 3

    def test_deep_network(self):
        """No recursion in Python."""
        y = X
        for seed in range(700):
            y = relu(y) if seed % 50 else atan(y)
        report = dnnl.offload_report(partition(module(y), prune=False))
        assert (report.total, report.partitions) == (700, 14)


class TestNames:
    def test_mod_name(self):
        mod = partition(module(conv(atan(conv(X)))), mod_name="my-net")
        assert calls_of(mod) == ["tvmgen_my_net_dnnl_main_0", "tvmgen_my_net_dnnl_main_1"]
        for name in calls_of(mod):
            assert str(mod[name].attrs["global_symbol"]) == name
            assert compiler_of(mod[name]) == "dnnl"

    def test_partitioned_twice(self):
        mod = module(relay.nn.dense(relay.nn.batch_flatten(conv(X)), const(4, 288)))
        once = partition(mod, exclude=["nn.dense"])
        twice = partition(once)
        assert calls_of(once) == ["tvmgen_default_dnnl_main_0"]
        assert calls_of(twice) == ["tvmgen_default_dnnl_main_0", "tvmgen_default_dnnl_main_1"]
        assert tvm.ir.structural_equal(partition(twice), twice)

    def test_name_that_is_taken(self):
        mod = module(relu(conv(X)))
        mod["tvmgen_default_dnnl_main_0"] = relay.Function([X], atan(X))
        mod = partition(mod)
        assert calls_of(mod) == ["tvmgen_default_dnnl_main_1"]


class TestOtherCompilers:
    def mod(self):
        """Return a module that another compiler took atan of."""
        tvm.ir.Op.get("atan").reset_attr("target.other")
        tvm.ir.register_op_attr("atan", "target.other", lambda expr: True)
        passes = [
            relay.transform.AnnotateTarget("other"),
            relay.transform.MergeCompilerRegions(),
            relay.transform.PartitionGraph("elsewhere"),
        ]
        return tvm.transform.Sequential(passes)(module(conv(atan(relu(conv(X))))))

    def test_functions_are_not_touched(self):
        before = self.mod()
        after = partition(before)
        (name,) = (var.name_hint for var, f in before.functions.items() if compiler_of(f))
        assert tvm.ir.structural_equal(after[name], before[name])
        assert name in calls_of(after) and len(calls_of(after)) == 3
        report = dnnl.offload_report(after)
        assert report.reasons["atan"] == {"left to the compiler 'other'": 1}

    def test_annotated_function_is_left_alone(self):
        mod = relay.transform.AnnotateTarget("other")(self.mod())
        report = dnnl.offload_report(dnnl.partition_for_dnnl(mod))
        assert not report.offloaded
        assert report.failures == {"main": "left alone: annotated for another compiler"}

    def test_fused_function_is_left_alone(self):
        mod = relay.transform.FuseOps(2)(module(relu(conv(atan(conv(X))))))
        report = dnnl.offload_report(partition(mod))
        assert not report.offloaded
        assert report.reasons["nn.conv2d"] == {"in a function marked 'Primitive'": 2}


@pytest.mark.parametrize("step", ["fold_scale", "offload", "keep_calls_single"])
def test_step_that_fails_is_a_warning(step, monkeypatch):
    """A model must compile even when a step cannot cope with it."""

    def fail(function, rules):
        raise tvm.TVMError("Traceback\nno way")

    fail.__name__ = step
    monkeypatch.setattr(rewrites if hasattr(rewrites, step) else pipeline, step, fail)
    mod = module(relu(conv(X) + const(8, 1, 1)))
    with pytest.warns(failures.PartitionWarning, match=f"function main: {step} failed: no way"):
        partitioned = dnnl.partition_for_dnnl(mod, strict=False)
    check_complete(partitioned)
    report = dnnl.offload_report(partitioned)
    assert report.failures == {"main": f"{step} failed: no way"}
    assert f"function main: {step} failed: no way" in str(report)
    # The other steps are done.
    assert report.offloaded_ops.get("nn.conv2d", 0) == (step != "offload")
    if step == "offload":
        assert report.reasons["nn.conv2d"] == {"offload failed: no way": 1}


def open_model():
    """Return a module with reshapes to computed shapes, a take and a gelu."""
    data = relay.nn.relu(var("x", None, None, 8))
    sizes = relay.shape_of(data, "int64")
    heads = [relay.strided_slice(sizes, [0], [2]), relay.const([2, 4], "int64")]
    real = relay.reshape(data, relay.concatenate(heads, 0))
    real = relay.take(relay.transpose(real, (2, 0, 1, 3)), relay.const(1), axis=0)
    real = relay.nn.relu(real) * relay.const(1.0) / relay.const(2.0)
    cubed = real + relay.const(0.044715) * relay.power(real, relay.const(3.0))
    bent = relay.tanh(relay.const(0.79788456) * cubed)
    gelu = relay.const(0.5) * real * (relay.const(1.0) + bent)
    return module(relay.nn.dense(gelu, const(8, 4)) + const(8))


STEPS = [step.__name__ for step in pipeline._steps()]
REWRITES = [
    *["simplify", "read_dequantize", "fold_constants", "decompose", "canonicalize_dense_weights"],
    *["hoist_input_products", "read_qnn", "fold_pad", "fold_scale", "propagate_strides"],
    *["fuse_formulas", "reduce_precision"],
]


def partition_with(name, wrapper, monkeypatch):
    """Partition `open_model` with another function in the place of a step."""
    steps = rewrites if name in REWRITES else pipeline
    step = getattr(steps, name)
    other = wrapper(step)
    with monkeypatch.context() as patch:
        patch.setattr(steps, name, other)
        precision = "bfloat16" if name == "reduce_precision" else "float32"
        with every_dtype():
            return dnnl.partition_for_dnnl(
                open_model(), prune=False, precision=precision, strict=False
            )


@pytest.mark.parametrize("name", dict.fromkeys([*STEPS, *REWRITES]))
def test_step_that_fails_in_the_end_leaves_no_trace(name, monkeypatch):
    """Function and report are those of a pipeline without the step, or of none."""

    def failing(step):
        def fail(given, rules):
            step(given, rules)
            raise tvm.TVMError("no way")

        fail.__name__ = name
        return fail

    def skipping(step):
        return lambda given, rules: None if name in REWRITES else Rewritten(given.func)

    with pytest.warns(failures.PartitionWarning, match=f"{name} failed: no way"):
        partitioned = partition_with(name, failing, monkeypatch)
    check_complete(partitioned)
    report = dnnl.offload_report(partitioned).to_dict()
    assert report.pop("failures") == {"main": f"{name} failed: no way"}
    if name == "dynamic_again":
        assert tvm.ir.structural_equal(partitioned["main"], open_model()["main"])
        assert not report["offloaded"] and not report["folded"]
    else:
        without = partition_with(name, skipping, monkeypatch)
        assert tvm.ir.structural_equal(partitioned["main"], without["main"], True)
        wanted = dnnl.offload_report(without).to_dict()
        assert (report["folded"], report["offloaded"]) == (wanted["folded"], wanted["offloaded"])


def test_virtual_ops_of_a_function_that_is_left_alone(monkeypatch):
    """TVM cannot compile calls of composites, so none may be left."""

    def offload(function, rules):
        raise tvm.TVMError("no way")

    monkeypatch.setattr(pipeline, "offload", offload)
    y = conv(X)
    mod = module(y * relay.sigmoid(y))
    with pytest.warns(failures.PartitionWarning):
        partitioned = dnnl.partition_for_dnnl(mod, strict=False)
    check_complete(partitioned)
    x = {"x": rand(*SHAPE)}
    testing.assert_close(direct.run(partitioned, x), direct.run(mod, x), 1e-6)


class TestSumOfTheSame:
    """TVM turns x + x into 2 * x, and would make a second call of what computes x."""

    @pytest.mark.parametrize("executor", ["graph", "vm"])
    def test_bfloat16_behind_two_results(self, executor):
        y = relay.tanh(X)
        z = relay.cast(y, "bfloat16")
        mod = partition(module(relay.add(z, z), y), prune=False, exclude=["add"])
        assert len(calls_of(mod)) == 1
        testing.build(mod, executor=executor)

    def test_excluded_op(self):
        y = conv(X)
        mod = module(relay.add(y, y), atan(y))
        partitioned = partition(mod, exclude=["add"])
        assert len(calls_of(partitioned)) == 1
        x = {"x": rand(*SHAPE)}
        testing.assert_close(direct.run(partitioned, x), direct.run(mod, x))

    def test_nothing_to_simplify_is_left_as_it_is(self):
        mod = partition(module(atan(atan(conv(X)))))
        assert str(mod["main"].body).count("atan(") == 2
