# SPDX-License-Identifier: Apache-2.0
"""Types of results: what is inferred is what the numpy definition computes.

Open dimensions are symbols, and numbers are put in their places afterwards.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from tvm.contrib.onednn.ir.dim import Dim, broadcast, substituted
from tvm.contrib.onednn.ir.op import has_row, infer
from tvm.contrib.onednn.ir.op_view import Tensor
from tvm.contrib.onednn.ops.draw import drawn
from tvm.contrib.onednn.ops.evaluate import define, evaluate_op, has_definition
from tvm.contrib.onednn.ops.reshape import reshaped
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.ops.windows import windows

# Of these the size of a result may depend on what an open size is.
UNKNOWN = {"dnnl.open_reshape", "reshape", "strided_slice"}
# Of these the axes may depend on which dimensions are one.
STATIC_ONES = {"squeeze"}


def tensors(type_):
    return type_ if isinstance(type_, tuple) else (type_,)


def widened(value):
    if isinstance(value, list):
        return list(map(widened, value))
    return value.astype("float64") if value.dtype.kind == "f" else value


def test_each_row_is_known():
    assert all(has_row(name) and has_definition(name) for name in TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_static(name):
    for call in drawn(TABLE[name]):
        attrs = SimpleNamespace(**call.attrs)
        type_ = infer(name, call.types(), attrs)
        values = define(name)(attrs, type_, *map(widened, call.values))
        values = values if isinstance(values, list) else [values]
        shapes = [value.shape for value in values]
        assert shapes == [tensor.dims for tensor in tensors(type_)], call
        results = evaluate_op(name, attrs, type_, call.values)
        results = results if isinstance(results, list) else [results]
        dtypes = [str(result.dtype) for result in results]
        assert dtypes == [tensor.dtype for tensor in tensors(type_)], call
        assert all(np.isfinite(result.astype("float64")).all() for result in results), call


@pytest.mark.parametrize("name", TABLE)
def test_open(name):
    for seed, call in enumerate(drawn(TABLE[name])):
        attrs = SimpleNamespace(**call.attrs)
        shapes = [tensor.dims for types in call.types() for tensor in tensors(types)]
        sizes = sorted({size for shape in shapes for size in shape} - {0, 1})
        if seed % 2 and name not in STATIC_ONES:
            sizes.append(1)
        opened = {size: Dim.symbol(f"n{size}") for size in sizes[seed % 3 :: 1 + seed % 2]}
        types = call.types(opened)
        expected, got = infer(name, call.types(), attrs), infer(name, types, attrs)
        numbers = {f"n{size}": size for size in opened}
        for wanted, tensor in zip(tensors(expected), tensors(got), strict=True):
            dims = [substituted(dim, numbers) for dim in tensor.dims]
            assert len(dims) == len(wanted.dims)
            for size, dim in zip(wanted.dims, dims):
                assert dim in (None, size), f"{call.attrs} {[t.dims for t in types]}: {dims}"
                is_two = len({*opened.values()} & set(np.ravel(shapes_of(types)))) > 1
                # Whether a window is left out, and what the channels of groups are.
                is_ceil = call.attrs.get("ceil_mode", False)
                is_grouped = call.attrs.get("groups", 1) > 1
                assert dim is not None or name in UNKNOWN or is_two or is_grouped or is_ceil, call


def shapes_of(types):
    return [dim for each in types for tensor in tensors(each) for dim in tensor.dims]


def test_reshape_codes():
    n, m = Dim.symbol("n"), Dim.symbol("m")
    assert reshaped((n, 4, m), [0, -1]) == (n, 4 * m)
    assert reshaped((n, 4, m), [-1]) == (4 * n * m,)
    assert reshaped((n, 4, m), [-3, 0]) == (4 * n, m)
    assert reshaped((n, 4, m), [0, -4, 2, -1, -2]) == (n, 2, 2, m)
    assert reshaped((n, 4), [-1, 2]) == (2 * n, 2)
    assert reshaped((n, 3), [-1, 2]) == (None, 2)


def test_broadcast():
    n, m = Dim.symbol("n"), Dim.symbol("m")
    assert broadcast((n, 1), (4,)) == (n, 4)
    assert broadcast((n,), (n,)) == (n,)
    assert broadcast((n,), (4,)) == (4,)
    # Either may be one.
    assert broadcast((n,), (m,)) == (None,)
    assert broadcast((n,), (m + 1,)) == broadcast((m + 1,), (n,)) == (m + 1,)


def test_windows():
    n = Dim.symbol("n")
    assert windows(7, (1, 1), 3, 2) == 4 and windows(8, (0, 0), 3, 2) == 3
    assert windows(8, (0, 0), 3, 2, is_ceil=True) == 4
    # It would begin in the padding.
    assert windows(1, (0, 2), 1, 2, is_ceil=True) == 1
    assert windows(n, (0, 2), 1, 2, is_ceil=True) is None
    assert windows(n, (0, 0), 3, 2, is_ceil=True) == n // 2
    assert windows(n, (1, 1), 3, 1, is_ceil=True) == n
    assert windows(None, (1, 1), 3, 1) is None


def test_sizes_that_different_ways_lead_to_are_equal():
    """Halved and doubled by a U-Net: the skip connection joins tensors of one size."""
    n = Dim.symbol("n")
    window = dict(strides=[2], padding=[1], dilation=[1], layout="NCW", pool_size=[3])
    half = infer("nn.max_pool1d", [Tensor((1, 8, 2 * n), "float32")], SimpleNamespace(**window))
    assert half.dims == (1, 8, n)
    attrs = SimpleNamespace(size=None, layout="NCW", method="nearest_neighbor", scale_w=2.0)
    assert infer("image.resize1d", [half], attrs).dims == (1, 8, 2 * n)
