# SPDX-License-Identifier: Apache-2.0
"""Calls of elementwise ops."""

import torch

from dnnl_relax.torch.aten.draws import EDGES, FINITE, INF, NAN, Call, b, f, i, n, p, s, t

_FLOAT = """abs acos acosh asin asinh atan atanh ceil cos cosh erf exp expm1 floor log log10 log1p
    log2 neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc""".split()
#: Those that return integers for integers, and refuse booleans.
_KEEP = "abs ceil floor neg relu round sign trunc".split()
_COMPARE = "eq ge gt le lt ne".split()


def _unary(name):
    shift = 1.0 if name == "acosh" else 0.0
    calls = [Call(p(3, 4) + shift), Call((p(4, 3) + shift).t()), Call(p() + shift), Call(p(0, 3))]
    calls += [
        Call(n(3, 4)),
        Call(n(5, dtype=torch.int32)),
        Call(t(*(FINITE if name == "relu" else EDGES))),
    ]
    if name in _KEEP:
        calls += [Call(f(3, 4)), Call(i(3, 4)), Call(i(4, dtype=torch.int8))]
    else:
        calls += [Call(b(3, 4))]
    return calls


def _binary(name, integers=True, booleans=True):
    calls = [
        Call(f(3, 4), f(3, 4)),
        Call(f(3, 4), f(4)),
        Call(f(3, 1), f(1, 4)),
        Call(f(4, 3).t(), f(3, 4)),
        Call(f(3, 4), s(2.0)),
        Call(f(0, 4), f(1, 4)),
        Call(f(3, 4), f(3, 4, dtype=torch.float64)),
        Call(t(1.0, INF, -INF), t(2.0, INF, 1.0)),
    ]
    if integers:
        calls += [
            Call(f(3, 4), n(3, 4)),
            Call(i(3, 4), p(3, 4)),
            Call(i(3, 4), n(3, 4)),
            Call(i(3, 4, dtype=torch.int32), n(3, 4)),
            Call(i(3, 4), n(3, 4) * -1),
            Call(i(3, 4), s(2.0)),
            Call(n(4, dtype=torch.uint8), n(4, dtype=torch.int8)),
        ]
    if booleans:
        calls += [Call(b(3, 4), n(3, 4)), Call(f(3, 4), b(3, 4))]
    return calls


def _scalar(integers=True):
    calls = [Call(f(3, 4), 2), Call(f(3, 4), -0.5), Call(f(), 3), Call(f(2, 0), 2)]
    if integers:
        calls += [Call(i(3, 4), 2), Call(i(3, 4), -3), Call(i(3, 4), 1.5), Call(b(3, 4), 2)]
        calls += [Call(i(5, dtype=torch.int32), 0.5), Call(i(5, dtype=torch.int8), 3)]
    return calls


