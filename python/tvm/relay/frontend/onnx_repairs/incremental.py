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
"""Type inference and constant folding of one ONNX node at a time.

`common.infer_type` and `common.fold_constant` visit all that an expression is computed from, so an
importer that calls them for each node is quadratic in the number of nodes; and TVM compiles a
function for each constant that it folds or reads. These visit what is new, and fold in numpy.
"""

from __future__ import annotations

import functools

from tvm.ir import Op
from tvm.topi.utils import get_const_tuple

from ... import expr as _expr
from ... import op as _op
from ... import transform as _transform
from ... import ty as _ty
from .. import common


def infer_type(node, mod=None):
    """Infer the type of an expression from those of its operands, where these are known.

    Parameters
    ----------
    node : Expr
        The expression; the type is kept in it.
    mod : IRModule | None
        The module with functions that it calls.

    Returns
    -------
    node : Expr
        An expression with `checked_type`.
    """
    if mod is not None or not isinstance(node, (_expr.Call, _expr.Tuple, _expr.TupleGetItem)):
        return common.infer_type(node, mod)
    _transform.InferTypeLocal(node)
    return node


def infer_shape(inputs, mod=None):
    """Return the shape of an expression, or its type if that is none of a tensor."""
    type_ = infer_type(inputs, mod).checked_type
    return get_const_tuple(type_.shape) if hasattr(type_, "shape") else type_


def shape_of(x, dtype="int64", start=None, end=None):
    """Return the shape of an expression as a constant, or as what computes it where it is open."""
    type_ = infer_type(x).checked_type
    if _ty.is_dynamic(type_):
        return _op.shape_of(x, dtype)
    return _expr.const(list(type_.shape)[start or 0 : end or None], dtype)


def fold_constant(node, mod=None):
    """Fold what is computed from constants alone in the new part of an expression.

    An expression with a span was folded when its node was imported.

    Parameters
    ----------
    node : Expr
        The expression.
    mod : IRModule | None
        The module with functions that it calls.

    Returns
    -------
    folded : Expr
        The same object if there is nothing to fold.
    """
    # By address; the expressions are alive as long as `node` is.
    folded = {}
    stack = [node]
    while stack:
        expr = stack[-1]
        operands = [] if _is_imported(expr) else _operands(expr)
        if operands is None:
            return common.fold_constant(node, mod)
        missing = [each for each in operands if each.handle.value not in folded]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if expr.handle.value not in folded:
            new = [folded[each.handle.value] for each in operands]
            folded[expr.handle.value] = _folded(expr, operands, new)
    return folded[node.handle.value]


def infer_value(input_val, params, mod=None):
    """Return the value of an expression that is computed from constants and parameters.

    Parameters
    ----------
    input_val : Expr
        The expression.
    params : dict[str, NDArray]
        Values of its variables, by name.
    mod : IRModule | None
        As for `common.infer_value`, which compiles what cannot be folded.

    Returns
    -------
    value : NDArray
        The value.
    """
    folded = fold_constant(input_val, mod)
    if isinstance(folded, _expr.Constant):
        return folded.data
    return common.infer_value(input_val, params, mod)


def find_version_once(get_converter):
    """Decorate `OnnxOpConverter.get_converter`, which lists all names of a class in each call."""
    names = {}

    @functools.wraps(get_converter)
    def get_known_converter(cls, opset):
        if (cls, opset) in names:
            return getattr(cls, names[cls, opset])
        converter = get_converter(cls, opset)
        name = getattr(converter, "__name__", "")
        if getattr(cls, name, None) == converter:
            names[cls, opset] = name
        return converter

    return get_known_converter


def _is_imported(expr):
    # The fields of a tuple replace what reads them.
    return not isinstance(expr, _expr.Tuple) and bool(expr.span)


def _operands(expr):
    """Return the operands of an expression, None if there may be a scope or control flow in it."""
    if isinstance(expr, _expr.Call):
        return list(expr.args) if isinstance(expr.op, Op) else None
    if isinstance(expr, _expr.Tuple):
        return list(expr.fields)
    if isinstance(expr, _expr.TupleGetItem):
        return [expr.tuple_value]
    return [] if isinstance(expr, (_expr.Constant, _expr.Var)) else None


def _folded(expr, operands, new):
    """Return an expression of operands that are folded, folded itself."""
    if isinstance(expr, _expr.TupleGetItem) and new and isinstance(new[0], _expr.Tuple):
        return new[0].fields[expr.index]
    if not all(map(_expr.Expr.same_as, new, operands)):
        if isinstance(expr, _expr.Call):
            expr = _expr.Call(expr.op, new, expr.attrs, expr.type_args, expr.span)
        elif isinstance(expr, _expr.Tuple):
            expr = _expr.Tuple(new, expr.span)
        else:
            expr = _expr.TupleGetItem(new[0], expr.index, expr.span)
    if not isinstance(expr, _expr.Call) or not new:
        return expr
    is_shape = expr.op.name == "shape_of"
    if not is_shape and not all(map(_is_constant, new)):
        return expr
    if is_shape:
        return _shape_constant(expr)
    from .backend import constant_result  # pylint: disable=import-outside-toplevel

    value = constant_result(expr)
    return common.fold_constant(expr) if value is None else value


def _is_constant(expr):
    fields = expr.fields if isinstance(expr, _expr.Tuple) else [expr]
    return all(isinstance(field, _expr.Constant) for field in fields)


def _shape_constant(call):
    """Return the shape of a tensor as a constant, unless it is open."""
    type_ = infer_type(call.args[0]).checked_type
    return call if _ty.is_dynamic(type_) else _expr.const(list(type_.shape), call.attrs.dtype)
