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
"""Ops of ONNX that fold most often, in NumPy: most of them move or convert elements.

Importing the reference implementation of `onnx`, which has all ops, takes longer than folding.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx


def evaluate(
    node: onnx.NodeProto, values: Sequence[np.ndarray | None], opsets: Mapping[str, int]
) -> list[np.ndarray] | None:
    """Return the outputs of a node for its inputs, None if `onnx` cannot compute them.

    `opsets` has the version of each domain.
    """
    import onnx

    types = numeric_types()
    if any(each.name in ("to", "dtype") and each.i not in types for each in node.attribute):
        return None
    known = evaluate_in_numpy(
        node, values, max(opsets.get(domain, 0) for domain in ("", "ai.onnx"))
    )
    if known is not None:
        return known
    from onnx.reference import ReferenceEvaluator

    infos = {
        name: onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in zip(node.input, values)
        if value is not None
    }
    wanted = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "node", list(infos.values()), wanted)
    imports = [onnx.helper.make_opsetid(*each) for each in opsets.items()]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=imports))
            results = evaluator.run(None, {n: v for n, v in zip(node.input, values) if n})
    except Exception:  # of whatever kind: it does not support all ops and attributes
        return None
    if len(results) != len(node.output):
        return None
    results = [np.asarray(each) for each in results if not isinstance(each, (list, dict))]
    is_numeric = all(each.dtype.kind in "biuf" for each in results)
    return results if is_numeric and len(results) == len(node.output) else None


def numeric_types() -> set[int]:
    """Return the element types that numpy has; `onnx` has substitutes for the others."""
    import onnx

    names = "BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 FLOAT16 FLOAT DOUBLE"
    return {getattr(onnx.TensorProto, name) for name in names.split()}


def evaluate_in_numpy(
    node: onnx.NodeProto, values: Sequence[np.ndarray | None], opset: int
) -> list[np.ndarray] | None:
    """Return the outputs of a node of the standard domain.

    Parameters
    ----------
    node : onnx.NodeProto
        The node, which has one output.
    values : Sequence[np.ndarray | None]
        Its inputs; None for one that it omits.
    opset : int
        The version of the standard domain.

    Returns
    -------
    outputs : list[np.ndarray] | None
        None for another op, and for inputs that are not valid.
    """
    import onnx

    function = _FUNCTIONS.get(node.op_type)
    if function is None or opset < _FIRST_OPSETS.get(node.op_type, 1):
        return None
    attrs = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    with contextlib.suppress(IndexError, KeyError, TypeError, ValueError):
        return [np.asarray(function(attrs, *values))]
    return None


# The first versions in which ops broadcast, or have inputs where they had attributes.
_FIRST_OPSETS = {
    **dict.fromkeys(("Add", "Equal", "Less", "Mul", "Sub"), 7),
    "Reshape": 5,
}


def _cast(attrs: Mapping, data):
    import onnx

    with np.errstate(all="ignore"):
        return data.astype(onnx.helper.tensor_dtype_to_np_dtype(attrs["to"]))


def _concat(attrs: Mapping, *fields):
    return np.concatenate(fields, attrs["axis"])


def _constant_of_shape(attrs: Mapping, shape):
    import onnx

    value = onnx.numpy_helper.to_array(attrs["value"]) if "value" in attrs else np.float32(0)
    return np.full(shape.tolist(), value.reshape(()), value.dtype)


def _expand(attrs: Mapping, data, shape):
    return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape.tolist()))).copy()


def _gather(attrs: Mapping, data, indices):
    return np.take(data, indices, attrs.get("axis", 0))


def _not(attrs: Mapping, data):
    if data.dtype.kind != "b":
        raise TypeError
    return np.logical_not(data)


def _range(attrs: Mapping, start, limit, delta):
    values = [each.item() for each in (start, limit, delta)]
    # Of other floating-point numbers, the rounding of each depends on how they are computed.
    is_exact = start.dtype.kind == "i" or (
        start.dtype == "float32" and all(each.is_integer() and abs(each) < 2**24 for each in values)
    )
    if not is_exact or not start.dtype == limit.dtype == delta.dtype:
        raise TypeError
    return np.arange(*values, dtype=start.dtype)


def _reshape(attrs: Mapping, data, shape):
    sizes = shape.tolist()
    if not attrs.get("allowzero", 0):
        sizes = [data.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return data.reshape(sizes)


def _slice(attrs: Mapping, data, *bounds):
    given: list[Any] = [each if each is None else each.tolist() for each in bounds]
    # Attributes before opset 10.
    given += [attrs.get(name) for name in ("starts", "ends", "axes", "steps")[len(given) :]]
    starts, ends, axes, steps = given
    index = [slice(None)] * data.ndim
    for k, part in enumerate(zip(starts, ends, steps or [1] * len(starts))):
        index[k if axes is None else axes[k]] = slice(*part)
    return data[tuple(index)]


def _squeeze(attrs: Mapping, data, axes=None):
    axes = attrs.get("axes") if axes is None else axes.tolist()
    return np.squeeze(data, None if axes is None else tuple(axes))


def _transpose(attrs: Mapping, data):
    return np.transpose(data, attrs.get("perm"))


def _unsqueeze(attrs: Mapping, data, axes=None):
    axes = attrs["axes"] if axes is None else np.atleast_1d(axes).tolist()
    return np.expand_dims(data, tuple(axes))


def _elementwise(function: np.ufunc) -> Callable:
    def evaluate_op(attrs, lhs, rhs):
        if lhs.dtype != rhs.dtype or lhs.dtype.kind not in "iuf":
            raise TypeError
        with np.errstate(all="ignore"):
            return function(lhs, rhs)

    return evaluate_op


#: Ops that move the elements of an array, or of all arrays for Concat, whatever the elements are.
MOVES: dict[str, Callable] = {
    "Concat": _concat,
    "Expand": _expand,
    "Gather": _gather,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}

_FUNCTIONS: dict[str, Callable] = {
    **MOVES,
    "Add": _elementwise(np.add),
    "Cast": _cast,
    "ConstantOfShape": _constant_of_shape,
    "Equal": _elementwise(np.equal),
    "Less": _elementwise(np.less),
    "Mul": _elementwise(np.multiply),
    "Not": _not,
    "Range": _range,
    "Sub": _elementwise(np.subtract),
}
