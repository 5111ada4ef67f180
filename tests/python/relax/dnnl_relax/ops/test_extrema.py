# SPDX-License-Identifier: Apache-2.0
"""Extrema that stay on TVM: of masked rows, of NaN, and of nothing."""

import numpy as np
import pytest
import tvm
import tvm_dnnl
from tvm import relax
from tvm.contrib.onednn.ir.numpy_types import numpy_type

from dnnl_relax.modules import virtual_machine

NAMES = "max", "min", "argmax", "argmin"


def extrema(x, axis, keepdims):
    """Return a module of the four extrema, which is not partitioned."""
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        axes = [axis if "arg" in name or axis is None else [axis] for name in NAMES]
        calls = [getattr(relax.op, n)(x, a, keepdims) for n, a in zip(NAMES, axes)]
        builder.emit_func_output(relax.Tuple([builder.emit(call) for call in calls]))
    return builder.get()


def special(dtype):
    """Return rows of which an extremum, or a start of TVM's, may be missed."""
    if dtype == "bool":
        return np.array([[True, False, True], [False] * 3, [True] * 3])
    if "int" in dtype:
        info = np.iinfo(dtype)
        return np.array([[info.min] * 3, [info.max] * 3, [1, info.max, info.min]], dtype)
    nan, inf = np.nan, np.inf
    large = float(np.finfo("float16" if dtype == "float16" else "float32").max)
    rows = [
        *([-inf] * 3, [inf] * 3, [-inf, -large, inf], [large] * 3, [-inf, -large, -inf]),
        *([nan] * 3, [1, -nan, nan], [-inf, nan, inf], [nan, 1, 2], [0, -1, 1]),
    ]
    return np.array(rows, dtype=numpy_type(dtype))


@pytest.mark.parametrize(
    "axis, keepdims, is_open", [(1, False, True), (0, True, False)], ids=["open", "fixed"]
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8", "bool"])
def test_extrema(dtype, axis, keepdims, is_open):
    x = special(dtype)
    shape = [tvm.tirx.Var("n", "int64"), 3] if is_open else x.shape
    mod = extrema(relax.Var("x", relax.TensorType(shape, dtype)), axis, keepdims)
    wide = x.astype("float64") if "float" in dtype else x
    for got, name in zip(virtual_machine(mod)["main"](tvm.runtime.tensor(x)), NAMES):
        want = getattr(np, name)(wide, axis=axis, keepdims=keepdims)
        np.testing.assert_array_equal(got.numpy().astype(want.dtype), want, err_msg=name)


def test_extrema_of_nothing():
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 0), "float32"))
    with builder.function("main", [x]):
        calls = [builder.emit(getattr(relax.op, name)(x, [1])) for name in NAMES[:2]]
        builder.emit_func_output(relax.Tuple(calls))
    results = virtual_machine(builder.get())["main"](tvm.runtime.tensor(np.zeros((2, 0), "f4")))
    assert [each.numpy().tolist() for each in results] == [[-np.inf] * 2, [np.inf] * 2]


def test_extrema_of_a_partitioned_module():
    """The partitioner leaves what it refuses to TVM, which users compile themselves."""
    x = relax.Var("x", relax.TensorType((10, 3), "float64"))
    mod = tvm_dnnl.partition_for_dnnl(extrema(x, None, False))
    assert tvm_dnnl.offload_report(mod).offloaded == 0
    value = special("float64")
    got = virtual_machine(mod)["main"](tvm.runtime.tensor(value))
    assert [np.isnan(each.numpy()) if k < 2 else each.numpy() for k, each in enumerate(got)] == [
        *(True, True),
        *[np.flatnonzero(np.isnan(value))[0]] * 2,
    ]
