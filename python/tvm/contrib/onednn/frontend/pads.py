# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Explicit pads in place of ONNX's `auto_pad`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

_OPS = ("AveragePool", "Conv", "MaxPool")


def set_pads(graph: onnx.GraphProto, shapes: Mapping[str, list[int | None]]) -> None:
    """Replace `auto_pad` of convolutions and pools with `pads` where these are known, in place.

    TVM's importers cannot compute them for open sizes, where they depend on the stride only, and
    TVM 0.27 computes those of `SAME_LOWER` of a MaxPool incorrectly. It ignores the `output_shape`
    of a ConvTranspose, which is replaced, too.

    Parameters
    ----------
    graph : onnx.GraphProto
        The graph.
    shapes : Mapping[str, list[int | None]]
        The sizes of values by name, None for those that are not known.
    """
    from onnx.helper import get_attribute_value, make_attribute

    for node in graph.node:
        attrs = {each.name: get_attribute_value(each) for each in node.attribute}
        mode = attrs.get("auto_pad", b"NOTSET").decode()
        is_standard = node.domain in ("", "ai.onnx")
        if is_standard and node.op_type == "ConvTranspose" and "output_shape" in attrs:
            new = _transposed_pads(node, attrs, mode, shapes)
        elif is_standard and node.op_type in _OPS and mode != "NOTSET":
            new = {"pads": _pads(node, attrs, mode, shapes)} if not attrs.get("ceil_mode") else {}
        else:
            continue
        if not new or None in new.values():
            continue
        replaced = {"auto_pad", "output_shape", *new}
        kept = [each for each in node.attribute if each.name not in replaced]
        del node.attribute[:]
        node.attribute.extend([*kept, *(make_attribute(*each) for each in new.items())])


def _pads(node, attrs, mode, shapes) -> list[int] | None:
    weight = shapes.get(node.input[1]) if node.op_type == "Conv" else None
    kernel = attrs.get("kernel_shape") or (weight or [])[2:]
    if not kernel or None in kernel:
        return None
    rank = len(kernel)
    if mode == "VALID":
        return [0] * (2 * rank)
    return same_pads(mode, attrs, kernel, (shapes.get(node.input[0]) or [None] * (rank + 2))[2:])


def _transposed_pads(node, attrs, mode, shapes) -> dict[str, list[int] | None] | None:
    """Return the attributes with which a ConvTranspose has its `output_shape`."""
    weight = shapes.get(node.input[1]) or []
    kernel = attrs.get("kernel_shape") or weight[2:]
    sizes = (shapes.get(node.input[0]) or [])[2:]
    if not kernel or len(sizes) != len(kernel) or None in (*kernel, *sizes):
        return None
    rank = len(kernel)
    strides, dilations = (attrs.get(name, [1] * rank) for name in ("strides", "dilations"))
    more = list(attrs.get("output_padding", [0] * rank))
    begin, end = [], []
    for axis, wanted in enumerate(attrs["output_shape"][-rank:]):
        window = (kernel[axis] - 1) * dilations[axis] + 1
        total = strides[axis] * (sizes[axis] - 1) + more[axis] + window - wanted
        # A result that is larger than all windows has zeros at its end.
        more[axis] += max(-total, 0)
        total = max(total, 0)
        begin.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
        end.append(total - begin[-1])
    return {"pads": [*begin, *end], "output_padding": more}


def same_pads(
    mode: str,
    attrs: Mapping[str, Any],
    kernel: Sequence[int | None],
    sizes: Sequence[int | None],
) -> list[int] | None:
    """Return the `pads` of a convolution or pool for an `auto_pad`.

    Parameters
    ----------
    mode : str
        "SAME_UPPER" or "SAME_LOWER".
    attrs : Mapping[str, Any]
        The attributes of the node, of which `strides` and `dilations` are read.
    kernel, sizes : Sequence[int | None]
        The sizes of the kernel and of the image, None for an open one.

    Returns
    -------
    pads : list[int] | None
        The pads at the beginning of each axis, then those at its end; None if they depend on an
        open size.
    """
    ones = [1] * len(kernel)
    strides, dilations = (attrs.get(name, ones) for name in ("strides", "dilations"))
    before, after = [], []
    for size, length, stride, dilation in zip(sizes, kernel, strides, dilations):
        if length is None:
            return None
        total = (length - 1) * dilation
        # With a stride of 1 the result has the size of the image, whatever that is.
        if stride != 1:
            if size is None:
                return None
            total += (-(-size // stride) - 1) * stride + 1 - size
        total = max(total, 0)
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        after.append(large if mode == "SAME_UPPER" else small)
    return before + after
