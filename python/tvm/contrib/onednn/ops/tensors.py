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
"""Checks of shapes and data types that the tensors of any op must pass."""

from __future__ import annotations

import math
from collections.abc import Iterator

from .. import cpu
from ..ir.op_view import OpView, Tensor, Value, tensor_of

# The code generator: the value of "Compiler", and what composites' names begin with.
COMPILER = "dnnl"

# oneDNN's DNNL_MAX_NDIMS.
MAX_RANK = 12

# The types of quantized tensors.
EIGHT_BITS = ("uint8", "int8")

# The types that ops have which move elements and compute nothing.
MOVED = (*cpu.REAL, *EIGHT_BITS)

# Those of which elements may be moved, truths among them.
VIEWED = (*MOVED, "bool")

# A constant that is written out, instead of computed when the model runs, has no more elements.
MOST_FILLED = 1 << 20


def known_product(shape) -> int:
    """Multiply the dimensions that are known: the least number of elements, but for empty ones."""
    return math.prod(dim for dim in shape if dim is not None)


def open_reason(name: str, dim: str, size: int | None, shape) -> str | None:
    """Say that a dimension must be known, if it is open.

    Parameters
    ----------
    name, dim : str
        What people call the tensor and its dimension, such as "data" and "channels".
    size : int | None
        The dimension.
    shape : Sequence[int | None]
        The tensor's shape.
    """
    if size is not None:
        return None
    return f"{name} of shape {text_of_shape(shape)} has open {dim}; oneDNN requires a fixed size"


def ints(values) -> tuple[int, ...] | None:
    """Return an attribute's integers, or None if one of them is symbolic."""
    values = [getattr(value, "value", value) for value in values]
    return tuple(values) if all(isinstance(value, int) for value in values) else None


def named_tensors(call: OpView) -> Iterator[tuple[str, Value]]:
    """Yield each argument and each result of a call with a name for people."""
    yield from zip(call.arg_names, call.args)
    for i, result in enumerate(call.results):
        yield (f"result {i}" if call.returns_tuple else "result"), result


def text_of_shape(shape) -> str:
    """Write a shape as numpy does, with "?" for an open dimension."""
    texts = ["?" if dim is None else str(dim) for dim in shape]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def list_of(names: tuple[str, ...]) -> str:
    """Write names as in "a, b or c"."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def tensor_reason(
    name: str, tensor: Value, min_rank: int = 0, dtypes: tuple[str, ...] = cpu.REAL
) -> str | None:
    """Say why one tensor cannot be handed to oneDNN.

    Parameters
    ----------
    name : str
        What people call the tensor, such as "data".
    tensor : Value
        The tensor, or whatever it is that is no tensor.
    min_rank : int
        The least rank that is accepted.
    dtypes : tuple[str, ...]
        The data types that are accepted, those of floating-point values if the CPU has them.

    Returns
    -------
    reason : str | None
        None if the tensor is fine.
    """
    if not isinstance(tensor, Tensor):
        return f"{name} is of {getattr(tensor, 'kind', 'TupleType')}, not a tensor"
    shape, dtype = tensor.shape, tensor.dtype
    if dtype not in dtypes:
        return f"{name} is {dtype}, not {list_of(dtypes)}"
    if cpu.lacks(dtype):
        return f"{name} is {dtype}, which oneDNN does not support on this CPU"
    if any(dim is not None and dim < 0 for dim in shape):
        text = text_of_shape(shape)
        return f"{name} has shape {text}; give the input a size there, or leave it open"
    if len(shape) < min_rank:
        return f"{name} has shape {text_of_shape(shape)}; at least rank {min_rank} is required"
    if len(shape) > MAX_RANK:
        return f"{name} has rank {len(shape)}; oneDNN supports at most {MAX_RANK} dimensions"
    if 0 in shape:
        return f"{name} has shape {text_of_shape(shape)}, which has no elements"
    return None


def shape_function_reason(call: OpView) -> str | None:
    """Say that TVM cannot tell the shape of a call's result, if that is open."""
    if call.has_shape_function or all(
        None not in tensor_of(result).shape for result in call.results
    ):
        return None
    return "the result has open dimensions, and TVM has no shape function for this op"


def tensors_reason(
    call: OpView, min_rank: int = 0, dtypes: tuple[str, ...] = cpu.REAL
) -> str | None:
    """Say why any of the tensors of a call cannot be handed to oneDNN (see `tensor_reason`).

    All are of one type, but the result of reduced precision may be float32.
    """
    first = None
    for name, tensor in named_tensors(call):
        reason = tensor_reason(name, tensor, min_rank, dtypes)
        if reason:
            return reason
        dtype = tensor_of(tensor).dtype
        first = first or (name, dtype)
        if dtype not in (first[1], "float32" if name == "result" else first[1]):
            return f"{first[0]} is {first[1]}, but {name} is {dtype}"
    return None


def data_elements(call: OpView) -> int:
    """Count the elements of the first argument of a call, an open dimension as one."""
    return known_product(tensor_of(call.args[0]).shape)


def result_elements(call: OpView) -> int:
    """Count the elements that a call computes, an open dimension as one."""
    return sum(known_product(tensor_of(result).shape) for result in call.results)


def axis_reason(call: OpView) -> str | None:
    """Accept tensors of rank 1 or more, and any axis of the first."""
    reason = tensors_reason(call, min_rank=1)
    if reason:
        return reason
    data, axis = tensor_of(call.args[0]).shape, call.attrs.axis
    if not -len(data) <= axis < len(data):
        return f"axis={axis} is out of range for data of shape {text_of_shape(data)}"
    return None


def view_reason(call: OpView) -> str | None:
    """Accept tensors of floats, 8-bit integers or booleans."""
    for name, tensor in named_tensors(call):
        reason = tensor_reason(name, tensor, dtypes=VIEWED)
        if reason:
            return reason
    return None


def last_axis(call: OpView) -> int:
    """Return the last axis of a call's result."""
    return len(tensor_of(call.result).shape) - 1
