# SPDX-License-Identifier: Apache-2.0
"""Each op of PyTorch's core ATen set, with edge values, as eager runs it.

The set is what PyTorch tags: a new op fails here until it has calls or a reason.
"""

import functools

import pytest

torch = pytest.importorskip("torch")

import tvm_dnnl  # noqa: E402
from tvm.contrib.onednn import cpu  # noqa: E402

from dnnl_relax.torch.aten import (  # noqa: E402
    draws,
    functions,
    layers,
    pointwise,
    reductions,
    tensors,
)
from dnnl_relax.torch.aten.expected import REFUSED, WITHOUT_CALLS  # noqa: E402
from dnnl_relax.torch.checking import check  # noqa: E402

aten = torch.ops.aten
_NAMES = [
    name.removeprefix("aten::").partition(".")
    for name in torch._C._dispatch_get_all_op_names()
    if name.startswith("aten::")
]
CORE = {
    f"{name}.{overload or 'default'}": op
    for name, _, overload in _NAMES
    if torch.Tag.core in (op := getattr(getattr(aten, name), overload or "default")).tags
}
CALLS = {
    name: (CORE[name], calls)
    for family in (pointwise, reductions, tensors, layers)
    for name, calls in family.CALLS.items()
    if name in CORE
}
CALLS.update(functions.CALLS)


def build(program):
    return tvm_dnnl.compile(program, prune=False)


def cases():
    """Yield one case per op that runs always, and one with the rest of its calls, nightly."""
    for name, (op, calls) in CALLS.items():
        runs = [each for i, each in enumerate(calls) if (name, i) not in REFUSED]
        if runs:
            yield pytest.param(op, runs[:2], id=name)
        if runs[2:]:
            yield pytest.param(op, runs[2:], id=f"{name}-more", marks=pytest.mark.nightly)


def test_each_core_op_has_calls_or_a_reason():
    given = {*CALLS, *WITHOUT_CALLS}
    assert not set(CORE) - given
    assert not set(CALLS) & set(WITHOUT_CALLS)
    # A release of PyTorch with fewer ops skips those.
    assert all(name in CALLS and i < len(CALLS[name][1]) for name, i in REFUSED)


@pytest.mark.parametrize("op, calls", cases())
def test_call(op, calls):
    draws.check(op, calls, build)


def in_16_bits():
    """Yield each op whose calls eager runs in these types."""
    always = ("convolution.default", "linear", "native_layer_norm.default", "sum.dim_IntList")
    for name in CALLS:
        for dtype in ("float16", "bfloat16"):
            marks = () if name in always else pytest.mark.nightly
            yield pytest.param(name, dtype, marks=marks)


@pytest.mark.parametrize("name, dtype", list(in_16_bits()))
def test_call_in_16_bits(name, dtype):
    """TVM's converters return float32 for some, and LLVM lacks functions of these types."""
    (op, calls), reduced = CALLS[name], getattr(torch, dtype)
    calls = [each for i, each in enumerate(calls) if (name, i) not in REFUSED]
    calls = [draws.in_type(each, torch.float32, reduced) for each in calls]
    calls = [each for each in calls if is_run(op, each, reduced)]
    if not calls:
        pytest.skip("no call that eager runs in this type")
    rounding = {"float16": 2.0**-9, "bfloat16": 2.0**-6}[dtype]
    exact = [draws.in_type(each, reduced, torch.float32) for each in calls]
    # Eager rounds in each step of some, such as grid_sample: `compile` need not compare with it.
    build_only = functools.partial(tvm_dnnl.compile, prune=False, verify=False)
    draws.check(op, calls, build_only, rounding, exact)


def is_run(op, call, dtype):
    """Whether eager runs a call that has tensors of a type."""
    leaves = torch.utils._pytree.tree_leaves([call.args, call.kwargs])
    if not any(isinstance(each, torch.Tensor) and each.dtype == dtype for each in leaves):
        return False
    try:
        op(*call.args, **call.kwargs)
    # Whatever it raises.
    except Exception:  # pylint: disable=broad-except
        return False
    return True


# Operands have 8 and 11 bits. Ops that are not here stay in float32 where they are alone.
@pytest.mark.parametrize("precision, bits", [("bfloat16", 8), ("float16", 11)])
@pytest.mark.parametrize(
    "name", ["addmm.default", "bmm.default", "convolution.default", "mm.default"]
)
def test_reduced_precision(name, precision, bits):
    if not cpu.computes(precision):
        pytest.skip(f"{precision} needs instructions that this CPU lacks")
    op, calls = CALLS[name]
    reduced = functools.partial(tvm_dnnl.compile, prune=False, precision=precision)
    draws.check(op, calls, reduced, rounding=2.0 ** (1 - bits))


@pytest.mark.parametrize("name, i", REFUSED, ids=lambda each: str(each))
def test_refused(name, i):
    """A call that is imported after all has to leave the table."""
    op, calls = CALLS[name]
    with pytest.raises(ValueError, match=REFUSED[name, i]) as raised:
        draws.check(op, [calls[i]], build)
    assert "aten." in str(raised.value)


@pytest.mark.parametrize("is_counted", [False, True])
@pytest.mark.parametrize(
    "window",
    [dict(kernel_size=2, stride=2), dict(kernel_size=(3, 2), stride=3, padding=1)],
    ids=str,
)
@pytest.mark.parametrize("divisor", [None, 3])
def test_average_pool_of_open_sizes_with_ceil_mode(window, is_counted, divisor):
    """TVM counts the padding that ceil_mode adds, and has no divisor."""
    more = dict(ceil_mode=True, count_include_pad=is_counted, divisor_override=divisor)
    model = torch.nn.AvgPool2d(**window, **more).eval()
    calls = [(torch.randn(1, 2, *sizes),) for sizes in ((7, 8), (8, 5), (9, 10), (6, 6))]
    dims = ({2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},)
    check(model, *calls, dynamic_shapes=dims, prune=False)


def test_repeats_by_an_open_size():
    """Positions are repeated for each item of a batch, as Whisper does it."""

    class Model(torch.nn.Module):
        def forward(self, x, y):
            return x + y.repeat(x.shape[0], 1, 2), y.repeat(x.shape[0], 1)

    calls = [(torch.randn(n, 3, 8), torch.randn(3, 4)) for n in (2, 1, 5)]
    dims = ({0: torch.export.Dim.DYNAMIC}, None)
    check(Model().eval(), *calls, dynamic_shapes=dims, prune=False)


def test_variance_of_many_elements_in_float16():
    """TVM sums in float16, which does not hold their number either."""

    class Model(torch.nn.Module):
        def forward(self, x):
            return x.var(0), x.std(0, correction=0)

    calls = [(torch.randn(n, 2).half(),) for n in (70_000, 66_000)]
    for dims in (({0: torch.export.Dim.DYNAMIC},), None):
        check(Model().eval(), *calls[: 2 if dims else 1], dynamic_shapes=dims, prune=False)


def test_ops_of_open_sizes():
    """TVM has no corrected variance along such an axis, no infinite fill, and no roll."""

    class Model(torch.nn.Module):
        def forward(self, x):
            length = x.shape[1]
            mask = torch.full((length, length), -torch.inf).triu(1)
            padded = torch.nn.functional.pad(x, (1, 1), mode="circular")
            return x.std(1), x.var((0, 1), correction=0), mask, x.roll((1, -2), (1, 2)), padded

    dims = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},)
    calls = [(torch.randn(n, length, 8),) for n, length in ((2, 6), (3, 2), (4, 9))]
    check(Model().eval(), *calls, dynamic_shapes=dims, prune=False)
