# SPDX-License-Identifier: Apache-2.0
"""Attributes are read by the declarations of their op."""

from types import SimpleNamespace

import pytest
from tvm.contrib.onednn.ir.op import attributes_of
from tvm.contrib.onednn.ir.op_view import OpView, Tensor
from tvm.contrib.onednn.ops.attrs import Attributes
from tvm.contrib.onednn.ops.table import TABLE


def read(name, **given):
    return attributes_of(name, SimpleNamespace(**given))


def number(value):
    """Return what an IR has for a number."""
    return SimpleNamespace(value=value)


def test_types_and_defaults():
    attrs = read("nn.conv2d", strides=[number(2), 2], groups=number(4), out_dtype=None)
    assert (attrs.strides, attrs.padding, attrs.groups) == ((2, 2), (0,), 4)
    assert (attrs.data_layout, attrs.kernel_layout, attrs.out_dtype) == ("NCHW", "OIHW", "")
    assert read("sum", axis=1, keepdims=1) == Attributes(axis=(1,), keepdims=True, exclude=False)
    assert read("sum").axis is None
    assert read("split", indices_or_sections=2).indices_or_sections == 2
    assert read("split", indices_or_sections=[1, 3]).indices_or_sections == (1, 3)
    assert read("nn.pad", pad_width=[[0, number(1)]]).pad_width == ((0, 1),)


def test_what_is_not_declared_is_kept():
    assert read("nn.dense", units=3) == Attributes(units=3, out_dtype="")
    given = SimpleNamespace(axis=[1])
    assert attributes_of("some.op", given) is given


def test_what_is_not_known_is_kept():
    """The rule refuses it."""
    symbol = object()
    call = OpView("strided_slice", [Tensor((3,), "float32")], (Tensor((2,), "float32"),))
    call = OpView(call.name, call.args, call.results, SimpleNamespace(begin=[symbol], end=[3]))
    assert call.attrs.begin == (symbol,)
    assert TABLE[call.name].reason(call) == "begin is not constant"


def test_attributes_cannot_be_changed():
    attrs = read("nn.softmax")
    with pytest.raises(AttributeError, match="axis cannot be changed"):
        attrs.axis = 1
    assert attributes_of("nn.log_softmax", attrs) is attrs


@pytest.mark.parametrize(
    "name, given, message",
    [
        ("clip", {"a_min": 0.0}, "attribute a_max of clip is not given"),
        ("nn.softmax", {"axis": "x"}, "attribute axis='x' of nn.softmax"),
    ],
)
def test_wrong_attributes(name, given, message):
    with pytest.raises(TypeError, match=message):
        read(name, **given)


def test_each_attribute_is_declared_once():
    for row in TABLE.values():
        names = [attr.name for attr in row.attrs]
        assert len(names) == len(set(names)), row.name
