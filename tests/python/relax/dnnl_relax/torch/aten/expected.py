# SPDX-License-Identifier: Apache-2.0
"""Ops without calls, and calls that the importer refuses, with the reason."""

_GRADIENT = "of gradients, which a compiled model does not compute"
_RANDOM = "random: eager draws other values"
_SIZE = "the size of its result depends on values"
_NUMBER = "returns a number, not a tensor"

WITHOUT_CALLS = {
    "_adaptive_avg_pool2d_backward.default": _GRADIENT,
    "_local_scalar_dense.default": _NUMBER,
    "_embedding_bag.default": "in functions.py; its other results are for gradients",
    "_native_batch_norm_legit.default": "in training mode, which changes its arguments",
    "atan2.out": "changes an argument: torch.export replaces it",
    "avg_pool2d_backward.default": _GRADIENT,
    "convolution_backward.default": _GRADIENT,
    "embedding_dense_backward.default": _GRADIENT,
    "empty.memory_format": "its values are not defined",
    "empty_strided.default": "its values are not defined",
    "max_pool2d_with_indices_backward.default": _GRADIENT,
    "native_group_norm_backward.default": _GRADIENT,
    "native_layer_norm_backward.default": _GRADIENT,
    "nonzero.default": _SIZE,
    "rand.default": _RANDOM,
    "randn.default": _RANDOM,
    "randperm.default": _RANDOM,
    "resize_.default": "changes an argument: torch.export replaces it",
    "sym_is_contiguous.default": _NUMBER,
    "sym_numel.default": _NUMBER,
    "sym_size.int": _NUMBER,
    "sym_storage_offset.default": _NUMBER,
    "sym_stride.int": _NUMBER,
}

#: (op, number of the call): a pattern of the reason.
REFUSED = {
    ("histc", 6): "has no converter",
    ("_fft_r2c.default", 0): "no complex types",
    ("_fft_c2r.default", 0): "no complex types",
}
