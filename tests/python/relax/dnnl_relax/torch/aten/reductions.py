# SPDX-License-Identifier: Apache-2.0
"""Calls of reductions, sorts and scans."""

import math

import torch

from dnnl_relax.torch.aten.draws import NAN, Call, b, f, i, t

_X = f(2, 3, 4)
# Rows without a number above the lowest, and NaN.
_MASKED = t(
    [-math.inf] * 4,
    [-math.inf, torch.finfo(torch.float32).min, *[-math.inf] * 2],
    [1, NAN, math.inf, NAN],
    [math.inf] * 4,
    [NAN] * 4,
    [3, -math.inf, 5, 5],
)


def _reduced(*more, integers=True):
    calls = [
        Call(_X, [1]),
        Call(_X, [-1], True),
        Call(_X, [0, 2]),
        Call(_X, [-1, 0], True),
        Call(_X.transpose(0, 2), [1]),
        Call(f(2, 1, 3), [1]),
        Call(_X, []),
        Call(_X, [], True),
        Call(f(), []),
        Call(f(), [0]),
    ]
    if integers:
        calls += [Call(i(2, 3, 4), [1]), Call(i(2, 3, dtype=torch.int32), [0]), Call(b(2, 3), [1])]
    return calls + list(more)


def _arg():
    calls = [Call(_X, 1), Call(_X, -1, True), Call(_X), Call(_X, None, True), Call(i(2, 3), 0)]
    calls += [Call(_MASKED.to(dtype), -1) for dtype in (torch.float64, torch.float16)]
    lowest = [torch.full((2, 3), torch.iinfo(d).min, dtype=d) for d in (torch.uint8, torch.int32)]
    calls += [Call(_MASKED), *(Call(x, 1) for x in lowest)]
    special = [Call(_MASKED, 1), Call(-_MASKED, 1)]
    return [*special, *calls, Call(f()), Call(t(1.0, 2.0, 2.0, 1.0), 0)]


def _with_indices():
    calls = [Call(_X, 1), Call(_X, -1, True), Call(i(2, 3), 0), Call(f(), 0), Call(b(2, 3), 1)]
    return [*calls, Call(t(1.0, 2.0, 2.0, 1.0), 0), Call(_X.transpose(0, 2), 1)]


CALLS = {
    "amax.default": _reduced(Call(_X)),
    "amin.default": _reduced(Call(_X)),
    "sum.dim_IntList": _reduced(
        Call(_X, None),
        Call(_X, None, True),
        Call(_X, [1], dtype=torch.float64),
        Call(i(2, 3), [1], dtype=torch.float32),
        Call(f(2, 0), [1]),
        Call(f(0, 3), [0], True),
    ),
    "mean.dim": _reduced(
        Call(_X, None),
        Call(_X, None, True),
        Call(i(2, 3), [1], dtype=torch.float32),
        Call(f(2, 0), [1]),
        integers=False,
    ),
    "mean.default": [Call(_X), Call(f()), Call(i(2, 3), dtype=torch.float32)],
    "prod.default": [
        Call(_X),
        Call(i(2, 3)),
        Call(b(3)),
        Call(_X, dtype=torch.float64),
        Call(f(0)),
    ],
    "prod.dim_int": [Call(_X, 1), Call(_X, -1, True), Call(i(2, 3), 0), Call(f(2, 0), 1)],
    "any.default": [Call(b(2, 3)), Call(f(2, 3)), Call(i(2, 3)), Call(t(0.0, 0.0)), Call(b(0))],
    "any.dim": [Call(b(2, 3), 1), Call(f(2, 3), -1, True), Call(i(2, 3), 0), Call(b(2, 0), 1)],
    "any.dims": [Call(b(2, 3, 4), [0, 2]), Call(f(2, 3), [1], True), Call(b(2, 3)), Call(b(2), [])],
    "var.correction": [
        Call(_X),
        Call(_X, [1]),
        Call(_X, [1], correction=0),
        Call(_X, [0, 2], correction=2, keepdim=True),
        Call(_X, [-1], correction=0.5),
        Call(_X, []),
    ],
    "var.dim": [Call(_X, [1]), Call(_X, [1], False), Call(_X, [0, -1], True, True), Call(_X, None)],
    "argmax.default": _arg(),
    "argmin.default": _arg(),
    "max.dim": _with_indices(),
    "min.dim": _with_indices(),
    "sort.default": [
        Call(_X),
        Call(_X, 0, True),
        Call(i(3, 7), 1),
        Call(t(2.0, 1.0, 2.0, 1.0, 2.0), 0, True),
        Call(f()),
        Call(_MASKED.double()),
        Call(_MASKED.double(), -1, True),
    ],
    "topk.default": [
        Call(f(3, 9), 2),
        Call(f(3, 9), 4, -1, False),
        Call(f(5, 3), 2, 0),
        Call(torch.randperm(12).reshape(3, 4), 2),
        Call(f(3, 4), 4),
        Call(f(3, 4), 0),
        Call(t(1.0, NAN, math.inf, -math.inf).double(), 2),
        Call(t(1.0, NAN, math.inf, -math.inf).double(), 2, -1, False),
    ],
    "cumsum.default": [
        Call(_X, 1),
        Call(_X, -1),
        Call(i(2, 3), 0),
        Call(b(2, 3), 1),
        Call(i(2, 3), 1, dtype=torch.float32),
        Call(i(4, dtype=torch.int32), 0),
        Call(f(), 0),
        Call(f(0, 3), 0),
    ],
    "_softmax.default": [
        Call(_X, 1, False),
        Call(_X, -1, False),
        Call(f(), 0, False),
        Call(f(0, 3), 1, False),
    ],
    "_log_softmax.default": [Call(_X, 1, False), Call(_X, -1, False), Call(f(), 0, False)],
    "_cdist_forward.default": [Call(f(3, 4), f(5, 4), 2.0, 2), Call(f(3, 4), f(5, 4), 1.0, None)],
    "_pdist_forward.default": [Call(f(4, 3), 2.0), Call(f(4, 3), 1.0)],
    "mm.default": [
        Call(f(3, 4), f(4, 5)),
        Call(f(4, 3).t(), f(5, 4).t()),
        Call(f(3, 0), f(0, 5)),
        Call(i(3, 4), i(4, 5)),
        Call(f(3, 4, dtype=torch.float64), f(4, 5, dtype=torch.float64)),
    ],
    "bmm.default": [
        Call(f(2, 3, 4), f(2, 4, 5)),
        Call(f(2, 4, 3).mT, f(2, 4, 5)),
        Call(f(0, 3, 4), f(0, 4, 5)),
        Call(i(2, 3, 4), i(2, 4, 5)),
    ],
    "addmm.default": [
        Call(f(5), f(3, 4), f(4, 5)),
        Call(f(3, 5), f(3, 4), f(4, 5), beta=0.5, alpha=2),
        Call(f(5), f(3, 4), f(4, 5), beta=0),
        Call(t(NAN), f(3, 4), f(4, 5), beta=0),
        Call(i(5), i(3, 4), i(4, 5), beta=2, alpha=3),
    ],
}
