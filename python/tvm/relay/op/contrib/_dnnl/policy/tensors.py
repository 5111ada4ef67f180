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
"""Reading Relay types: the tensors of a call and what they must be like for oneDNN."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from tvm import ir, relay, tir

from . import cpu

# The code generator: the value of "Compiler", and what composites' names begin with.
COMPILER = "dnnl"

# oneDNN's DNNL_MAX_NDIMS.
MAX_RANK = 12

# The types of quantized tensors.
EIGHT_BITS = ("uint8", "int8")

# The types that ops have which move elements and compute nothing.
MOVED = (*cpu.REAL, *EIGHT_BITS)

# Names of Relay ops by their address: TVM keeps each op, and to ask it for the name is slow.
_NAMES: dict[int, str] = {}


def op_name(expr) -> str | None:
    """Return the name of the Relay op that `expr` calls, or None for anything else."""
    op = expr.op if isinstance(expr, relay.Call) else None
    if not isinstance(op, ir.Op):
        return None
    address = op.handle.value
    if address not in _NAMES:
        _NAMES[address] = op.name
    return _NAMES[address]


def callee_name(expr) -> str | None:
    """Return the Relay op or the composite that `expr` calls, or None for anything else.

    A virtual op is a composite that has a row of its own.
    """
    func = expr.op if isinstance(expr, relay.Call) else None
    if not isinstance(func, relay.Function):
        return op_name(expr)
    attrs = func.attrs
    return str(attrs["Composite"]) if attrs is not None and "Composite" in attrs else None


def dims(type_: relay.TensorType) -> tuple[int | None, ...]:
    """Return the dimensions of a tensor type, None for an open one.

    Relay's open dimensions have no names, so two of them in one place of two shapes count as the
    same: the runtime looks at each call whether they are.
    """
    return tuple(dim.value if isinstance(dim, tir.IntImm) else None for dim in type_.shape)


def shape_of(expr) -> tuple[int | None, ...]:
    """Return the shape of an expression of tensor type, with None for open dimensions."""
    return dims(expr.checked_type)


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
    return f"{name} of shape {text_of_shape(shape)} has open {dim}, which oneDNN must know"


def ints(values) -> tuple[int, ...] | None:
    """Return an attribute's integers, or None if one of them is symbolic."""
    values = list(values)
    if not all(isinstance(value, (int, tir.IntImm)) for value in values):
        return None
    return tuple(int(value) for value in values)


def named_types(call: relay.Call) -> Iterator[tuple[str, ir.Type]]:
    """Yield a name for people and the type of each argument and each result of a call."""
    infos = call.op.arguments
    for i, arg in enumerate(call.args):
        yield (infos[i].name if i < len(infos) else f"argument {i}"), arg.checked_type
    result = call.checked_type
    if isinstance(result, relay.TupleType):
        for i, field in enumerate(result.fields):
            yield f"result {i}", field
    else:
        yield "result", result


def text_of_shape(shape) -> str:
    """Write a shape as numpy does, with "?" for an open dimension."""
    texts = ["?" if dim is None else str(dim) for dim in shape]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def list_of(names: tuple[str, ...]) -> str:
    """Write names as in "a, b or c"."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def tensor_reason(
    name: str, type_: ir.Type, min_rank: int = 0, dtypes: tuple[str, ...] = cpu.REAL
) -> str | None:
    """Say why one tensor cannot be handed to oneDNN.

    Parameters
    ----------
    name : str
        What people call the tensor, such as "data".
    type_ : tvm.ir.Type
        Its Relay type.
    min_rank : int
        The least rank that is accepted.
    dtypes : tuple[str, ...]
        The data types that are accepted, those of real numbers if the CPU has them.

    Returns
    -------
    reason : str | None
        None if the tensor is fine.
    """
    if not isinstance(type_, relay.TensorType):
        return f"{name} is not a tensor but of {type(type_).__name__}"
    if type_.dtype not in dtypes:
        return f"{name} is {type_.dtype}, not {list_of(dtypes)}"
    if type_.dtype in cpu.REAL and not cpu.computes(type_.dtype):
        return f"{name} is {type_.dtype}, which oneDNN cannot compute with on this CPU"
    shape = dims(type_)
    if any(dim is not None and dim < 0 for dim in shape):
        text = text_of_shape(shape)
        return f"{name} has shape {text}; import the model with relay.Any() for what is open"
    if len(shape) < min_rank:
        return f"{name} has shape {text_of_shape(shape)}; at least rank {min_rank} is needed"
    if len(shape) > MAX_RANK:
        return f"{name} has rank {len(shape)}; oneDNN has at most {MAX_RANK} dimensions"
    if 0 in shape:
        return f"{name} has shape {text_of_shape(shape)} and so no elements"
    return None


@functools.lru_cache(maxsize=None)
def has_shape_function(name: str) -> bool:
    """Whether TVM's VM can tell the shape of the result of an op, Relay's or a virtual one."""
    return name.startswith(f"{COMPILER}.") or ir.Op.get(name).get_attr("FShapeFunc") is not None


def shape_function_reason(name: str, result: ir.Type) -> str | None:
    """Say that TVM cannot tell the shape of a call's result, if that is open."""
    if has_shape_function(name):
        return None
    types = result.fields if isinstance(result, relay.TupleType) else [result]
    if all(None not in dims(type_) for type_ in types):
        return None
    return "the result is open, and TVM has no shape function for this op"


def tensors_reason(
    call: relay.Call, min_rank: int = 0, dtypes: tuple[str, ...] = cpu.REAL
) -> str | None:
    """Say why any of the tensors of a call cannot be handed to oneDNN (see `tensor_reason`).

    All are of one type, but the result of reduced precision may be float32.
    """
    first = None
    for name, type_ in named_types(call):
        reason = tensor_reason(name, type_, min_rank, dtypes)
        if reason:
            return reason
        first = first or (name, type_.dtype)
        if type_.dtype not in (first[1], "float32" if name == "result" else first[1]):
            return f"{first[0]} is {first[1]}, but {name} is {type_.dtype}"
    return None


def data_elements(call: relay.Call) -> int:
    """Count the elements of the first argument of a call, an open dimension as one."""
    return known_product(shape_of(call.args[0]))


def result_elements(call: relay.Call) -> int:
    """Count the elements that a call computes, an open dimension as one."""
    types: list[ir.Type] = [call.checked_type]
    if isinstance(types[0], relay.TupleType):
        types = list(types[0].fields)
    return sum(known_product(dims(type_)) for type_ in types)
