# SPDX-License-Identifier: Apache-2.0
"""Images of another size: oneDNN's coordinates between the values are not always Relay's."""

import numpy as np
import pytest
import tvm
from tvm import relay

from dnnl_tests import direct
from dnnl_tests.reference import RTOL, rand
from dnnl_tests.relay import conv, module
from dnnl_tests.single_op import refusal, run_alone, var

NEAREST = dict(method="nearest_neighbor", coordinate_transformation_mode="asymmetric")
LINEAR = dict(method="linear", coordinate_transformation_mode="half_pixel")


# Of a resize with a residual, which oneDNN does not fuse in each layout.
KINDS = ["resampling", "binary", "eltwise"]


def resize(shape, size, **attrs):
    """Return a resized variable, by the op of its rank."""
    op = getattr(relay.image, f"resize{len(shape) - 2}d")
    letters = "DHW"[5 - len(shape) :]
    attrs.setdefault("layout", "NC" + letters)
    return op(var("x", shape), size=size, **attrs)


def test_between_convolutions_with_a_sum():
    """As in feature pyramids."""
    x, z = rand(1, 8, 6, 6), rand(1, 8, 12, 12, seed=1)
    y = conv(var("x", x.shape))
    y = relay.nn.upsampling(y, 2, 2) + var("z", z.shape)
    mod = module(conv(relay.nn.relu(y)))
    direct.check(
        mod,
        {"x": x, "z": z},
        partitions=1,
        composites={"dnnl.upsampling_sum_relu": 1},
        ops={"nn.conv2d": 2},
        rtol=RTOL,
    )


