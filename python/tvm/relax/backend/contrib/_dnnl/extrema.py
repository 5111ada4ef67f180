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
"""Lowers extrema that stay on TVM, and their indices, so that infinities and NaN count.

TVM's own start from the largest finite number and from the index -1, and drop NaN.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from tvm import relax, te, tirx, topi

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def lowered(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return the call of TIR that computes `max`, `min`, `argmax` or `argmin`.

    NaN is the extremum, and an index is that of the first one. The extremum of no floating-point
    numbers is infinite.
    """
    name, (x,), attrs = call.op.name.removeprefix("relax."), call.args, call.attrs
    dtype, axes = str(x.ty.dtype), attrs.axis
    is_max, is_index = name.endswith("max"), name.startswith("arg")
    if not isinstance(x.ty.shape, relax.ShapeExpr):
        return builder.call_te(getattr(topi, name), x, axes, attrs.keepdims)
    if axes is None:
        axes = range(x.ty.ndim)
    axes = sorted({int(each) % x.ty.ndim for each in ([axes] if isinstance(axes, int) else axes)})
    sizes = [x.ty.shape[axis] for axis in axes]
    is_empty = any(isinstance(size, tirx.IntImm) and int(size) == 0 for size in sizes)
    if is_empty and not is_index and dtype in _FLOATS:
        infinity = -math.inf if is_max else math.inf
        return builder.call_te(topi.full, call.ty.shape.values, dtype, infinity)
    if is_empty or not axes or dtype.startswith("float8"):
        return builder.call_te(getattr(topi, name), x, attrs.axis, attrs.keepdims)
    arguments = axes, bool(attrs.keepdims), is_max
    if is_index:
        # TVM takes this cast, in a reduction of two results, to be no NaN.
        x = builder.emit_te(topi.cast, x, "float32") if dtype == "bfloat16" else x
        return builder.call_te(lambda x: _index(x, *arguments), x, primfunc_name_hint=name)
    return builder.call_te(lambda x: _extremum(x, *arguments), x, primfunc_name_hint=name)


#: The types in which others are compared: TVM compares no booleans, and has no test for NaN in 16
#: bits.
_COMPARED = {"bool": "int8", "float16": "float32", "bfloat16": "float32"}


def _extremum(x: te.Tensor, axes: list[int], keepdims: bool, is_max: bool) -> te.Tensor:
    dtype = str(x.dtype)
    compared, first = _COMPARED.get(dtype, dtype), functools.partial(_first, is_max)

    def combine(a, b):
        is_beyond = b > a if is_max else b < a
        is_beyond = tirx.any(is_beyond, tirx.isnan(b)) if compared in _FLOATS else is_beyond
        return tirx.Select(is_beyond, b, a)

    reducer = te.comm_reducer(combine, first)
    extreme = _reduced(
        x, axes, keepdims, lambda own, over: reducer(x(*own).astype(compared), axis=over)
    )
    if compared == dtype:
        return extreme
    return te.compute(extreme.shape, lambda *at: extreme(*at).astype(dtype), name="extremum")


def _index(x: te.Tensor, axes: list[int], keepdims: bool, is_max: bool) -> te.Tensor:
    compared = _COMPARED.get(str(x.dtype), str(x.dtype))

    def combine(a, b):
        is_beyond = b[1] > a[1] if is_max else b[1] < a[1]
        if compared in _FLOATS:
            is_first = tirx.all(tirx.isnan(b[1]), tirx.Not(tirx.isnan(a[1])))
            is_beyond = tirx.any(is_beyond, is_first)
        return tuple(tirx.Select(is_beyond, *pair) for pair in zip(b, a))

    reducer = te.comm_reducer(combine, lambda index, x: (tirx.const(0, index), _first(is_max, x)))

    def compute(own, over):
        index = tirx.const(0, "int64")
        for axis in axes:
            index = index * x.shape[axis] + own[axis]
        return reducer((index, x(*own).astype(compared)), axis=over)

    index = _reduced(x, axes, keepdims, compute)[0]
    return te.compute(index.shape, lambda *at: index(*at), name="index")


def _first(is_max: bool, dtype: str) -> tirx.Expr:
    """Return what a reduction starts from."""
    if str(dtype) in _FLOATS:
        return tirx.const(-math.inf if is_max else math.inf, dtype)
    return tirx.min_value(dtype) if is_max else tirx.max_value(dtype)


def _reduced(x: te.Tensor, axes: list[int], keepdims: bool, compute: Callable):
    """Reduce axes by a function of the indices of an element, and of the axes."""
    kept = [axis for axis in range(len(x.shape)) if keepdims or axis not in axes]
    reduced = {axis: te.reduce_axis((0, x.shape[axis]), name=f"k{axis}") for axis in axes}

    def element(*at):
        indices = {**dict(zip(kept, at)), **reduced}
        return compute([indices[axis] for axis in range(len(x.shape))], list(reduced.values()))

    shape = [1 if axis in axes else x.shape[axis] for axis in kept]
    return te.compute(shape, element, name="reduced")
