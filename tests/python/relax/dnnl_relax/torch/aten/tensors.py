# SPDX-License-Identifier: Apache-2.0
"""Calls of ops that view, index and create tensors."""

import torch

from dnnl_relax.torch.aten.draws import Call, b, f, i, n, s, t

_X = f(2, 3, 4)
_INDICES = t(1, 0, -1), t(-2, 2, 0)
_DIM = t([0, 2, 1, 1], [2, 0, 1, 0])

CALLS = {
    "alias.default": [Call(_X)],
    "clone.default": [Call(_X), Call(_X.mT), Call(_X.mT, memory_format=torch.contiguous_format)],
    "view.default": [Call(_X, [6, 4]), Call(_X, [-1]), Call(f(2, 0, 3), [0, 6]), Call(f(), [1, 1])],
    "permute.default": [
        Call(_X, [2, 0, 1]),
        Call(_X, [-1, 0, -2]),
        Call(_X.mT, [1, 0, 2]),
        Call(f(), []),
    ],
    "expand.default": [
        Call(f(3, 1), [2, 3, 4]),
        Call(f(3, 1), [-1, 4]),
        Call(f(), [2]),
        Call(f(1, 3), [0, 3]),
    ],
    "unsqueeze.default": [Call(_X, 0), Call(_X, -1), Call(_X, -4), Call(f(), 0)],
    "squeeze.dim": [Call(f(2, 1, 3), 1), Call(f(2, 1, 3), -2), Call(f(2, 1, 3), 0), Call(f(), 0)],
    "squeeze.dims": [Call(f(1, 2, 1), [0, -1]), Call(f(1, 2, 1), [0, 1]), Call(f(1, 2, 1), [])],
    "flip.default": [Call(_X, [1]), Call(_X, [-1, 0]), Call(_X, []), Call(i(3), [0])],
    "repeat.default": [
        Call(f(2, 3), [2, 1]),
        Call(f(2, 3), [2, 1, 3]),
        Call(f(), [2]),
        Call(f(3), [0]),
    ],
    "cat.default": [
        Call([f(2, 3), f(2, 2)], 1),
        Call([f(2, 3), f(1, 3)], -2),
        Call([f(2, 3), i(2, 3)]),
        Call([f(0), f(2, 3)], 0),
        Call([i(2), i(3, dtype=torch.int32)]),
        Call([f(2, 3), f(2, 0)], 1),
        Call([b(2), b(3)]),
    ],
    "split_with_sizes.default": [Call(f(5, 3), [2, 3]), Call(_X, [1, 0, 3], -1), Call(f(4), [4])],
    "select.int": [Call(_X, 1, 0), Call(_X, -1, -1), Call(_X, 0, -2), Call(f(3), 0, 1)],
    "slice.Tensor": [
        Call(_X, 1, 1),
        Call(_X, 2, -3, -1),
        Call(_X, 2, 0, 100, 3),
        Call(_X, 0, -100, 1),
        Call(_X, 2, 0, 4, 100),
        Call(_X, 1, 3, 3),
        Call(_X, 1, 2, 1),
        Call(_X, -1, None, None, 2),
        Call(_X, 1, 0, 2**63 - 1),
    ],
    "slice_scatter.default": [
        Call(_X, f(2, 1, 4), 1, 1, 2),
        Call(_X, f(2, 3, 2), 2, 0, 4, 2),
        Call(_X, f(2, 3, 2), -1, -2),
        Call(_X, _X + 1),
        Call(_X, f(2, 0, 4), 1, 2, 2),
        Call(i(4), i(2), 0, -3, -1),
        Call(_X, f(2, 2, 4), 1, -2, 100),
    ],
    "select_scatter.default": [
        Call(_X, f(2, 4), 1, 0),
        Call(_X, f(2, 3), -1, -1),
        Call(i(4), s(9), 0, -2),
    ],
    "as_strided.default": [
        Call(_X, [3, 4], [4, 1]),
        Call(_X, [2, 2], [1, 3], 5),
        Call(f(6), [3], [2]),
    ],
    "diagonal.default": [
        Call(f(3, 4)),
        Call(f(3, 4), 1),
        Call(f(3, 4), -2),
        Call(_X, 0, 1, -1),
        Call(f(2, 2), 2),
    ],
    "constant_pad_nd.default": [
        Call(_X, [1, 2]),
        Call(_X, [0, 1, 2, 0], 0.5),
        Call(_X, [-1, 0]),
        Call(_X, [-1, 2, 1, -1], 3),
        Call(i(3), [1, 1], 7),
        Call(b(3), [1, 1], True),
    ],
    "reflection_pad1d.default": [Call(_X, [2, 1]), Call(f(3, 4), [0, 3])],
    "reflection_pad2d.default": [Call(_X, [2, 1, 0, 1]), Call(f(1, 2, 4, 5), [1, 3, 2, 0])],
    "reflection_pad3d.default": [Call(f(1, 2, 3, 4, 5), [1, 2, 0, 1, 2, 0])],
    "replication_pad2d.default": [Call(_X, [2, 1, 0, 1]), Call(f(1, 2, 4, 5), [1, 6, 2, 0])],
    "replication_pad3d.default": [Call(f(1, 2, 3, 4, 5), [1, 2, 0, 1, 4, 0])],
    "index.Tensor": [
        Call(_X, [t(1, 0, -1)]),
        Call(_X, [None, t(-1, 2)]),
        Call(_X, [*_INDICES]),
        Call(_X, [_INDICES[0], None, t(-4, 3, 0)]),
        Call(_X, [None, *_INDICES[1:], t(-1, 2, 0)]),
        Call(_X, [t(0, -1)[:, None], t(-1, 1, 0)]),
        Call(_X, [s(-1)]),
        Call(_X, [t(1, 0, dtype=torch.int32)]),
        Call(_X.transpose(0, 2), [t(3, -1)]),
        Call(_X, [t([0, -1], [1, 1])]),
        Call(_X, [t(dtype=torch.int64)]),
        Call(_X, [_INDICES[0], _INDICES[1], t(3, -1, -4)]),
    ],
    "index_put.default": [
        Call(_X, [t(1, -2)], f(2, 3, 4)),
        Call(_X, [t(1, -2)], s(0.5)),
        Call(_X, [None, t(-1)], f(4)),
        Call(_X, [None, t(-1, 0)], f(2, 2, 4)),
        Call(_X, [t(0, 1), t(-1, 2)], f(2, 4)),
        Call(_X, [t(0, 1), None, t(-1, 2)], f(2, 3)),
        Call(f(3, 4), [t(0, 0, -3)], f(3, 4), True),
        Call(f(5), [t(0, 0, -3)], s(1.0), True),
        Call(f(3, 5), [b(3, 5)], s(0.5)),
        Call(f(3, 5), [t(True, False, True)], s(0.5)),
        Call(f(3, 5), [t(True, False, True)], f(5)),
        Call(f(3, 5), [t(True, False, True)], f(1, 5)),
        Call(f(3, 5), [b(3, 5)], s(0.5), True),
        Call(f(3, 5), [None, t(True, False, True, False, True)], f(3, 1)),
        Call(i(5), [t(-1, 1)], t(7, 8)),
    ],
    "index_select.default": [Call(_X, 1, t(2, 0)), Call(_X, -1, t(3, 3, 0)), Call(f(3), 0, s(1))],
    "gather.default": [
        Call(f(3, 4), 0, _DIM),
        Call(f(3, 4), 1, _DIM),
        Call(f(3, 4), -1, _DIM[:1]),
        Call(i(3, 4), 1, _DIM),
        Call(f(3), 0, s(1)),
        Call(f(4, 3).t(), 0, _DIM),
    ],
    "scatter.value": [
        Call(f(3, 4), 0, _DIM, 0.5),
        Call(f(3, 4), -1, _DIM[:, :2], 2),
        Call(i(3, 4), 0, _DIM, 9),
    ],
    "scatter.src": [
        Call(f(3, 4), 0, t([0, 2, 1, 1]), f(1, 4)),
        Call(f(3, 4), -1, t([0, 2], [1, 3]), f(3, 3)),
    ],
    "scatter_add.default": [
        Call(f(3, 4), 0, _DIM, f(2, 4)),
        Call(f(3, 4), -1, _DIM[:, :2], f(3, 4)),
        Call(i(3, 4), 0, _DIM, i(2, 4)),
        Call(f(3), 0, t(0, 0, 0), f(3)),
    ],
    "scatter_reduce.two": [
        Call(f(3, 4), 0, _DIM, f(2, 4), reduce, include_self=include)
        for reduce in ("sum", "prod", "amax", "amin", "mean")
        for include in (True, False)
    ]
    + [
        Call(f(2, 2), 0, t([0, 0]), t([-torch.inf, torch.inf]), reduce, include_self=False)
        for reduce in ("amax", "amin")
    ],
    "masked_scatter.default": [Call(f(3, 4), b(3, 4), f(12)), Call(f(3, 4), b(4), f(20))],
    "embedding.default": [
        Call(f(9, 4), n(3, 5)),
        Call(f(9, 4), n(3, dtype=torch.int32)),
        Call(f(9, 4), s(3)),
        Call(f(9, 4), n(3, 5), 2),
        Call(f(9, 4), t(dtype=torch.int64)),
    ],
    "arange.start_step": [
        Call(0, 5),
        Call(5, -2, -2),
        Call(0, 1, 0.3),
        Call(2, 9, 2, dtype=torch.float32),
        Call(3, 3),
    ],
    "full.default": [
        Call([2, 3], 2.5),
        Call([2], 3),
        Call([2], True),
        Call([], 1.0),
        Call([0, 2], 1.0),
        Call([2], 3, dtype=torch.float32),
    ],
    "full_like.default": [
        Call(f(2, 3), 2),
        Call(i(2, 3), 2),
        Call(i(2), 2.5, dtype=torch.float32),
        Call(b(3), 1),
    ],
    "scalar_tensor.default": [
        Call(2.5),
        Call(3),
        Call(3, dtype=torch.int64),
        Call(True, dtype=torch.bool),
    ],
    "_to_copy.default": [
        Call(f(3, 4) * 4, dtype=torch.int64),
        Call(i(3, 4), dtype=torch.float32),
        Call(f(3, 4), dtype=torch.bool),
        Call(t(0.0, 0.3, -0.3), dtype=torch.bool),
        Call(i(3, 4), dtype=torch.bool),
        Call(b(3, 4), dtype=torch.int32),
        Call(f(3, 4), dtype=torch.float64),
        Call(f(3, 4), dtype=torch.float16),
        Call(f(3, 4)),
        Call(i(3, low=0, high=300), dtype=torch.uint8),
    ],
}
