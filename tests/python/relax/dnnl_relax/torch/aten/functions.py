# SPDX-License-Identifier: Apache-2.0
"""Calls of PyTorch's functions, of ops outside of the core set."""

import torch
import torch.nn.functional as F

from dnnl_relax.torch.aten.draws import EDGES, Call, f, i, n, p, t

_X = f(2, 3, 9, 10)


def _resized(mode, sizes, **options):
    calls = [Call(_X, size=size, mode=mode, **options) for size in sizes]
    return calls + [
        Call(_X, scale_factor=scale, mode=mode, **options) for scale in (2.0, 0.4, (1.3, 0.7))
    ]


_F = torch.fft


def _inverse_stft(x):
    x = _stft(x)
    return torch.istft(x * torch.polar(torch.ones(()), x.angle()), 16, 8, window=_WINDOW)


def _stft(x):
    return torch.stft(x, 16, 8, window=_WINDOW, return_complex=True)


def _mixed_modes(x):
    result = torch.zeros(*x.shape, dtype=torch.cfloat)
    result[..., :5] = torch.einsum("bix,iox->box", x[..., :5], _MODES)
    return result


_MODES = torch.complex(f(3, 3, 5), f(3, 3, 5))
_WINDOW = torch.hann_window(16)
_SIZES = (5, 5), (7, 13), (18, 20)