CALLS = {f"{name}.default": _unary(name) for name in _FLOAT}
CALLS["round.default"] += [Call(t(-3.5, -2.5, -0.5, 0.5, 1.5, 2.5))]
CALLS.update({f"{name}.Tensor": _binary(name) + [Call(b(4), b(4))] for name in _COMPARE})
CALLS.update({f"{name}.Scalar": _scalar() + [Call(t(*EDGES), 0.5)] for name in _COMPARE})
CALLS.update(
    {
        "add.Tensor": [
            *_binary("add"),
            Call(f(3, 4), f(4), alpha=0.5),
            Call(i(3, 4), i(4), alpha=-2),
            Call(b(4), b(4)),
        ],
        "add.Scalar": [*_scalar(), Call(f(3), 2, 0.5), Call(i(3), 2, 3)],
        "sub.Tensor": [
            *_binary("sub", booleans=False),
            Call(f(3, 4), f(4), alpha=0.5),
            Call(i(3, 4), i(4), alpha=-2),
        ],
        "sub.Scalar": [*_scalar()[:-3], Call(f(3), 2, 0.5), Call(i(3), 2, 3)],
        "mul.Tensor": [*_binary("mul"), Call(b(4), b(4))],
        "mul.Scalar": _scalar(),
        "div.Tensor": [*_binary("div"), Call(b(4), n(4)), Call(f(3), t(0.0, -0.0, 2.0))],
        "div.Scalar": _scalar(),
        "div.Tensor_mode": [
            Call(*call.args, rounding_mode=mode)
            for mode in (None, "trunc", "floor")
            for call in _binary("div", booleans=False)
        ],
        "div.Scalar_mode": [
            Call(*call.args, rounding_mode=mode)
            for mode in (None, "trunc", "floor")
            for call in _scalar()[:7]
        ],
        "fmod.Tensor": _binary("fmod", booleans=False),
        "fmod.Scalar": _scalar()[:7],
        "remainder.Tensor": _binary("remainder", booleans=False),
        "remainder.Scalar": _scalar()[:7],
        "maximum.default": _binary("maximum"),
        "minimum.default": _binary("minimum"),
        "atan2.default": _binary("atan2"),
        "pow.Tensor_Tensor": [
            Call(p(3, 4), f(3, 4)),
            Call(p(3, 4), f(4)),
            Call(p(3, 4), i(3, 4)),
            Call(i(3, 4), n(3, 4)),
            Call(n(3, 4), f(3, 4)),
            Call(t(-2.0, 0.0, 0.0, -1.5), t(3.0, 0.0, -1.0, 0.5)),
        ],
        "pow.Tensor_Scalar": [
            Call(x, e) for x in (f(3, 4), p(3, 4), i(3, 4)) for e in (2, 3, 0, 1, 0.5, 2.0)
        ]
        + [Call(p(3), -1), Call(p(3), -0.5), Call(p(), 2)],
        "pow.Scalar": [Call(2, f(3, 4)), Call(2, n(3, 4)), Call(1.5, n(3)), Call(0.5, f())],
        "clamp.default": [
            Call(f(3, 4), -0.5, 0.5),
            Call(f(3, 4), None, 0.5),
            Call(f(3, 4), 0),
            Call(i(3, 4), -1, 2),
            Call(i(3, 4), None, 2),
            Call(i(3, 4), -1.5, 2.5),
            Call(f(3, 4), 0.5, -0.5),
            Call(t(*FINITE), -1, 1),
        ],
        "clamp.Tensor": [
            Call(f(3, 4), f(4) - 1, f(3, 1) + 1),
            Call(f(3, 4), None, f(4)),
            Call(f(3, 4), s(0.0)),
            Call(i(3, 4), s(-1), s(2)),
            Call(i(3, 4), f(4), None),
        ],
        "elu.default": [Call(f(3, 4)), Call(f(3, 4), 0.5), Call(f(3, 4), 0.5, 2.0, 3.0)],
        "gelu.default": [Call(f(3, 4)), Call(f(3, 4), approximate="tanh"), Call(t(*EDGES))],
        "hardtanh.default": [Call(f(3, 4)), Call(f(3, 4), 0.0, 6.0), Call(i(3, 4), -2, 3)],
        "leaky_relu.default": [Call(f(3, 4)), Call(f(3, 4), 0.5), Call(f(3, 4), -0.5)],
        "isinf.default": [Call(t(*EDGES)), Call(i(4))],
        "isnan.default": [Call(t(*EDGES)), Call(i(4))],
        "where.self": [
            Call(b(3, 4), f(3, 4), f(3, 4)),
            Call(b(3, 1), f(4), f(3, 4)),
            Call(b(3, 4), s(1.0), s(2)),
            Call(b(3, 4), i(3, 4), f(4)),
            Call(b(3, 4), i(3, 4), i(4, dtype=torch.int32)),
            Call(b(), f(3), f(3)),
        ],
        "copy.default": [
            Call(f(3, 4), f(3, 4)),
            Call(f(3, 4), f(4)),
            Call(i(3, 4), f(3, 4)),
            Call(f(3, 4), s(2)),
        ],
        "fill.Scalar": [Call(f(3, 4), 2), Call(i(3, 4), 2.5), Call(b(3), 1)],
    }
)
for _name in ("and", "or", "xor"):
    CALLS[f"bitwise_{_name}.Tensor"] = [
        Call(i(3, 4), i(3, 4)),
        Call(b(3, 4), b(4)),
        Call(i(3, 4, dtype=torch.int32), i(3, 4)),
        Call(b(3, 4), i(4)),
        Call(i(3, 4), s(3)),
    ]
    CALLS[f"bitwise_{_name}.Scalar"] = [Call(i(3, 4), 3), Call(b(3, 4), True), Call(b(4), 3)]
    CALLS[f"logical_{_name}.default"] = [
        Call(b(3, 4), b(3, 4)),
        Call(f(3, 4), b(4)),
        Call(i(3, 4), i(3, 4)),
        Call(t(0.0, 0.5, NAN), t(-0.0, 2.0, 0.0)),
    ]
CALLS["bitwise_not.default"] = [Call(i(3, 4)), Call(b(3, 4)), Call(i(4, dtype=torch.int8))]
CALLS["logical_not.default"] = [Call(b(3, 4)), Call(i(3, 4)), Call(t(0.0, 0.5, NAN))]
