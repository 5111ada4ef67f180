# SPDX-License-Identifier: Apache-2.0
"""Tensors and calls, as the tables of this folder are written with."""

import ml_dtypes
import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

_SEED = torch.Generator().manual_seed(0)


class Call:
    """Arguments of an op: tensors become inputs of the program, other values stay in it."""

    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs


def f(*shape, dtype=torch.float32):
    """Draw floats, of the order of 1."""
    return torch.randn(shape, generator=_SEED).to(dtype)


def p(*shape):
    """Draw floats between 0.1 and 0.9, which are in the domain of every function."""
    return torch.rand(shape, generator=_SEED) * 0.8 + 0.1


def i(*shape, low=-5, high=6, dtype=torch.int64):
    """Draw integers of both signs."""
    return torch.randint(low, high, shape, generator=_SEED, dtype=dtype)


def n(*shape, dtype=torch.int64):
    """Draw positive integers."""
    return torch.randint(1, 5, shape, generator=_SEED, dtype=dtype)


def b(*shape):
    """Draw booleans."""
    return torch.rand(shape, generator=_SEED) > 0.5


def t(*values, dtype=None):
    """Return a tensor of these values."""
    return torch.tensor(values, dtype=dtype)


def s(value, dtype=None):
    """Return a tensor without dimensions."""
    return torch.tensor(value, dtype=dtype)


NAN, INF = float("nan"), float("inf")
#: Values at which functions of floats differ. Maxima may drop NaN, as the option `exact_nan` says.
FINITE = (0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-30, 1e30, INF, -INF)
EDGES = (*FINITE, NAN)


def check(op, calls, build, rounding=None, exact=None):
    """Compare what `build` makes of one exported program of all these calls with eager.

    Parameters
    ----------
    op : callable
        The op, or a function.
    calls : sequence of Call
        Its arguments.
    build : callable
        Returns what runs a `torch.export.ExportedProgram` on arrays.
    rounding : float, optional
        Of reduced precision: how far a number may be off, relative to the largest one.
    exact : sequence of Call, optional
        The calls in float32, if eager is less exact in their type.
    """
    model = _Apply(op, calls)
    # torch.export 2.13 checks the base of a view that is an input, and an exported one has none.
    inputs = tuple(each.clone() for each in _tensors([(each.args, each.kwargs) for each in calls]))
    with torch.no_grad():
        want = [_tensors(op(*each.args, **each.kwargs)) for each in calls]
        values = [_tensors(op(*each.args, **each.kwargs)) for each in exact or calls]
        got = build(torch.export.export(model, inputs))(*inputs)
    got = list(got) if isinstance(got, (tuple, list)) else [got]
    assert len(got) == sum(map(len, want))
    for i, call in enumerate(zip(want, values)):
        for other, value in zip(*call):
            one, dtype = np.asarray(got.pop(0)), str(other.dtype).removeprefix("torch.")
            assert (one.shape, one.dtype) == (tuple(other.shape), dtype), f"call {i}"
            expected = numbers(value.to(other.dtype))
            # Elementary functions in float32, and sums of a few hundred products, reordered.
            rtol, atol = 2e-4, 2e-5
            if rounding is not None:
                one, expected = (np.asarray(each, "float64") for each in (one, expected))
                finite = np.abs(expected[np.isfinite(expected)])
                rtol, atol = 0, rounding * finite.max(initial=0) if other.is_floating_point() else 0
            np.testing.assert_allclose(one, expected, rtol, atol, err_msg=f"call {i}")


def numbers(tensor):
    """Return a tensor as an array."""
    tensor = tensor.resolve_neg().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def in_type(call, old, new):
    """Return a call with its tensors of a type in another one."""

    def converted(leaf):
        return leaf.to(new) if isinstance(leaf, torch.Tensor) and leaf.dtype == old else leaf

    args, kwargs = tree_map(converted, (call.args, call.kwargs))
    return Call(*args, **kwargs)


class _Apply(torch.nn.Module):
    def __init__(self, op, calls):
        super().__init__()
        self.op, self.calls = op, calls

    def forward(self, *tensors):
        left = iter(tensors)

        def bound(leaf):
            return next(left) if isinstance(leaf, torch.Tensor) else leaf

        trees = [tree_map(bound, [each.args, each.kwargs]) for each in self.calls]
        return [self.op(*args, **kwargs) for args, kwargs in trees]


def _tensors(tree):
    return tuple(each for each in tree_leaves(tree) if isinstance(each, torch.Tensor))
