# SPDX-License-Identifier: Apache-2.0
"""What happens before the cut: batch_norm folded, dropout removed, parameters bound."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl
from tvm.testing.dnnl import assert_close

from dnnl_tests import reference
from dnnl_tests.reference import rand
from dnnl_tests.relay import assert_same_result, const, conv, module, partition, var

SHAPE = (1, 8, 5, 6)


def statistics(channels, seed=0):
    """Return gamma, beta, mean and a variance that is not negative."""
    gamma, beta, mean = (const(channels, seed=seed + i) for i in range(1, 4))
    return gamma, beta, mean, relay.const(np.abs(rand(channels, seed=seed + 4)) + 0.1)


def batch_norm(data, channels=8, axis=1, **attrs):
    attrs.setdefault("epsilon", 1e-3)
    return relay.nn.batch_norm(data, *statistics(channels), axis=axis, **attrs)[0]


def folded_constants(out, composite):
    """Fold a batch_norm and return the weight and the bias that are left."""
    partitioned = partition(module(out))
    report = dnnl.offload_report(partitioned)
    assert report.folded == {"nn.batch_norm": 1}
    assert report.composites == {composite: 1} and report.offloaded == report.total
    (func,) = (func for var, func in partitioned.functions.items() if var.name_hint != "main")
    return [arg.data.numpy() for arg in func.body.args if isinstance(arg, relay.Constant)]


def assert_folded(out, composite, count=1):
    """Assert that batch_norm has gone, what was fused, and that the numbers are the same."""
    mod = module(out)
    partitioned = partition(mod)
    report = dnnl.offload_report(partitioned)
    assert "nn.batch_norm" not in report.ops
    assert report.folded == {"nn.batch_norm": count}
    assert report.composites == {composite: count}
    inputs = {p.name_hint: rand(*map(int, p.checked_type.shape)) for p in mod["main"].params}
    assert_same_result(mod, partitioned, inputs)


LAYOUTS = [
    ("NCHW", "OIHW"),
    ("NCHW", "HWIO"),
    ("NCHW", "IOHW"),
    ("NHWC", "HWIO"),
    ("NHWC", "HWOI"),
    ("NHWC", "OHWI"),
]


@pytest.mark.parametrize("groups, channels", [(1, 4), (2, 6), (8, 8), (8, 16)])
@pytest.mark.parametrize("data_layout, kernel_layout", LAYOUTS, ids=lambda text: text)
def test_conv2d_of_any_layout(data_layout, kernel_layout, groups, channels):
    """Compared in numpy: TVM has no schedule for most of these."""
    attrs = dict(
        channels=channels,
        kernel_size=(3, 2),
        padding=(1, 0, 1, 1),
        groups=groups,
        data_layout=data_layout,
        kernel_layout=kernel_layout,
    )
    # A depthwise weight has the input channels as O and the outputs of each as I.
    outputs, inputs = (8, channels // 8) if groups == 8 else (channels, 8 // groups)
    data = rand(*(dict(N=2, C=8, H=5, W=6)[letter] for letter in data_layout))
    weight = rand(*(dict(O=outputs, I=inputs, H=3, W=2)[letter] for letter in kernel_layout))
    axis, stats = data_layout.index("C"), statistics(channels)
    out = relay.nn.conv2d(var("x", *data.shape), relay.const(weight), **attrs)
    out = relay.nn.batch_norm(out, *stats, axis=axis, epsilon=1e-3)[0]
    new_weight, bias = folded_constants(out, "dnnl.conv2d_bias")
    want = reference.batch_norm(
        reference.conv2d(data, weight, attrs),
        *(constant.data.numpy() for constant in stats),
        dict(axis=axis, epsilon=1e-3),
    )
    assert_close([reference.conv2d(data, new_weight, attrs) + bias], [want])


@pytest.mark.parametrize("channels", [8, 16])
def test_depthwise_weight_of_one_input_channel(channels):
    """Relay also takes a depthwise weight as (output channels, 1, ...)."""
    data, weight = rand(*SHAPE), rand(channels, 1, 3, 3)
    attrs = dict(groups=8)
    out = relay.nn.conv2d(var("x", *SHAPE), relay.const(weight), **attrs)
    new_weight, bias = folded_constants(batch_norm(out, channels), "dnnl.conv2d_bias")
    attrs["channels"] = channels
    want = reference.batch_norm(
        reference.conv2d(data, weight, attrs),
        *(constant.data.numpy() for constant in statistics(channels)),
        dict(epsilon=1e-3),
    )
    assert_close([reference.conv2d(data, new_weight, attrs) + bias], [want])


BIASES = {
    "bias-add": lambda y: relay.nn.bias_add(y, const(8, seed=9)),
    "bias-right": lambda y: y + const(8, 1, 1, seed=9),
    "bias-left": lambda y: relay.add(const(1, 8, 1, 1, seed=9), y),
    "scalar": lambda y: y + relay.const(0.25),
    "size-1": lambda y: y + const(1, 1, seed=9),
}


@pytest.mark.parametrize("bias", BIASES)
def test_bias_between(bias):
    assert_folded(batch_norm(BIASES[bias](conv(var("x", *SHAPE)))), "dnnl.conv2d_bias")


@pytest.mark.parametrize("epsilon", [0.0, 1e-5, 0.5])
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("center", [True, False])
def test_attributes(epsilon, scale, center):
    y = conv(var("x", *SHAPE))
    out = batch_norm(y, epsilon=epsilon, scale=scale, center=center)
    assert_folded(relay.nn.relu(out), "dnnl.conv2d_bias_relu")


@pytest.mark.parametrize("shape", [(3, 8), (2, 3, 8)], ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_dense(shape, biased):
    data, weight, bias, stats = rand(*shape), rand(5, 8), rand(5, seed=9), statistics(5)
    out = relay.nn.dense(var("x", *shape), relay.const(weight))
    out = out + relay.const(bias) if biased else out
    out = relay.nn.batch_norm(out, *stats, axis=len(shape) - 1, epsilon=1e-3)[0]
    new_weight, new_bias = folded_constants(out, "dnnl.dense_bias")
    want = reference.batch_norm(
        reference.dense(data, weight) + (bias if biased else 0),
        *(constant.data.numpy() for constant in stats),
        dict(axis=len(shape) - 1, epsilon=1e-3),
    )
    assert_close([reference.dense(data, new_weight) + new_bias], [want])


def test_two_in_a_row_fold_into_one_convolution():
    mod = module(batch_norm(batch_norm(conv(var("x", *SHAPE)))))
    partitioned = partition(mod)
    report = dnnl.offload_report(partitioned)
    assert report.folded == {"nn.batch_norm": 2}
    assert report.composites == {"dnnl.conv2d_bias": 1}
    assert_same_result(mod, partitioned, {"x": rand(*SHAPE)})


def test_layers_in_a_row():
    y = var("x", *SHAPE)
    for seed in range(3):
        y = relay.nn.relu(batch_norm(conv(y, seed=seed)))
    assert_folded(y, "dnnl.conv2d_bias_relu", count=3)


x = var("x", *SHAPE)
# What cannot be folded into a weight is a factor and a summand of each channel.
AFFINE = {
    "no-convolution": lambda: batch_norm(relay.nn.relu(conv(x))),
    "convolution-used-twice": lambda: relay.concatenate([(y := conv(x)), batch_norm(y)], axis=1),
    "bias-used-twice": lambda: relay.concatenate(
        [(y := conv(x) + const(8, 1, 1)), batch_norm(y)], axis=1
    ),
    "weight-not-constant": lambda: batch_norm(relay.nn.conv2d(x, var("w", 8, 8, 3, 3))),
    "bias-not-constant": lambda: batch_norm(conv(x) + var("b", 8, 1, 1)),
    "bias-varies-on-rows": lambda: batch_norm(conv(x) + const(6)),
    "bias-add-on-rows": lambda: batch_norm(relay.nn.bias_add(conv(x), const(5), axis=2)),
    "broadcast-before": lambda: batch_norm(conv(x, 1) + const(1, 8, 1, 1)),
    "scale-only": lambda: batch_norm(relay.nn.relu(conv(x)), center=False),
    "rows": lambda: batch_norm(relay.nn.relu(var("x", 3, 8)), axis=-1),
    "volume": lambda: batch_norm(relay.nn.relu(var("x", 2, 8, 3, 4, 5))),
}
KEPT = {
    "statistics-not-constant": lambda: relay.nn.batch_norm(
        conv(x), *statistics(8)[:3], var("v", 8)
    )[0],
    "other-axis": lambda: batch_norm(conv(x), 5, axis=2),
    "all-results-wanted": lambda: relay.nn.batch_norm(conv(x), *statistics(8)).astuple(),
    "channels-last": lambda: batch_norm(relay.nn.relu(var("x", 1, 5, 6, 8)), axis=3),
}


@pytest.mark.parametrize("name", AFFINE)
def test_batch_norm_becomes_factor_and_summand(name):
    mod = module(AFFINE[name]())
    before = dnnl.offload_report(mod).ops
    partitioned = partition(mod, prune=False)
    report = dnnl.offload_report(partitioned)
    assert report.folded == {"nn.batch_norm": 1} and report.offloaded_ops["multiply"] == 1
    assert report.ops["add"] == before["add"] + 1
    assert any("multiply_add" in composite for composite in report.composites)
    inputs = {p.name_hint: rand(*map(int, p.checked_type.shape)) for p in mod["main"].params}
    assert_same_result(mod, partitioned, inputs)


@pytest.mark.parametrize("name", AFFINE)
def test_excluded_batch_norm_is_kept(name):
    report = dnnl.offload_report(partition(module(AFFINE[name]()), exclude=["nn.batch_norm"]))
    assert not report.folded and report.ops["nn.batch_norm"] == 1


def test_batch_norm_of_reduced_precision_is_kept(monkeypatch):
    """Its factors would be rounded."""
    monkeypatch.setattr(cpu, "computes", lambda dtype: True)
    data = relay.nn.relu(var("x", *SHAPE, dtype="bfloat16"))
    stats = [relay.const(np.ones(8, "float32"), "bfloat16") for _ in range(4)]
    report = dnnl.offload_report(partition(module(relay.nn.batch_norm(data, *stats)[0])))
    assert not report.folded and report.ops["nn.batch_norm"] == 1


@pytest.mark.parametrize("name", KEPT)
def test_batch_norm_is_kept(name):
    mod = module(KEPT[name]())
    partitioned = partition(mod, prune=False)
    report = dnnl.offload_report(partitioned)
    assert not report.folded
    assert report.offloaded_ops["nn.batch_norm"] == 1
    inputs = {p.name_hint: rand(*map(int, p.checked_type.shape)) for p in mod["main"].params}
    inputs = {name: np.abs(value) if name == "v" else value for name, value in inputs.items()}
    assert_same_result(mod, partitioned, inputs)


def test_constants_that_overflow_are_kept():
    """1 / sqrt(0) is infinite; what TVM makes of that is not ours to change."""
    zero, one = relay.const(np.zeros(8, "float32")), relay.const(np.ones(8, "float32"))
    out = relay.nn.batch_norm(conv(x), one, zero, zero, zero, epsilon=0.0)[0]
    assert not dnnl.offload_report(partition(module(out))).folded


@pytest.mark.parametrize("op", ["nn.batch_norm", "nn.conv2d"])
def test_excluded_op_is_not_folded(op):
    report = dnnl.offload_report(partition(module(batch_norm(conv(x))), exclude=[op]))
    rest = {"multiply": 1, "add": 1} if op == "nn.conv2d" else {"nn.batch_norm": 1}
    assert report.ops == {"nn.conv2d": 1, **rest}
    assert report.reasons[op] == {"excluded by option": 1}


def test_no_excluded_op_comes_of_folding():
    """The bias that would be left is an add, which is to stay on TVM."""
    report = dnnl.offload_report(partition(module(batch_norm(conv(x))), exclude=["add"]))
    assert not report.folded and report.offloaded_ops == {"nn.conv2d": 1, "nn.batch_norm": 1}


def test_dropout_is_removed():
    data = var("x", *SHAPE)
    mod = module(relay.nn.relu(relay.nn.dropout(conv(relay.nn.dropout(data)))))
    report = dnnl.offload_report(partition(mod))
    assert report.folded == {"nn.dropout": 2}
    assert report.composites == {"dnnl.conv2d_relu": 1}
    assert report.total == report.offloaded == 2


def test_mask_of_dropout_keeps_it():
    data = var("x", *SHAPE)
    both = relay.nn.dropout_raw(conv(data))
    report = dnnl.offload_report(partition(module(both)))
    assert report.ops["nn.dropout"] == 1 and not report.folded


class TestParams:
    def mod(self):
        return module(relay.nn.conv2d(var("x", *SHAPE), var("w", 4, 8, 1, 1)) + var("b", 4, 1, 1))

    @pytest.mark.parametrize("wrap", [tvm.nd.array, np.asarray], ids=["ndarray", "numpy"])
    def test_bound(self, wrap):
        mod, values = self.mod(), {"w": rand(4, 8, 1, 1), "b": rand(4, 1, 1, seed=1)}
        partitioned = partition(mod, {name: wrap(value) for name, value in values.items()})
        assert [param.name_hint for param in partitioned["main"].params] == ["x"]
        assert [param.name_hint for param in mod["main"].params] == ["x", "w", "b"]
        assert_same_result(mod, partitioned, {"x": rand(*SHAPE)}, values)

    def test_some_bound(self):
        mod = partition(self.mod(), {"w": rand(4, 8, 1, 1)})
        assert [param.name_hint for param in mod["main"].params] == ["x", "b"]
        assert dnnl.offload_report(mod).composites == {"dnnl.conv2d_bias": 1}

    def test_names_that_main_does_not_have_are_ignored_with_a_warning(self):
        """Importers return parameters that nothing uses."""
        values = {"w": rand(4, 8, 1, 1), "weight": rand(2), "shape": rand(3)}
        with pytest.warns(UserWarning, match=r"2 of 3 names .*: shape, weight; main has x, w, b"):
            mod = dnnl.partition_for_dnnl(self.mod(), values)
        assert [param.name_hint for param in mod["main"].params] == ["x", "b"]

    def test_wrong_shape(self):
        with pytest.raises(ValueError, match=r"params\['w'\] is float32 of shape \(4, 8, 3, 3\)"):
            dnnl.partition_for_dnnl(self.mod(), {"w": rand(4, 8, 3, 3)})

    def test_wrong_dtype(self):
        with pytest.raises(
            ValueError, match=r"params\['b'\] is float64 .* that of main is float32"
        ):
            dnnl.partition_for_dnnl(self.mod(), {"b": np.zeros((4, 1, 1))})

    def test_no_dict(self):
        with pytest.raises(TypeError, match="params must be a dict"):
            dnnl.partition_for_dnnl(self.mod(), [rand(2)])

    def test_no_main(self):
        mod = tvm.IRModule({relay.GlobalVar("other"): self.mod()["main"]})
        with pytest.raises(ValueError, match="function main, and the module has none"):
            dnnl.partition_for_dnnl(mod, {"w": rand(4, 8, 1, 1)})