CALLS = {
    "interpolate_nearest": (F.interpolate, _resized("nearest", _SIZES)),
    "interpolate_nearest_exact": (F.interpolate, _resized("nearest-exact", _SIZES)),
    "linear": (F.linear, [Call(f(2, 5), f(3, 5), f(3)), Call(f(2, 4, 5), f(3, 5))]),
    "interpolate_bilinear": (F.interpolate, _resized("bilinear", _SIZES)),
    "interpolate_antialias": (F.interpolate, _resized("bilinear", _SIZES, antialias=True)),
    "interpolate_bicubic": (F.interpolate, _resized("bicubic", _SIZES)),
    "interpolate_1d": (
        F.interpolate,
        [Call(f(2, 3, 9), size=7), Call(f(2, 3, 9), scale_factor=1.7, mode="linear")],
    ),
    "interpolate_3d": (
        F.interpolate,
        [
            Call(f(1, 2, 3, 4, 5), size=(5, 3, 7)),
            Call(f(1, 2, 3, 4, 5), scale_factor=2.0, mode="trilinear"),
        ],
    ),
    "unfold": (F.unfold, [Call(_X, 3, padding=1), Call(_X, (2, 3), stride=2, dilation=2)]),
    "group_norm": (F.group_norm, [Call(_X, 3), Call(_X, 1, f(3))]),
    "index_add": (torch.index_add, [Call(f(3, 5), 0, t(2, 0, 2, 1), f(4, 5))]),
    "embedding_bag": (
        F.embedding_bag,
        [Call(n(3, 5), f(9, 4), mode=mode) for mode in ("sum", "mean", "max")]
        + [
            Call(n(6), f(9, 4), t(0, 2, 2), mode="mean"),
            Call(n(6), f(9, 4), t(0, 2, 6), mode="sum", include_last_offset=True),
            Call(n(3, 5), f(9, 4), mode="sum", per_sample_weights=p(3, 5)),
        ]
        + [Call(n(3, 5), f(9, 4), mode=mode, padding_idx=2) for mode in ("sum", "mean", "max")]
        + [Call(n(6).int(), f(9, 4), t(0, 2, 2).int(), mode="mean")],
    ),
    "any_of_bytes": (lambda x: (x.any(), x.any(1, keepdim=True)), [Call(i(4, 3).to(torch.uint8))]),
    "scatter_reduce": (
        torch.scatter_reduce,
        [
            Call(f(), 0, t(0)[0], f(), "sum"),
            Call(i(5) > 0, 0, t(1, 1, 4), i(3) > 0, "sum"),
        ],
    ),
    "sort_stable": (
        lambda x, descending: x.sort(stable=True, dim=0, descending=descending),
        [
            Call(i(9, 4), False),
            Call(i(9, 4).to(torch.uint8), True),
            Call(i(9) > 0, True),
            Call(t(*EDGES), True),
            Call(t(*EDGES), False),
            Call(f(0, 3), False),
        ],
    ),
    "extrema_with_nan": (
        lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), x.clamp(min=-1), x.clamp(max=1)),
        [Call(t(*EDGES), t(*EDGES[::-1])), Call(f(3, 4).double(), f(4).double())],
    ),
    "clamped_norm": (lambda x: F.normalize(x, dim=0), [Call(t(*EDGES)), Call(f(3, 4))]),
    "extrema_of_booleans": (lambda x, y: (x.maximum(y), x.minimum(y)), [Call(i(9) > 0, i(9) > 1)]),
    "negative": (lambda x: -x, [Call(i(5).to(torch.uint8)), Call(i(5).to(torch.int8))]),
    "cumprod": (lambda x: x.cumprod(0), [Call(f()), Call(f(3, 4))]),
    "compared_with_itself": (lambda x: (x != x, x == x), [Call(t(*EDGES)), Call(i(5))]),
    "topk_of_edges": (torch.topk, [Call(t(*EDGES), 3), Call(t(*EDGES), 3, largest=False)]),
    "topk_unsorted": (lambda x: x.topk(2, sorted=False).values.sum(-1), [Call(f(3, 9))]),
    "shared_head": (F.scaled_dot_product_attention, [Call(f(2, 4, 5, 8), *2 * [f(2, 1, 5, 8)])]),
    "floor_divide": (torch.floor_divide, [Call(i(3, 4), 3), Call(f(3, 4), 0.5)]),
    "with_none": (lambda x: (x + 1, None), [Call(f(4, 6))]),
    "views": (lambda x: (x.mT, x[1:], x), [Call(f(4, 6))]),
    "histc": (
        torch.histc,
        [
            Call(t(0.0, 1.0, 1.0, 3.0), 4, 0, 3),
            Call(f(40, 50), 7, -1.5, 1.1),
            Call(t(*EDGES), 6, -3, 3),
            Call(t(0.1, 0.2, 0.3, 0.6, 0.7, 0.8, 0.9, 1.0), 10, 0, 1),
            Call(f(0, 3), 4, 0, 3),
            Call(f(3, 4, dtype=torch.float64), 5, -1, 1),
            Call(f(9)),  # a range of the elements
        ],
    ),
    "stft": (lambda x: (_stft(x).abs(), torch.view_as_real(_stft(x))), [Call(f(2, 64))]),
    "rotated": (
        # As rotary embeddings are written with complex numbers.
        lambda x, y: torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(y)),
        [Call(f(2, 5, 4, 2), f(5, 4, 2))],
    ),
    "istft": (_inverse_stft, [Call(f(2, 64))]),
    "fft": (
        lambda x: (
            _F.fft(x).abs(),
            _F.irfft(_F.rfft(x)[..., :7], n=15, norm="forward"),
            _F.fftn(x, dim=(0, 2)).real,
            _F.ifft2(_F.fft2(x, norm="ortho")).conj().imag,
            _F.irfft2(_F.rfft2(x)),
            torch.cat([_F.rfft(x) + _F.rfft(2 * x), _F.rfft(x) / 3], 1).abs(),
        ),
        [Call(f(2, 6, 20))],
    ),
    "complex_weights": (
        # A layer of a Fourier neural operator.
        lambda x: _F.irfft(_mixed_modes(_F.rfft(x)), n=x.shape[-1]),
        [Call(f(2, 3, 16))],
    ),
    "max_pool": (F.max_pool2d, [Call(_X, 2), Call(_X, 3, padding=1, ceil_mode=True)]),
    "kthvalue": (torch.kthvalue, [Call(f(3, 9), 2), Call(f(4, 9), 4, 0, True), Call(f(), 1)]),
    "bucketize": (
        lambda x, edges, right: torch.bucketize(x, edges, right=right, out_int32=right),
        [Call(t(*EDGES), t(-1.0, 0.0, 2.0), right) for right in (False, True)],
    ),
    "searchsorted": (
        lambda edges, x: torch.searchsorted(edges, x, side="right"),
        [Call(f(3, 9).sort(-1)[0], f(3, 4)), Call(i(9).sort()[0], i(2, 4))],
    ),
    "masked_assignment": (
        lambda x, value: torch.where(x > 0, x, value).masked_fill(x < -1, 2.0),
        [Call(f(3, 5), f(5))],
    ),
}
