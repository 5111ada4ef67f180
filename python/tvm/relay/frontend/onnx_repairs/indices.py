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
"""Repairs of ONNX ops that read positions: negative ones count from the end."""

from __future__ import annotations

import numpy as np

from ... import expr as _expr
from ... import op as _op
from .incremental import infer_shape, infer_type
from .refusals import refuse


def replaced(inputs, position, value):
    """Return inputs of the same class, one of which is another."""
    result = type(inputs)(inputs)
    result[position] = value
    return result


def _from_the_start(indices, sizes, computed_sizes):
    """Return indices of which those below zero are counted from the end.

    Parameters
    ----------
    indices : Expr
        The indices.
    sizes : list or int
        The size of the axis that they are for, or those of the axes that each vector is for.
    computed_sizes : Callable
        Computes the sizes, where one of them is open.
    """
    is_known = all(isinstance(size, int) for size in np.ravel(sizes).tolist())
    if isinstance(indices, _expr.Constant):
        values = indices.data.numpy()
        if not (values < 0).any():
            return indices
        if is_known:
            return _expr.const(np.where(values < 0, values + sizes, values), str(values.dtype))
    dtype = infer_type(indices).checked_type.dtype
    if not dtype.startswith("int"):
        return indices
    sizes = _expr.const(sizes, dtype) if is_known else _op.cast(computed_sizes(), dtype)
    return _op.where(indices < _expr.const(0, dtype), indices + sizes, indices)


def gather(name, convert, inputs, attrs, params):
    """Count negative indices, and a negative axis, from the end.

    `take` clips them, and `scatter_elements` writes memory before the tensor.
    """
    data, shape = inputs[0], infer_shape(inputs[0])
    axis = attrs.get("axis", 0) % len(shape)

    def computed():
        return _op.take(_op.shape_of(data, "int64"), _expr.const(axis))

    indices = _from_the_start(inputs[1], shape[axis], computed)
    return convert(replaced(inputs, 1, indices), {**attrs, "axis": axis}, params)


def gather_nd(name, convert, inputs, attrs, params):
    """Count negative indices from the end: `gather_nd` reads memory before the data."""
    data, begin = inputs[0], attrs.get("batch_dims", 0)
    end = begin + infer_shape(inputs[1])[-1]

    def computed():
        return _op.strided_slice(_op.shape_of(data, "int64"), [begin], [end])

    indices = _from_the_start(inputs[1], list(infer_shape(data)[begin:end]), computed)
    return convert(replaced(inputs, 1, indices), attrs, params)


def scatter_nd(name, convert, inputs, attrs, params):
    """Count negative indices from the end: `scatter_nd` writes memory before the data."""
    data, count = inputs[0], infer_shape(inputs[1])[-1]

    def computed():
        return _op.strided_slice(_op.shape_of(data, "int64"), [0], [count])

    indices = _from_the_start(inputs[1], list(infer_shape(data)[:count]), computed)
    return convert(replaced(inputs, 1, indices), attrs, params)


def shape_between(name, convert, inputs, attrs, params):
    """Return the sizes from `start` to `end`, which TVM ignores for open sizes."""
    bounds = [attrs.get("start", 0), attrs.get("end")]
    sizes = convert(inputs, {k: v for k, v in attrs.items() if k not in ("start", "end")}, params)
    if bounds == [0, None]:
        return sizes
    begin, end, _ = slice(*bounds).indices(len(infer_shape(inputs[0])))
    return _op.strided_slice(sizes, [begin], [max(begin, end)])


