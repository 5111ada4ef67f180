# SPDX-License-Identifier: Apache-2.0
"""Calls of convolutions, pools, norms and resizes."""

import torch

from dnnl_relax.torch.aten.draws import Call, f

_X = f(2, 4, 9, 10)
_1, _0 = [1, 1], [0, 0]


def _conv(x, w, bias=True, stride=1, padding=0, dilation=1, transposed=False, output=0, groups=1):
    rank = w.dim() - 2
    channels = w.shape[1] * groups if transposed else w.shape[0]
    lists = [
        each if isinstance(each, list) else [each] * rank for each in (stride, padding, dilation)
    ]
    output = output if isinstance(output, list) else [output] * rank
    return Call(x, w, f(channels) if bias else None, *lists, transposed, output, groups)


def _max_pool(rank):
    x = f(2, 3, *(7, 8, 9)[-rank:])
    return [
        Call(x, [2] * rank, [2] * rank),
        Call(x, [3] * rank, [2] * rank, [1] * rank),
        Call(x, [3] * rank, [2] * rank, [1] * rank, [1] * rank, True),
        Call(x, [2] * rank, [1] * rank, [0] * rank, [2] * rank),
        Call(x[0], [2] * rank, [2] * rank),
        Call(x, [2] * rank),
    ]


def _avg_pool(rank):
    x = f(2, 3, *(7, 8, 9)[-rank:])
    return [
        Call(x, [2] * rank),
        Call(x, [3] * rank, [2] * rank, [1] * rank),
        Call(x, [3] * rank, [2] * rank, [1] * rank, False, False),
        Call(x, [3] * rank, [2] * rank, [1] * rank, True),
        Call(x, [3] * rank, [2] * rank, [1] * rank, True, False),
        Call(x, [2] * rank, [2] * rank, [0] * rank, False, True, 3),
        Call(x[0], [2] * rank, [2] * rank),
    ]


_GRID = torch.rand(2, 5, 6, 2) * 2.4 - 1.2

CALLS = {
    "convolution.default": [
        _conv(_X, f(6, 4, 3, 3)),
        _conv(_X, f(6, 4, 3, 3), False, [2, 1], [1, 0], [1, 2]),
        _conv(_X, f(6, 2, 3, 3), groups=2),
        _conv(_X, f(4, 1, 3, 3), groups=4, padding=1),
        _conv(f(2, 4, 9), f(6, 4, 3), stride=2, padding=1),
        _conv(f(2, 4, 5, 6, 7), f(6, 4, 3, 3, 3), stride=2, padding=1),
        _conv(_X, f(4, 6, 3, 3), transposed=True, stride=2, padding=1, output=1),
        _conv(_X, f(4, 6, 3, 3), False, transposed=True, stride=[2, 1], dilation=[1, 2]),
        _conv(_X, f(4, 3, 3, 3), transposed=True, groups=2),
        _conv(f(2, 4, 9), f(4, 6, 3), transposed=True, stride=2, output=1),
        _conv(f(1, 4, 3, 4, 5), f(4, 2, 2, 2, 2), transposed=True, stride=2),
        _conv(f(1, 4, 3, 4, 5), f(4, 2, 3, 2, 2), False, transposed=True, padding=1),
        _conv(_X.transpose(2, 3), f(3, 3, 6, 4).permute(2, 3, 0, 1)),
    ],
    "max_pool2d_with_indices.default": _max_pool(2),
    "max_pool3d_with_indices.default": _max_pool(3),
    "avg_pool1d.default": [
        Call(f(2, 3, 9), [2]),
        Call(f(2, 3, 9), [3], [2], [1], True),
        Call(f(2, 3, 9), [3], [2], [1], True, False),
        Call(f(3, 9), [2], [2]),
    ],
    "adaptive_avg_pool1d.default": [
        Call(f(2, 3, 9), [1]),
        Call(f(2, 3, 9), [4]),
        Call(f(3, 9), [2]),
    ],
    "avg_pool2d.default": _avg_pool(2),
    "avg_pool3d.default": _avg_pool(3),
    "_adaptive_avg_pool2d.default": [
        Call(_X, [1, 1]),
        Call(_X, [3, 5]),
        Call(_X, [4, 7]),
        Call(_X[0], [2, 2]),
        Call(_X, [12, 11]),
    ],
    "_adaptive_avg_pool3d.default": [
        Call(f(1, 2, 4, 5, 6), [1, 1, 1]),
        Call(f(1, 2, 4, 5, 6), [2, 3, 4]),
    ],
    "_native_batch_norm_legit_no_training.default": [
        Call(_X, f(4), f(4), f(4), f(4).abs() + 0.1, 0.1, 1e-5),
        Call(_X, None, None, f(4), f(4).abs() + 0.1, 0.1, 1e-3),
        Call(f(3, 4), f(4), f(4), f(4), f(4).abs() + 0.1, 0.1, 1e-5),
    ],
    "_native_batch_norm_legit.no_stats": [
        Call(_X, f(4), f(4), True, 0.1, 1e-5),
        Call(_X, None, None, True, 0.1, 1e-5),
    ],
    "native_group_norm.default": [
        Call(_X, f(4), f(4), 2, 4, 90, 2, 1e-5),
        Call(_X, None, None, 2, 4, 90, 4, 1e-3),
        Call(_X, f(4), None, 2, 4, 90, 1, 1e-5),
        Call(f(2, 4), None, None, 2, 4, 1, 2, 1e-5),
    ],
    "native_layer_norm.default": [
        Call(_X, [10], f(10), f(10), 1e-5),
        Call(_X, [9, 10], None, None, 1e-3),
        Call(_X, [10], f(10), None, 1e-5),
        Call(_X, [10], None, f(10), 1e-5),
    ],
    "native_dropout.default": [Call(_X, 0.5, False)],
    "upsample_bilinear2d.vec": [
        Call(_X, size, corners, scale)
        for corners in (False, True)
        for size, scale in (
            ([18, 20], None),
            ([5, 5], None),
            ([7, 13], None),
            ([1, 1], None),
            (None, [2.0, 2.0]),
            (None, [0.4, 0.4]),
            (None, [1.3, 0.7]),
        )
    ],
    "upsample_nearest2d.vec": [
        Call(_X, size, scale)
        for size, scale in (
            ([18, 20], None),
            ([5, 5], None),
            ([7, 13], None),
            ([17, 23], None),
            (None, [2.0, 2.0]),
            (None, [0.4, 0.4]),
            (None, [1.3, 0.7]),
        )
    ],
    "grid_sampler_2d.default": [
        Call(_X, _GRID, mode, padding, corners)
        for mode in (0, 1, 2)
        for padding in (0, 1, 2)
        for corners in (False, True)
    ]
    + [Call(f(1, 3, 8, 8), torch.rand(1, 2, 2, 2) * 2 - 1, 0, 0, False)],
    "col2im.default": [
        Call(f(2, 12, 20), [5, 6], [2, 2], _1, _0, _1),
        Call(f(2, 12, 6), [4, 6], [2, 2], _1, _0, [2, 2]),
        Call(f(12, 4), [4, 6], [2, 3], _1, _0, [2, 3]),
        Call(f(2, 12, 30), [6, 7], [2, 2], _1, _0, _1),
    ],
    "_fft_r2c.default": [Call(f(3, 8), [1], 0, True)],
    "_fft_c2r.default": [Call(torch.complex(f(3, 5), f(3, 5)), [1], 2, 8)],
}