@pytest.mark.parametrize("method", [NEAREST, LINEAR], ids=["nearest", "linear"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("operand", [(2, 10, 14, 8), (8,), (1,)], ids=str)
def test_post_ops(operand, layout, method):
    """The loops of oneDNN that take a sum of two images are wrong, and must not run."""
    shape = (2, 5, 7, 8) if layout == "NHWC" else (2, 8, 5, 7)
    z = rand(*operand, seed=1)
    if layout == "NCHW":
        z = z.transpose(0, 3, 1, 2).copy() if z.ndim == 4 else z.reshape(-1, 1, 1)
    x = rand(*shape)
    y = resize(shape, (10, 14), layout=layout, **method)
    expr = relay.nn.relu(y + var("z", z.shape))
    inputs = {"x": x, "z": z}
    (reference,) = direct.run(tvm.IRModule.from_expr(expr), inputs)
    kinds = ["resampling"] + (["binary", "eltwise"] if len(operand) == 4 else [])
    run_alone(expr, inputs, None, reference, kinds=kinds, rtol=1e-5)


def asked(size, **attrs):
    return resize((1, 4, 5, 7), size, **attrs)


REFUSED = {
    "cubic": (
        relay.nn.upsampling(var("x", (1, 4, 5, 7)), 2, 2, method="bicubic"),
        "oneDNN does not support method=bicubic",
    ),
    "crop": (
        asked((10, 14), method="linear", coordinate_transformation_mode="tf_crop_and_resize"),
        "does not support coordinate_transformation_mode=tf_crop_and_resize",
    ),
    # TVM reads the values that "floor" does.
    "nearest": (
        asked((10, 14), **{**NEAREST, "rounding_method": "ceil"}),
        "asymmetric with ceil has other nearest values in TVM, from H=5 to 10",
    ),
    "layout": (
        relay.image.resize2d(var("x", (1, 5, 7, 2, 4)), size=(10, 14), layout="NHWC4c"),
        "layout=NHWC4c is not",
    ),
}


@pytest.mark.parametrize("expr, text", REFUSED.values(), ids=REFUSED.keys())
def test_refused(expr, text):
    assert text in refusal(expr)


def centers(mode, size, out):
    """Return the coordinates of the results along an axis of the input, not limited to it."""
    at = np.arange(out)
    if mode == "align_corners":
        return at * (size - 1) / max(out - 1, 1)
    if mode == "asymmetric":
        return at * size / out
    return (at + 0.5) * size / out - 0.5


# To twice and four times the size there are loops of their own; to the same size, a copy.
@pytest.mark.parametrize(
    "size, out", [(1, 3), (2, 4), (3, 2), (3, 9), (5, 8), (8, 5), (6, 6), (17, 34), (9, 36), (4, 1)]
)
@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("method", ["linear", "nearest_neighbor"])
def test_coordinates(method, mode, size, out):
    """Of a ramp, linear values are the coordinates themselves, up to the edges."""
    rounding = "floor" if mode == "asymmetric" else "round"
    attrs = dict(coordinate_transformation_mode=mode, rounding_method=rounding)
    expr = resize((1, 1, size), (out,), method=method, **attrs)
    coordinates = centers(mode, size, out)
    if method == "nearest_neighbor":
        # TVM's functions of the coordinates; halves are rounded away from zero.
        low = mode == "asymmetric"
        coordinates = np.floor(coordinates + (1e-5 if low else 0.5))
    x = np.arange(size, dtype="float32").reshape(1, 1, size)
    want = np.clip(coordinates, 0, size - 1).reshape(1, 1, out)
    run_alone(expr, {"x": x}, None, want, kinds=["resampling"], rtol=1e-6)


@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize(
    "layout, sizes, out",
    [
        ("NCHW", (5, 33), (10, 66)),
        ("NHWC", (6, 9), (4, 36)),
        ("NCHW", (5, 9), (5, 18)),
        ("NCHW", (5, 9), (7, 9)),
        ("NCDHW", (2, 3, 5), (3, 7, 10)),
    ],
    ids=str,
)
def test_linear_is_separable(mode, layout, sizes, out):
    """Interpolated axis by axis in float64. A residual that oneDNN could add is added, too."""
    x = rand(2, 3, *sizes)
    want = x.astype("float64")
    for axis, (old, new) in enumerate(zip(sizes, out), 2):
        at = np.clip(centers(mode, old, new), 0, old - 1)
        low = np.minimum(np.floor(at).astype(int), max(old - 2, 0))
        share = (at - low).reshape(-1, *[1] * (want.ndim - 1 - axis))
        high = np.minimum(low + 1, old - 1)
        want = want.take(low, axis) * (1 - share) + want.take(high, axis) * share
    z = rand(*want.shape, seed=1)
    if layout == "NHWC":
        x, z, want = (each.transpose(0, 2, 3, 1).copy() for each in (x, z, want))
    attrs = dict(method="linear", coordinate_transformation_mode=mode, layout=layout)
    expr = resize(x.shape, out, **attrs)
    run_alone(expr, {"x": x}, None, want, kinds=["resampling"], rtol=RTOL)
    fused = relay.nn.relu(expr + var("z", z.shape))
    run_alone(fused, {"x": x, "z": z}, None, np.maximum(want + z, 0), kinds=KINDS, rtol=RTOL)


@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("size, out", [(5, 10), (9, 4), (2, 7), (4, 4)], ids=str)
def test_cubic(size, out, mode, exclude):
    """The weights are those of Keys' kernel at the distances of all values."""
    alpha = -0.75
    distance = np.abs(centers(mode, size, out)[:, None] - np.arange(-2, size + 2))
    near = ((alpha + 2) * distance - (alpha + 3)) * distance**2 + 1
    far = alpha * (((distance - 5) * distance + 8) * distance - 4)
    weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    inside = weights[:, 2:-2].copy()
    if exclude:
        inside /= inside.sum(1, keepdims=True)
    else:
        inside[:, 0] += weights[:, :2].sum(1)
        inside[:, -1] += weights[:, -2:].sum(1)
    x = rand(2, 3, size, size)
    attrs = dict(coordinate_transformation_mode=mode, cubic_alpha=alpha, cubic_exclude=exclude)
    expr = resize(x.shape, (out, out), method="cubic", **attrs)
    want = np.einsum("oi,pj,ncij->ncop", inside, inside, x)
    run_alone(expr, {"x": x}, None, want, kinds=["resampling"], rtol=RTOL)


# Integer factors up to 4 have loops of their own; others, and sizes that are no multiples, do not.
@pytest.mark.parametrize(
    "sizes, out",
    [
        ((5, 33), (10, 66)),
        ((5, 33), (15, 99)),
        ((3, 17), (12, 68)),
        ((3, 7), (15, 35)),
        ((4, 1), (4, 9)),
        ((6, 9), (4, 6)),
        ((5, 9), (5, 9)),
        ((7,), (14,)),
        ((2, 3, 5), (6, 3, 10)),
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric"])
def test_nearest_copies_rows(mode, sizes, out):
    """Also of NaN, bit by bit."""
    x = rand(2, 3, *sizes)
    x.reshape(-1)[::5] = np.nan
    rounding = "round" if mode == "half_pixel" else "floor"
    expr = resize(
        x.shape,
        out,
        method="nearest_neighbor",
        coordinate_transformation_mode=mode,
        rounding_method=rounding,
    )
    if refusal(expr) is not None:
        assert any(size % old for size, old in zip(out, sizes)), refusal(expr)
        pytest.skip("other coordinates than oneDNN's")
    want = x
    for axis, (old, new) in enumerate(zip(sizes, out), 2):
        center = (np.arange(new) + 0.5) * old / new - 0.5
        at = np.arange(new) * old / new if mode == "asymmetric" else center
        at = np.floor(at + 1e-5) if mode == "asymmetric" else np.floor(np.abs(at) + 0.5)
        want = want.take(np.clip(at, 0, old - 1).astype(int), axis)
    (step,) = run_alone(expr, {"x": x}, None, want, kinds=["resampling"], rtol=0)
    assert step["impl"] == "tvm:any"