def top_k(name, convert, inputs, attrs, params):
    """Sort, and take the first elements; of the smallest, TVM computes bounds that overflow.

    The elements are in order, also where they need not be.
    """
    count, axis, is_largest = inputs[1], attrs.get("axis", -1), attrs.get("largest", 1)
    attrs.get("sorted")
    dtype = infer_type(inputs[0]).checked_type.dtype
    if dtype == "uint64":
        refuse(name, attrs, f"data of the type {dtype}")
    if not isinstance(count, _expr.Constant):
        return convert(inputs, attrs, params)
    if not count.data.numpy().any():
        # TVM returns all of them.
        none = _op.strided_slice(inputs[0], [0], [0], [1], [axis])
        return _expr.TupleWrapper(_expr.Tuple([none, _op.cast(none, "int64")]), 2)
    if is_largest:
        return convert(inputs, attrs, params)
    data = inputs[0]
    axis %= len(infer_shape(data))
    orders = _op.sort(data, axis=axis), _op.argsort(data, axis=axis, dtype="int64")
    end = [int(count.data.numpy().item())]
    first = [_op.strided_slice(each, [0], end, [1], [axis]) for each in orders]
    return _expr.TupleWrapper(_expr.Tuple(first), 2)


def split(name, convert, inputs, attrs, params):
    """Split into parts of which some are empty, and into a number of parts, as since opset 18."""
    data, lengths = inputs[0], inputs[1] if len(inputs) > 1 else None
    shape, count = infer_shape(data), attrs.get("num_outputs")
    axis = attrs.get("axis", 0) % len(shape)
    if attrs["tvm_custom"]["num_outputs"] == 1:
        return _op.copy(data)
    size, is_constant = shape[axis], isinstance(lengths, _expr.Constant)
    if count is not None and isinstance(size, int):
        # The last part is smaller.
        ends = [min((k + 1) * -(-size // count), size) for k in range(count)]
    elif is_constant and not lengths.data.numpy().all():
        ends = np.cumsum(lengths.data.numpy()).tolist()
    else:
        return convert(inputs, attrs, params)
    bounds = zip([0, *ends], ends)
    parts = [_op.strided_slice(data, [begin], [end], [1], [axis]) for begin, end in bounds]
    return parts[0] if len(parts) == 1 else _expr.TupleWrapper(_expr.Tuple(parts), len(parts))


def eye_like(name, convert, inputs, attrs, params):
    """Compare the positions: TVM writes beside a matrix that ends before the diagonal does."""
    import onnx  # pylint: disable=import-outside-toplevel

    kind, shape = attrs.get("dtype"), _op.shape_of(inputs[0], "int64")
    dtype = infer_type(inputs[0]).checked_type.dtype
    dtype = dtype if kind is None else str(onnx.helper.tensor_dtype_to_np_dtype(kind))
    rows, columns = (
        _op.arange(_expr.const(0, "int64"), _op.take(shape, _expr.const(axis)), dtype="int64")
        for axis in (0, 1)
    )
    rows = _op.expand_dims(rows, 1) + _expr.const(attrs.get("k", 0), "int64")
    return _op.cast(_op.equal(rows, _op.expand_dims(columns, 0)), dtype)


def one_hot(name, convert, inputs, attrs, params):
    """Convert OneHot of any type of indices and depth, which is a vector before opset 11."""
    indices, depth = inputs[:2]
    if isinstance(depth, _expr.Constant):
        depth = _expr.const(int(depth.data.numpy().reshape(())), "int64")
    else:
        depth = _op.cast(_op.reshape(depth, []), "int64")
    if infer_type(indices).checked_type.dtype.startswith("float"):
        indices = _op.cast(indices, "int64")
    return convert(replaced(replaced(inputs, 0, indices), 1, depth), attrs, params)


def reverse_sequence(name, convert, inputs, attrs, params):
    """Convert ReverseSequence without axes, which TVM requires."""
    return convert(inputs, {"time_axis": 0, "batch_axis": 1, **attrs}, params)


def sequence_insert(name, convert, inputs, attrs, params):
    """Count a negative position from the end: TVM inserts one position later."""
    at = inputs[2] if len(inputs) > 2 else None
    if isinstance(at, _expr.Constant) and int(at.data.numpy()) < 0:
        at = _expr.const(int(at.data.numpy()) + len(inputs[0]), "int64")
        inputs = replaced(inputs, 2, at)
    return convert(inputs, attrs, params)
