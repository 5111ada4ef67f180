# SPDX-License-Identifier: Apache-2.0
"""What each rule refuses: types that oneDNN lacks, no elements, and too many dimensions."""

from types import SimpleNamespace

import pytest
from tvm.contrib.onednn.ir.op import infer
from tvm.contrib.onednn.ir.op_view import OpView, Tensor
from tvm.contrib.onednn.ops.draw import drawn
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE

# The others have a tuple.
OPS = [name for name in TABLE if name not in ("concatenate", "stack")]


def accepted(name):
    """Return the operands, the result and the attributes of a drawn call that the rule accepts."""
    for call in drawn(TABLE[name]):
        attrs = SimpleNamespace(**call.attrs)
        first, *others = call.values
        if not (first.ndim and first.size):
            continue
        args = [Tensor(first.shape, str(first.dtype))]
        args += [Tensor(each.shape, str(each.dtype), each) for each in others]
        result = infer(name, args, attrs)
        if reason(name, args, result, attrs) is None:
            return args, result, attrs
    raise ValueError(f"no call of {name} with elements is accepted")


def reason(name, args, result, attrs):
    results = result if isinstance(result, tuple) else (result,)
    view = OpView(name, args, results, attrs, returns_tuple=isinstance(result, tuple))
    return Rules(TABLE).refusal(view)


@pytest.mark.parametrize("name", OPS)
def test_first_operand(name):
    args, result, attrs = accepted(name)
    data, others = args[0], args[1:]
    for dims, dtype, text in (
        (data.dims, "float64", "float64"),
        (data.dims, "int32", "int32"),
        ((0, *data.dims[1:]), data.dtype, "no elements"),
        ((*[1] * 12, *data.dims), data.dtype, ""),
    ):
        if name == "qnn.dequantize" and dtype == "int32":
            continue
        got = reason(name, [Tensor(dims, dtype), *others], result, attrs)
        assert got and text in got, (dims, dtype, got)
