# SPDX-License-Identifier: Apache-2.0
"""Conformance cases of ONNX with Relax that TVM's importer reads wrongly, or reads and cannot run.

`conformance.py` runs all cases.
"""

import pytest
from dnnl_tests.onnx_models import conformance_cases

from dnnl_relax.onnx import conformance

#: By what was wrong with them: cases that are right now.
REPAIRED = {
    "attributes": "isinf_negative isinf_positive convtranspose_output_shape "
    "convtranspose_kernel_shape",
    "bool": "reduce_max_bool_inputs reduce_min_bool_inputs",
    "empty data": "reduce_l1_empty_set reduce_log_sum_exp_empty_set reduce_max_empty_set "
    "reduce_min_empty_set reduce_sum_empty_set_non_reduced_axis_zero",
    "computed shape": "constantofshape_float_ones constantofshape_int_shape_zero",
    "dropout": "dropout_default_mask dropout_default_mask_ratio training_dropout_zero_ratio_mask",
    "empty parts": "split_zero_size_splits_opset13 split_zero_size_splits_opset18",
    "power": "pow_types_int32_int32 pow_types_int64_int64 pow_types_float32_int64 "
    "pow_types_float32_uint32 pow_types_int32_float32 pow_types_int64_float32",
    "resize": "resize_downsample_scales_cubic_antialias resize_downsample_scales_linear "
    "resize_downsample_scales_linear_half_pixel_symmetric resize_tf_crop_and_resize_axes_3_2 "
    "resize_upsample_sizes_nearest_not_larger resize_upsample_scales_nearest_axes_2_3",
    "thresholds": "nonmaxsuppression_suppress_by_IOU_and_scores "
    "nonmaxsuppression_iou_threshold_boundary",
    "functions": "attention_4d_softcap_neginf_mask attention_4d_with_qk_matmul_softmax "
    "attention_4d_gqa_causal_nonpad_decode_fp16 linear_attention_gated_delta_gqa swiglu_alpha "
    "causal_conv_with_state_silu_with_past_state flexattention_gqa sce_mean_weight_ii",
    "decompositions": "dft_irfft stft_with_window col2im_pads cumprod_2d_int32 det_nd "
    "tensorscatter_circular quantizelinear_blocked_symmetric l1normalization_axis_0",
    "operands": "mod_float_edge_cases_fmod_0_float16 bitshift_right_int32_negative_shift",
    "training": "batchnorm_example_training_mode batchnorm_epsilon_training_mode",
}
#: Cases that onnxruntime disagrees with: corners are not aligned.
DISPUTED = (
    "resize_downsample_scales_cubic_align_corners",
    "resize_downsample_scales_linear_align_corners",
)
OTHERS = ("simple/sequence_model3", "pytorch-converted/PReLU_2d_multiparam")


def outcome(name):
    return conformance.run_case(conformance_cases()[name], conformance.COLUMNS[2])


@pytest.mark.parametrize(
    "names", REPAIRED.values(), ids=[name.replace(" ", "-") for name in REPAIRED]
)
def test_repaired(names):
    outcomes = {name: outcome(f"node/{name}") for name in names.split()}
    assert {name: each for name, each in outcomes.items() if each.kind != conformance.RIGHT} == {}


@pytest.mark.parametrize("name", OTHERS)
def test_models(name):
    assert outcome(name).kind == conformance.RIGHT


@pytest.mark.parametrize("name", DISPUTED)
def test_as_onnxruntime(name):
    assert outcome(f"node/{name}").kind == conformance.DISPUTED


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_case_is_wrong():
    results = conformance.run_all(columns=conformance.COLUMNS[2:])
    outcomes = results[conformance.COLUMNS[2]]
    bad = (conformance.WRONG, conformance.CRASHES, conformance.FAILS)
    assert {name: each for name, each in outcomes.items() if each.kind in bad} == {}
    assert sum(each.kind == conformance.RIGHT for each in outcomes.values()) > 1700
