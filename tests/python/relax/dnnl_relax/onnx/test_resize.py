# SPDX-License-Identifier: Apache-2.0
"""ONNX's Resize, compared with onnxruntime."""

import numpy as np
import pytest

from dnnl_relax.onnx.nodes import (
    assert_close,
    check_node,
    node_model,
    normal,
    onnxruntime_results,
    results,
)

SHAPE = (2, 3, 10, 14)
#: Attributes that no op of Relax has.
CASES = {
    "antialias": dict(mode="linear", antialias=1),
    "antialias-cubic": dict(mode="cubic", antialias=1, cubic_coeff_a=-0.5),
    "half-pixel-symmetric": dict(
        mode="linear", coordinate_transformation_mode="half_pixel_symmetric"
    ),
    "fraction": dict(mode="linear"),
    "fraction-cubic": dict(mode="cubic"),
    "fraction-asymmetric": dict(mode="linear", coordinate_transformation_mode="asymmetric"),
    "exclude-outside": dict(mode="cubic", exclude_outside=1),
    "nearest": dict(mode="nearest", nearest_mode="floor"),
    "nearest-asymmetric": dict(
        mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="ceil"
    ),
}


@pytest.mark.parametrize("scales", [(0.55, 0.7), (1.3, 1.85), (0.5, 2.0)], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_scales(case, scales):
    operands = {"x": normal(*SHAPE), "roi": None, "scales": np.float32([1, 1, *scales])}
    check_node("Resize", operands, domain="", opset=18, consts=["scales"], others=CASES[case])


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_aspect_ratio(policy):
    operands = {"x": normal(*SHAPE), "roi": None, "scales": None, "sizes": np.array([7, 25])}
    attrs = dict(mode="linear", keep_aspect_ratio_policy=policy, axes=[2, 3])
    check_node("Resize", operands, domain="", opset=18, consts=["sizes"], others=attrs)


def test_crop():
    roi = np.float32([0, 0, 0.2, -0.1, 1, 1, 0.9, 1.2])
    sizes = np.array([2, 3, 5, 9])
    operands = {"x": normal(*SHAPE), "roi": roi, "scales": None, "sizes": sizes}
    attrs = dict(
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=7.0,
    )
    check_node("Resize", operands, domain="", opset=13, consts=["roi", "sizes"], others=attrs)


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_integers(dtype):
    x = np.arange(np.prod(SHAPE)).reshape(SHAPE).astype(dtype)
    operands = {"x": x, "roi": None, "scales": np.float32([1, 1, 0.55, 1.7])}
    model = node_model("Resize", operands, domain="", opset=18, consts=["scales"], mode="nearest")
    assert_close(results(model, operands)[0], onnxruntime_results(model, operands), 0)


@pytest.mark.parametrize("axis", range(3))
def test_other_axes(axis):
    scales = np.ones(3, "float32")
    scales[axis] = 1.6
    operands = {"x": normal(5, 6, 7), "roi": None, "scales": scales}
    check_node("Resize", operands, domain="", opset=18, consts=["scales"], mode="linear")


def test_align_corners_of_one_row():
    """As in onnxruntime, the corner of a single row is the first one."""
    operands = {"x": normal(1, 1, 2, 4), "roi": None, "scales": np.float32([1, 1, 0.6, 0.6])}
    attrs = dict(mode="linear", coordinate_transformation_mode="align_corners")
    check_node("Resize", operands, domain="", opset=13, consts=["scales"], others=attrs)


@pytest.mark.parametrize("op, opset", [("Upsample", 9), ("Resize", 10)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_old_opsets(op, opset, mode):
    operands = {"x": normal(1, 2, 3, 4), "scales": np.float32([1, 1, 2, 3])}
    check_node(op, operands, domain="", opset=opset, consts=["scales"], mode=mode)
