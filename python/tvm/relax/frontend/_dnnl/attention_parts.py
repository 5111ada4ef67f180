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
"""Parts that the converters of attention ops share: layouts of heads, masks, and the attention.

Tensors of several heads have the shape (batch, heads, length, head size).
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import tvm
from tvm import relax, te, tirx

from .backend import Analyzer, Constant, UnsupportedOp, dims, number, size_from, value_of

HEADS_FIRST = [0, 2, 1, 3]


class Emitter:
    """Emits the ops that an op of a model is converted to, and reads shapes.

    Parameters
    ----------
    op : str
        What errors call the op.
    bb : relax.BlockBuilder
        Where ops are emitted.
    """

    def __init__(self, op: str, bb: relax.BlockBuilder):
        self.op, self.emit, self._builder = op, bb.emit, bb

    def refuse(self, reason: str):
        """Raise the error of an op that cannot be imported."""
        raise UnsupportedOp(f"{self.op}: {reason} cannot be imported")

    def shape(self, x) -> list:
        """Return the dimensions of a tensor; known ones are integers."""
        try:
            sizes = dims(x)
        except UnsupportedOp as error:
            self.refuse(str(error))
        return [dim if number(dim) is None else number(dim) for dim in sizes]

    def static(self, dim, what: str) -> int:
        """Return a dimension that must be known."""
        if number(dim) is None:
            self.refuse(f"{what} that is open")
        return int(number(dim))

    def checked(self, x, shape, what: str):
        """Return a tensor of a shape; sizes not provably equal are compared at run time."""
        given = self.shape(x)
        if len(given) != len(shape):
            self.refuse(f"{what} of rank {len(given)} instead of {len(shape)}")
        for size, wanted in zip(given, shape):
            if None not in (number(size), number(wanted)) and number(size) != number(wanted):
                self.refuse(f"{what} of the shape {given} instead of {list(shape)}")
        if all(map(is_equal, given, shape)):
            return x
        # CanonicalizeBindings would drop the check of one symbol for another if it saw both.
        any_shape = relax.TensorType(dtype=x.ty.dtype, ndim=len(shape))
        x = self._builder.match_cast(x, any_shape)
        return self._builder.match_cast(x, relax.TensorType(list(shape), x.ty.dtype))

    def broadcast(self, x, shape, what: str):
        """Return what broadcasts to a shape: a dimension is one, or that of the shape."""
        given = self.shape(x)
        if len(given) > len(shape):
            self.refuse(f"{what} of rank {len(given)} instead of {len(shape)}")
        wanted = shape[len(shape) - len(given) :]
        sizes = [1 if number(size) == 1 else want for size, want in zip(given, wanted)]
        return self.checked(x, sizes, what)

    def check_scalar(self, x, wanted, what: str):
        """Check an integer of one element: now if it is constant, otherwise at run time."""
        if tvm.ir.is_prim_expr(x) or isinstance(x, Constant):
            value = value_of(x).item() if isinstance(x, Constant) else x
            if is_equal(value, wanted):
                return
            if None not in (number(value), number(wanted)):
                self.refuse(f"{what}={value} instead of {wanted}")
            x = relax.op.full([1], relax.prim_value(value), "int64")
        x = self.emit(relax.op.reshape(self.emit(relax.op.astype(x, "int64")), [1]))
        sizes = self.emit(relax.op.tensor_to_shape(x))
        self._builder.match_cast(sizes, relax.ShapeType([wanted]))

    def compute(self, function, *args):
        """Emit a tensor expression of tensors."""
        return self._builder.emit_te(function, *args)

    def reshape(self, x, shape):
        """Emit a reshape, unless the shape is the same."""
        given = self.shape(x)
        if len(given) == len(shape) and all(map(is_equal, given, shape)):
            return x
        return self.emit(relax.op.reshape(x, shape))

    def transpose(self, x, axes):
        """Emit a transpose."""
        return self.emit(relax.op.permute_dims(x, axes))

    def split(self, x, sections, axis: int) -> list:
        """Split a tensor; the parts are bound."""
        parts = self.emit(relax.op.split(x, sections, axis))
        count = sections if isinstance(sections, int) else len(sections) + 1
        return [self.emit(relax.TupleGetItem(parts, k)) for k in range(count)]


def is_equal(left, right) -> bool:
    """Whether two dimensions are provably equal."""
    return size_from(left) == size_from(right)


def is_less(left, right) -> bool:
    """Whether a dimension is provably less than another."""
    return bool(Analyzer().can_prove(left < right))


def split_heads(node: Emitter, x, heads: int):
    """Return (batch, length, heads * size) as (batch, heads, length, size)."""
    batch, length, hidden = node.shape(x)
    size = node.static(hidden, "a hidden size")
    if size % heads:
        node.refuse(f"{heads} heads of a hidden size of {size}")
    x = node.reshape(x, [batch, length, heads, size // heads])
    return node.transpose(x, HEADS_FIRST)


def merge_heads(node: Emitter, x):
    """Return (batch, heads, length, size) as (batch, length, heads * size)."""
    batch, heads, length, size = node.shape(x)
    return node.reshape(node.transpose(x, HEADS_FIRST), [batch, length, heads * size])


def with_past(node: Emitter, past, x, length, what: str):
    """Append the keys or values of new positions to those of the past, if there is one."""
    if past is None:
        return x
    batch, heads, _, size = node.shape(x)
    past = node.checked(past, [batch, heads, length, size], what)
    return x if number(length) == 0 else node.emit(relax.op.concat([past, x], 2))


def lowest(dtype: str) -> float:
    """Return a number that hides a position: half of the lowest, as a score is added to it."""
    return float(ml_dtypes.finfo(dtype).min) / 2


def position_mask(
    node: Emitter,
    queries,
    keys,
    offset,
    dtype: str,
    before: int | None = None,
    after: int | None = 0,
    value: float | None = None,
):
    """Return what hides keys far from a query, (1, 1, queries, keys); None if nothing is hidden.

    Parameters
    ----------
    queries, keys : int | PrimExpr
        The lengths.
    offset : int | PrimExpr
        The position of the first query.
    before, after : int | None
        How many positions before its own and after it a query attends to; None for all. Causal
        attention has 0 after.
    value : float | None
        What is added to the score of a hidden position; None for `lowest`.
    """
    if before is None and (after is None or (number(queries) == 1 and is_equal(keys, offset + 1))):
        return None
    value = lowest(dtype) if value is None else value
    if None not in map(number, (queries, keys, offset)):
        distance = np.arange(queries)[:, None] + offset - np.arange(keys)
        is_hidden = np.zeros(distance.shape, bool)
        if after is not None:
            is_hidden |= distance < -after
        if before is not None:
            is_hidden |= distance > before
        return relax.const(np.where(is_hidden, value, 0.0)[None, None].astype(dtype))

    def mask():
        def element(_, __, query, key):
            return hidden(query + offset - key, dtype, before, after, value)

        return te.compute((1, 1, queries, keys), element, name="position_mask")

    return node.compute(mask)


def hidden(distance, dtype: str, before: int | None, after: int | None, value: float):
    """Return what is added to the score of a key at a distance before a query."""
    conditions = [distance < -after] if after is not None else []
    conditions += [distance > before] if before is not None else []
    return tirx.Select(tirx.any(*conditions), tirx.const(value, dtype), tirx.const(0.0, dtype))


def _zero_if_hidden(node: Emitter, scores, weights):
    """Return zeros in place of the weights of a query whose scores are all -inf.

    In the form that `tvm.contrib.onednn.rewrites.softmax_guards` makes part of the attention.
    """
    emit, dtype = node.emit, scores.ty.dtype.dtype
    is_hidden = emit(relax.op.equal(scores, relax.const(-math.inf, dtype)))
    is_visible = emit(relax.op.astype(emit(relax.op.logical_not(is_hidden)), "int8"))
    any_visible = emit(relax.op.max(is_visible, -1, keepdims=True))
    condition = emit(relax.op.logical_not(emit(relax.op.astype(any_visible, "bool"))))
    return emit(relax.op.where(condition, relax.const(0.0, dtype), weights))


def attend(
    node: Emitter,
    query,
    key,
    value,
    masks=(),
    scale=None,
    softcap=0.0,
    is_checked=True,
    is_guarded=False,
    sink=None,
):
    """Emit an attention as two matmuls and a softmax.

    Parameters
    ----------
    query : relax.Expr
        (batch, heads, queries, size).
    key, value : relax.Expr
        (batch, key heads, keys, size), each head for heads / key heads of the queries.
    masks : Sequence[relax.Expr | None]
        Added to the scores, which they broadcast to.
    scale : float | None
        None or 0 for 1 / sqrt(size).
    softcap : float
        The bound of the scores, before the masks; 0 for none.
    is_checked : bool
        Whether sizes of keys and values that are not provably equal are compared at run time. That
        is an op of its own, between two partitions.
    is_guarded : bool
        Whether the result of a query whose scores are all -inf is 0, instead of NaN.
    sink : relax.Expr | None
        One score for each head, of a key without a value.

    Returns
    -------
    out : relax.Expr
        (batch, heads, queries, size of the values).
    """
    batch, heads, queries, size = node.shape(query)
    groups, dtype = node.static(node.shape(key)[1], "a number of heads"), query.ty.dtype
    factor = scale or 1.0 / math.sqrt(node.static(size, "a head size"))
    if heads % groups or node.shape(value)[1] != groups:
        node.refuse(f"{heads} query heads of {groups} key heads, {node.shape(value)[1]} of values")
    keys, depth = node.shape(key)[2], node.shape(value)[3]
    if is_checked:
        key = node.checked(key, [batch, groups, keys, size], "a key")
        value = node.checked(value, [batch, groups, keys, depth], "a value")
    # The queries of a group are rows of one matmul, so the keys are not repeated.
    grouped = [batch, groups, heads // groups * queries]
    query = query if groups == heads else node.reshape(query, [*grouped, size])
    scores = node.emit(relax.op.matmul(query, node.transpose(key, [0, 1, 3, 2])))
    scores = node.emit(relax.op.multiply(scores, relax.const(factor, dtype)))
    if softcap:
        scores = node.emit(relax.op.multiply(scores, relax.const(1.0 / softcap, dtype)))
        scores = node.emit(relax.op.tanh(scores))
        scores = node.emit(relax.op.multiply(scores, relax.const(softcap, dtype)))
    masks = [mask for mask in masks if mask is not None]
    is_split = groups != heads and (masks or sink is not None)
    if is_split:
        scores = node.reshape(scores, [batch, heads, queries, keys])
    for mask in masks:
        scores = node.emit(relax.op.add(scores, mask))
    if sink is not None:
        column = node.reshape(node.checked(sink, [heads], "a sink"), [1, heads, 1, 1])
        column = node.emit(relax.op.broadcast_to(column, [batch, heads, queries, 1]))
        scores = node.emit(relax.op.concat([scores, column], -1))
    weights = node.emit(relax.op.nn.softmax(scores, -1))
    if sink is not None:
        weights = node.emit(relax.op.strided_slice(weights, [3], [0], [keys]))
    if is_guarded:
        weights = _zero_if_hidden(node, scores, weights)
    if is_split:
        weights = node.reshape(weights, [*grouped, keys])
    out = node.emit(relax.op.matmul(weights, value))
    if groups != heads:
        out = node.reshape(out, [batch, heads, queries, depth])
    return out
