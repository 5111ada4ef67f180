# SPDX-License-Identifier: Apache-2.0
"""The options of partition_for_dnnl: what is pruned, excluded, how precise; and wrong values."""

import os
import pathlib

import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.options import PRECISIONS
from tvm.contrib.onednn.partition.prune import LIGHT_ELEMENTS
from tvm.relay.op.contrib import dnnl

from dnnl_tests.reference import rand
from dnnl_tests.relay import assert_same_result, composites, const, conv, module, partition, var

SHAPE = (1, 8, 6, 6)
X = var("x", *SHAPE)
relu, atan = relay.nn.relu, relay.atan


class TestPrune:
    @pytest.mark.parametrize("op", [relu, lambda x: x + x, lambda x: x * const(1)])
    def test_lone_light_op_stays(self, op):
        report = dnnl.offload_report(partition(module(op(X))))
        assert report.offloaded == 0
        (reasons,) = report.reasons.values()
        text = f"cost of 288 elements, below {LIGHT_ELEMENTS}"
        assert reasons == {f"pruned: too small to be faster: {text}": 1}

    def test_kept_without_pruning(self):
        assert dnnl.offload_report(partition(module(relu(X)), prune=False)).offloaded == 1

    @pytest.mark.parametrize("elements, kept", [(LIGHT_ELEMENTS, 1), (LIGHT_ELEMENTS - 1, 0)])
    def test_number_of_elements_decides(self, elements, kept):
        report = dnnl.offload_report(partition(module(relu(var("x", elements)))))
        assert report.offloaded == kept

    @pytest.mark.parametrize("elements, kept", [(1024, 1), (1023, 0)])
    @pytest.mark.parametrize("op", [relay.tanh, relay.nn.softmax])
    def test_functions_count_more(self, op, elements, kept):
        report = dnnl.offload_report(partition(module(op(var("x", elements)))))
        assert report.offloaded == kept

    def test_function_of_several_ops_counts_more(self):
        data = var("x", 1024)
        report = dnnl.offload_report(partition(module(data * relay.sigmoid(data))))
        assert report.offloaded == 2

    @pytest.mark.parametrize(
        "op", [lambda x: relay.nn.max_pool2d(x, (2, 2)), lambda x: relay.sum(x, axis=3)]
    )
    def test_pools_and_reductions_gain_nothing(self, op):
        report = dnnl.offload_report(partition(module(op(var("x", 1, 64, 128, 128)))))
        assert report.offloaded == 0
        ((reason,),) = report.reasons.values()
        assert reason == "pruned: pools, reductions and resizes are no faster without a heavy op"

    @pytest.mark.parametrize("side, kept", [(64, 1), (63, 0)])
    def test_long_sums_are_more_accurate(self, side, kept):
        report = dnnl.offload_report(partition(module(relay.mean(var("x", 4, side, side), [1, 2]))))
        assert report.offloaded == kept

    def test_elements_of_all_ops_count(self):
        half = var("x", LIGHT_ELEMENTS // 2)
        assert dnnl.offload_report(partition(module(relu(half) + half))).offloaded == 2

    @pytest.mark.parametrize("heavy", [conv, lambda x: relay.nn.dense(x, const(2, 6))])
    def test_heavy_op_keeps_its_partition(self, heavy):
        assert dnnl.offload_report(partition(module(relu(heavy(X))))).offloaded == 2

    def test_light_ops_beside_a_heavy_one_stay(self):
        mod = partition(module(relu(atan(relu(conv(X))))))
        report = dnnl.offload_report(mod)
        assert report.offloaded_ops == {"nn.conv2d": 1, "nn.relu": 1}
        assert report.composites == {"dnnl.conv2d_relu": 1}

    def test_result_is_the_same(self):
        mod = module(relu(atan(relu(conv(X)))) + X)
        assert_same_result(mod, partition(mod), {"x": rand(*SHAPE)})


def layers():
    """Return a convolution with bias and relu, and one with relu."""
    return module(relu(conv(relu(conv(X) + const(8, 1, 1)), seed=1)))


# By name: what is excluded, the composites that are left and the calls that stay on TVM.
EXCLUDED = {
    "nothing": ((), {"dnnl.conv2d_bias_relu": 1, "dnnl.conv2d_relu": 1}, {}),
    "relu": (("nn.relu",), {"dnnl.conv2d_bias": 1}, {"nn.relu": 2}),
    "add": (("add",), {"dnnl.conv2d_relu": 1}, {"add": 1}),
    "conv2d": (["nn.conv2d"], {"dnnl.add_relu": 1}, {"nn.conv2d": 2}),
    "longest": (
        ("dnnl.conv2d_bias_relu",),
        {"dnnl.conv2d_bias": 1, "dnnl.conv2d_relu": 1},
        {},
    ),
    "two-composites": (
        {"dnnl.conv2d_bias_relu", "dnnl.conv2d_bias"},
        {"dnnl.conv2d_relu": 1, "dnnl.add_relu": 1},
        {},
    ),
    "op-without-rule": (("sinh",), {"dnnl.conv2d_bias_relu": 1, "dnnl.conv2d_relu": 1}, {}),
}


@pytest.mark.parametrize("name", EXCLUDED)
def test_exclude(name):
    exclude, expected, stayed = EXCLUDED[name]
    mod = partition(layers(), prune=False, exclude=exclude)
    report = dnnl.offload_report(mod)
    assert report.composites == expected
    assert report.reasons == {op: {"excluded by option": n} for op, n in stayed.items()}
    assert report.offloaded == report.total - sum(stayed.values())
    assert_same_result(layers(), mod, {"x": rand(*SHAPE)})


def test_exclude_is_of_one_run():
    partition(layers(), exclude=["nn.conv2d"])
    assert composites(layers()) == {"dnnl.conv2d_bias_relu": 1, "dnnl.conv2d_relu": 1}


OF_DNNL = "of relay.ext.dnnl.options"


class TestPassContext:
    def report(self, config, **options):
        with tvm.transform.PassContext(config={"relay.ext.dnnl.options": config}):
            return dnnl.offload_report(partition(module(relu(X)), **options))

    def test_is_used_where_no_argument_is_given(self):
        assert self.report({}).offloaded == 0
        assert self.report({"prune": False}).offloaded == 1

    def test_argument_wins(self):
        assert self.report({"prune": False}, prune=True).offloaded == 0

    def test_names(self):
        report = self.report({"prune": False, "exclude": "nn.relu, nn.dense"})
        assert report.reasons == {"nn.relu": {"excluded by option": 1}}

    def test_is_of_one_context(self):
        self.report({"prune": False})
        assert dnnl.offload_report(partition(module(relu(X)))).offloaded == 0

    def test_bias_order(self):
        config = {"keep_bias_order": False}
        with tvm.transform.PassContext(config={"relay.ext.dnnl.options": config}):
            assert composites(TestBiasOrder().mod()) == {"dnnl.conv2d_bias_sum_relu": 1}

    def test_exact_nan(self):
        assert self.report({"prune": False, "exact_nan": True}).ops["tanh"] == 1
        assert self.report({"prune": False}).ops["tanh"] == 0

    @pytest.mark.parametrize(
        "config, text",
        [
            ({"prun": True}, "does not have field 'prun', Possible fields"),
            ({"bf16": "maybe"}, f'bf16 {OF_DNNL} must be true or false, but is "maybe"'),
            ({"prune": 3.5}, f"prune {OF_DNNL} must be true or false, but is "),
            ({"prune": 3}, f"prune {OF_DNNL} must be true or false, but is "),
            ({"prune": None}, f"prune {OF_DNNL} must be true or false, but is "),
            ({"keep_bias_order": ["no"]}, f"keep_bias_order {OF_DNNL} must be true or false"),
            ({"precision": 16}, f"precision {OF_DNNL} must be a string, but is 16"),
            ({"precision": "half"}, "precision must be auto, .* or float16, but is 'half'"),
            ({"exclude": 5}, f"exclude {OF_DNNL} must be a string of names .*, but is "),
            ({"exclude": ["add"]}, f"exclude {OF_DNNL} must be a string of names .*, but is "),
            ({"num_threads": -2}, f"num_threads {OF_DNNL} must be a number .*, but is -2"),
            ({"num_threads": 4097}, f"num_threads {OF_DNNL} .* from 1 to 4096, .*, but is 4097"),
            ({"num_threads": 1.5}, f"num_threads {OF_DNNL} must be a number .*, but is "),
            ({"num_threads": None}, f"num_threads {OF_DNNL} must be a number .*, but is "),
            ({"num_threads": "two"}, f'num_threads {OF_DNNL} must be a number .*, but is "two"'),
            ({"exclude": None}, f"exclude {OF_DNNL} must be a string of names .*, but is "),
        ],
    )
    def test_wrong(self, config, text):
        with pytest.raises((AttributeError, ValueError), match=text):
            self.report(config)


class TestPrecision:
    """Which type is computed in; `rewrites/test_reduced_precision.py` tells by which ops."""

    @pytest.fixture(autouse=True)
    def cpu(self, monkeypatch):
        """Pretend that the CPU has all types, by instructions of its own."""
        self.set_cpu(monkeypatch, "bfloat16", "float16")

    def set_cpu(self, monkeypatch, *types, preferred=True):
        monkeypatch.setattr(cpu, "computes", lambda dtype: dtype in ("float32", *types))
        monkeypatch.setattr(cpu, "prefers", lambda dtype: preferred or dtype == "float32")

    def type_of(self, config=None, **options):
        """Partition a convolution, and return the type that it computes in."""
        with tvm.transform.PassContext(config={"relay.ext.dnnl.options": config or {}}):
            mod = dnnl.partition_for_dnnl(module(relu(conv(X))), **options)
        assert str(mod["main"].ret_type.dtype) == "float32"
        (func,) = (func for name, func in mod.functions.items() if name.name_hint != "main")
        (weight,) = (arg for arg in calls_in(func) if isinstance(arg, relay.Constant))
        return weight.data.dtype

    def test_default(self):
        assert self.type_of() == "float32"

    @pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
    def test_named(self, precision):
        assert self.type_of(precision=precision) == precision
        assert self.type_of({"precision": precision}) == precision

    @pytest.mark.parametrize("types", [(), ("bfloat16",)], ids=["none", "emulated"])
    def test_auto_is_float32_where_bfloat16_is_no_faster(self, types, monkeypatch):
        self.set_cpu(monkeypatch, *types, preferred=False)
        assert self.type_of(precision="auto") == "float32"

    def test_auto(self):
        assert self.type_of(precision="auto") == self.type_of({"precision": "auto"}) == "bfloat16"

    def test_argument_wins(self):
        assert self.type_of({"precision": "bfloat16"}, precision="float32") == "float32"

    @pytest.mark.parametrize("precision", ["bfloat16", "float16"])
    def test_cpu_without_it(self, precision, monkeypatch):
        self.set_cpu(monkeypatch, preferred=False)
        text = f"precision='{precision}': oneDNN does not support {precision} on this CPU"
        with pytest.raises(ValueError, match=text):
            self.type_of(precision=precision)
        with pytest.raises(ValueError, match=text):
            self.type_of({"precision": precision})

    @pytest.mark.parametrize("bf16, precision", [(True, "bfloat16"), (False, "float32")])
    def test_bf16_is_deprecated(self, bf16, precision):
        text = f'bf16 is deprecated; use precision="{precision}"'
        with pytest.warns(DeprecationWarning, match=text) as caught:
            assert self.type_of(bf16=bf16) == precision
        assert caught[0].filename == __file__
        with pytest.warns(DeprecationWarning, match=text):
            assert self.type_of({"precision": "float16"}, bf16=bf16) == precision

    def test_bf16_in_the_pass_context(self):
        with pytest.warns(DeprecationWarning, match="bf16 is deprecated"):
            assert self.type_of({"bf16": True}) == "bfloat16"
        with pytest.warns(DeprecationWarning, match="bf16 is deprecated"):
            assert self.type_of({"bf16": True}, precision="float32") == "float32"
        assert self.type_of({"bf16": False}) == "float32"

    @pytest.mark.parametrize(
        "options", [dict(precision="float16"), dict(precision="auto")], ids=str
    )
    def test_contradiction(self, options):
        with (
            pytest.warns(DeprecationWarning),
            pytest.raises(ValueError, match="bf16=True contradicts precision='(float16|auto)'"),
        ):
            self.type_of(bf16=True, **options)

    def test_the_cpu_is_asked(self, monkeypatch):
        monkeypatch.undo()
        words = pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii").split()
        # AVX512_BF16 alone takes longer than float32 on Intel's.
        wanted = {"amx_bf16"} | ({"avx512_bf16"} if "AuthenticAMD" in words else set())
        if "ONEDNN_MAX_CPU_ISA" not in os.environ:
            assert cpu.prefers("bfloat16") == bool(wanted.intersection(words))
        for dtype in cpu.REAL:
            assert not cpu.prefers(dtype) or cpu.computes(dtype)
        assert self.type_of(precision="auto") in PRECISIONS


def calls_in(func):
    """Return the arguments of the calls in a function."""
    args = []
    relay.analysis.post_order_visit(func.body, lambda e: args.extend(getattr(e, "args", [])))
    return args


class TestBiasOrder:
    """A bias after a residual."""

    def mod(self, bias=lambda y: y + const(8, 1, 1, seed=5)):
        return module(relu(bias(conv(X) + X)))

    def test_is_kept(self):
        assert composites(self.mod()) == {"dnnl.conv2d_sum_add_relu": 1}

    @pytest.mark.parametrize(
        "bias",
        [
            lambda y: y + const(8, 1, 1, seed=5),
            lambda y: relay.add(const(1, 8, 1, 1, seed=5), y),
            lambda y: relay.nn.bias_add(y, const(8, seed=5)),
        ],
        ids=["right", "left", "bias-add"],
    )
    def test_goes_first(self, bias):
        mod = self.mod(bias)
        assert composites(mod, keep_bias_order=False) == {"dnnl.conv2d_bias_sum_relu": 1}
        partitioned = partition(mod, keep_bias_order=False)
        assert_same_result(mod, partitioned, {"x": rand(*SHAPE)})

    def test_what_is_no_bias_stays(self):
        mod = self.mod(lambda y: y + const(6, seed=5))
        assert composites(mod, keep_bias_order=False) == composites(mod)


WRONG = {
    "precision": (dict(precision=16), TypeError, "precision must be a string, not 16"),
    "precision-name": (
        dict(precision="bf16"),
        ValueError,
        "precision must be auto, float32, bfloat16 or float16, but is 'bf16'",
    ),
    "bf16": (dict(bf16=1), TypeError, "bf16 must be True or False, not 1"),
    "keep_bias_order": (
        dict(keep_bias_order="yes"),
        TypeError,
        "keep_bias_order must be True or False, not 'yes'",
    ),
    "exact_nan": (dict(exact_nan=1), TypeError, "exact_nan must be True or False, not 1"),
    "mod": (dict(mod=relu(X)), TypeError, "mod must be a tvm.IRModule, not Call"),
    "mod_name": (dict(mod_name=3), TypeError, "mod_name must be a string, not 3"),
    "mod_name-empty": (dict(mod_name=""), ValueError, "mod_name must not be empty"),
    "num_threads": (
        dict(num_threads=2.0),
        TypeError,
        "num_threads must be an integer, not 2.0",
    ),
    "num_threads-negative": (
        dict(num_threads=-1),
        ValueError,
        "num_threads must be a number from 1 to 4096, or 0 .*, but is -1",
    ),
    "num_threads-many": (dict(num_threads=5000), ValueError, "num_threads must .*, but is 5000"),
    "prune": (dict(prune="no"), TypeError, "prune must be True or False, not 'no'"),
    "exclude-string": (
        dict(exclude="nn.relu"),
        TypeError,
        r"exclude must be a sequence of names; use exclude=\('nn.relu',\)",
    ),
    "exclude-number": (dict(exclude=1), TypeError, "exclude must be a sequence of names, not 1"),
    "exclude-numbers": (dict(exclude=[1]), TypeError, "exclude must contain names .*, not 1"),
    "exclude-typo": (
        dict(exclude=["nn.conv2"]),
        ValueError,
        "exclude has 'nn.conv2', which is not an op or composite; did you mean 'nn.conv2d'",
    ),
    "exclude-unknown-composite": (
        dict(exclude=["dnnl.conv2d_tanh"]),
        ValueError,
        "exclude has 'dnnl.conv2d_tanh', .* did you mean 'dnnl.conv2d_",
    ),
    "exclude-nonsense": (
        dict(exclude=["qqq"]),
        ValueError,
        r"exclude has 'qqq', which is not an op or composite; the report of a model names its ops",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_option(name):
    options, error, text = WRONG[name]
    mod = options.pop("mod", None) or layers()
    with pytest.raises(error, match=text):
        dnnl.partition_for_dnnl(mod, **options)
