# SPDX-License-Identifier: Apache-2.0
"""Convolutions and transposed convolutions: variants, and what is fused, against numpy."""

import numpy as np
import pytest
from tvm import relay

from dnnl_tests.marks import has_avx2
from dnnl_tests.reference import RTOL, conv, conv_transpose, rand
from dnnl_tests.single_op import refusal, run_alone, run_fused, run_single, var

SIZES = {1: dict(W=13), 2: dict(H=9, W=11), 3: dict(D=5, H=6, W=7)}
KERNELS = {1: dict(W=3), 2: dict(H=3, W=2), 3: dict(D=2, H=3, W=3)}

# Attributes by number of spatial dimensions, where they differ.
CASES = {
    "plain": {},
    "strides": dict(strides={1: 2, 2: (2, 3), 3: (1, 2, 3)}),
    "groups": dict(groups=4),
    "depthwise": dict(groups=16, channels=16),
}


def shape(layout, sizes):
    return tuple(sizes[letter] for letter in layout)


def make(case, spatial, channels_last=False, kernel_layout=None, transposed=False):
    """Return the op, its attributes, data and weight of a case."""
    attrs = {k: v[spatial] if isinstance(v, dict) else v for k, v in case.items()}
    for key in ("padding", "strides", "dilation", "output_padding"):
        # The transposed ones take no plain integers.
        if isinstance(attrs.get(key), int):
            attrs[key] = (attrs[key],) * spatial
    attrs.setdefault("channels", 20)
    letters = "DHW"[3 - spatial :]
    attrs["data_layout"] = f"N{letters}C" if channels_last else f"NC{letters}"
    attrs["kernel_layout"] = kernel_layout or ("IO" if transposed else "OI") + letters
    attrs["kernel_size"] = shape(letters, KERNELS[spatial])
    groups, channels = attrs.get("groups", 1), attrs["channels"]
    weight = dict(O=channels, I=16 // groups)
    if transposed:
        weight = dict(O=channels // groups, I=16)
    x = rand(*shape(attrs["data_layout"], dict(N=2, C=16, **SIZES[spatial])))
    w = rand(*shape(attrs["kernel_layout"], dict(**weight, **KERNELS[spatial])), seed=1)
    return f"nn.conv{spatial}d{'_transpose' if transposed else ''}", attrs, x, w


def relay_conv(op, attrs, x, w):
    return getattr(relay.nn, op[3:])(var("x", x.shape), var("w", w.shape), **attrs)


def windows_apart(spatial, channels, channels_last=False):
    """Return a transposed convolution whose windows lie side by side, as `make` does."""
    strides = {n: tuple(sizes[letter] for letter in sizes) for n, sizes in KERNELS.items()}
    case = dict(strides=strides, channels=channels)
    return make(case, spatial, channels_last, transposed=True)


needs_avx2 = pytest.mark.skipif(
    not has_avx2(), reason="oneDNN has nothing but plain loops for some of these 1x1 convolutions"
)


# With more channels oneDNN's deconvolution is as fast.
@needs_avx2
@pytest.mark.parametrize("channels, kind", [(1, "convolution"), (8, "convolution"), (9, None)])
@pytest.mark.parametrize("channels_last", [False, True], ids=["ncx", "nxc"])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_windows_that_lie_side_by_side(spatial, channels_last, channels, kind):
    op, attrs, x, w = windows_apart(spatial, channels, channels_last)
    expected = conv_transpose(x, w, attrs)
    expr = relay_conv(op, attrs, x, w)
    kind = kind or "deconvolution"
    run_single(expr, {"x": x}, {"w": w}, expected, op, kind)
    # With weights that are not known before.
    run_single(expr, {"x": x, "w": w}, None, expected, op, kind)


@needs_avx2
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_windows_that_lie_side_by_side_fused(spatial, channels):
    op, attrs, x, w = windows_apart(spatial, channels)
    b, z = rand(channels, *[1] * spatial, seed=3), rand(1, seed=4)
    out = conv_transpose(x, w, attrs) + b
    r = rand(*out.shape, seed=5)
    biased = relay_conv(op, attrs, x, w) + var("b", b.shape)
    for expr, expected, kind, names in (
        (
            relay.sigmoid(biased),
            1 / (1 + np.exp(-out)),
            "convolution",
            ["bias", "eltwise_logistic"],
        ),
        (relay.nn.relu(biased) * relay.const(z[0]), np.maximum(out, 0) * z, "convolution", None),
        # An operand would have to be taken apart, too.
        (biased + var("r", out.shape), out + r, "deconvolution", ["bias", "binary_add"]),
    ):
        inputs = {"x": x, "r": r} if kind == "deconvolution" else {"x": x}
        step, *_ = run_alone(expr, inputs, {"w": w, "b": b}, expected, kinds=[kind], rtol=RTOL)
        assert names is None or step["post_ops"] == names
        assert step["variant"] == {"convolution": "1x1 convolution"}.get(kind, "oneDNN's layouts")


def patches(spatial, channels, rest=0, channels_last=False):
    """Return a convolution whose windows lie side by side, as `make` does."""
    sizes = KERNELS[spatial]
    strides = tuple(sizes.values())
    op, attrs, _, _ = make(dict(strides={spatial: strides}), spatial, channels_last)
    image = {letter: 4 * size + rest for letter, size in sizes.items()}
    x = rand(*shape(attrs["data_layout"], dict(N=2, C=channels, **image)))
    w = rand(*shape(attrs["kernel_layout"], dict(O=attrs["channels"], I=channels, **sizes)), seed=1)
    return op, attrs, x, w


# With more channels, or where something is left over after the last window, it stays what it is.
@needs_avx2
@pytest.mark.parametrize(
    "channels, rest, channels_last, is_pointwise",
    [(1, 0, False, True), (3, 0, False, True), (5, 0, False, False), (3, 1, False, False)]
    + [(3, 0, True, False)],
)
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_patches(spatial, channels, rest, channels_last, is_pointwise):
    op, attrs, x, w = patches(spatial, channels, rest, channels_last)
    expr, expected = relay_conv(op, attrs, x, w), conv(x, w, attrs)
    # With weights that are known before, and with others.
    for inputs, params in (({"x": x}, {"w": w}), ({"x": x, "w": w}, None)):
        steps = run_single(expr, inputs, params, expected, op, "convolution")
        (step,) = [step for step in steps if step["kind"] == "convolution"]
        assert (step["variant"] == "1x1 convolution") == is_pointwise


@needs_avx2
def test_patches_fused():
    op, attrs, x, w = patches(2, 3)
    b = rand(attrs["channels"], 1, 1, seed=3)
    out = conv(x, w, attrs) + b
    r = rand(*out.shape, seed=5)
    expr = relay.nn.relu(relay_conv(op, attrs, x, w) + var("b", b.shape) + var("r", r.shape))
    step, *_ = run_alone(
        expr,
        {"x": x, "r": r},
        {"w": w, "b": b},
        np.maximum(out + r, 0),
        kinds=["convolution"],
        rtol=RTOL,
    )
    assert step["variant"] == "1x1 convolution"
    assert [name.split("_")[0] for name in step["post_ops"]][0] == "bias"
    assert step["post_ops"][-1] == "eltwise_relu" and len(step["post_ops"]) == 3


def chains(out, axis):
    """Return what is fused after a result: relay function, numpy function, operands."""
    per_channel = [1] * out.ndim
    per_channel[axis] = out.shape[axis]
    row = [1] * out.ndim
    row[-1] = out.shape[-1]
    b, m, r, z = rand(*per_channel, seed=3), rand(*per_channel), rand(*row), rand(*out.shape)
    names = [var(name, value.shape) for name, value in zip("bmrz", (b, m, r, z))]
    vb, vm, vr, vz = names

    def relu(y):
        return np.maximum(y, 0)

    return {
        "bias": (lambda y: y + vb, lambda y: y + b, dict(b=b)),
        "bias-relu": (lambda y: relay.nn.relu(y + vb), lambda y: relu(y + b), dict(b=b)),
        "channel-scale": (lambda y: y * vm, lambda y: y * m, dict(m=m)),
        "along-the-last-axis": (lambda y: y * vr, lambda y: y * r, dict(r=r)),
        "residual-relu": (lambda y: relay.nn.relu(y + vz), lambda y: relu(y + z), dict(z=z)),
        "all": (
            lambda y: relay.nn.relu((y + vb) * vz) + vr,
            lambda y: relu((y + b) * z) + r,
            dict(b=b, z=z, r=r),
        ),
    }


CHAINS = ["bias", "bias-relu", "channel-scale", "along-the-last-axis", "residual-relu", "all"]


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("case", ["plain", "groups", "depthwise", "strides"])
@pytest.mark.parametrize("transposed", [False, True], ids=["conv", "transposed"])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_fused(spatial, transposed, case, chain):
    """Where oneDNN has no fast code for what is fused, it becomes steps of their own."""
    op, attrs, x, w = make(CASES[case], spatial, spatial == 3, transposed=transposed)
    out = (conv_transpose if transposed else conv)(x, w, attrs)
    fuse, expected, operands = chains(out, attrs["data_layout"].index("C"))[chain]
    body = fuse(relay_conv(op, attrs, x, w))
    primitives = run_fused(body, {"x": x, "w": w, **operands}, expected(out))
    assert primitives and not any(step["reference"] for step in primitives)


def typed(op, data, weight, **attrs):
    return getattr(relay.nn, op)(var("x", data), var("w", weight), **attrs)


REFUSED = {
    "blocked-layout": (
        lambda: typed("conv3d", (1, 1, 4, 4, 4, 8), (8, 8, 3, 3, 3), data_layout="NCDHW8c"),
        "data_layout=NCDHW8c is not NCDHW or NDHWC",
    ),
    "batch-last": (
        lambda: typed("conv1d", (8, 9, 1), (4, 8, 3), data_layout="CWN"),
        "data_layout=CWN is not NCW or NWC",
    ),
    "out-layout": (
        lambda: typed("conv1d", (1, 8, 9), (4, 8, 3), out_layout="NWC"),
        "out_layout=NWC differs from data_layout=NCW",
    ),
    "grouped-kernel-layout": (
        lambda: typed(
            "conv2d_transpose",
            (1, 8, 5, 5),
            (2, 4, 4, 3, 3),
            groups=2,
            channels=8,
            kernel_size=(3, 3),
            kernel_layout="GIOHW",
        ),
        "kernel_layout=GIOHW is not a permutation of OIHW",
    ),
    # Without `channels`, Relay takes the outputs of one group for all.
    "groups-without-channels": (
        lambda: typed("conv2d_transpose", (1, 8, 5, 5), (8, 4, 3, 3), groups=2),
        "the weight has O, I = (4, 8), but 8 input and 4 output channels with groups=2 need (2, 8)",
    ),
    "negative-padding": (
        lambda: typed("conv3d", (1, 8, 5, 5, 5), (4, 8, 3, 3, 3), padding=(0, 0, -1, 0, 0, 0)),
        "padding=[0, 0, -1, 0, 0, 0] is negative",
    ),
    "output-padding": (
        lambda: typed("conv1d_transpose", (1, 8, 5), (8, 4, 3), output_padding=(1,)),
        "output_padding=[1] is not less than strides=[1]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make_call, reason = REFUSED[name]
    assert refusal(make_call()) == reason
