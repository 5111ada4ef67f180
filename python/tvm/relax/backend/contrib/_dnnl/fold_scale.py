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
"""Folds factors and summands of channels into the convolution or matmul before them.

Those of a batch_norm, and constants; what they make of a weight and a bias, `ScaleWalk` says. A
batch_norm with nothing to be folded into becomes a factor and a summand of each channel.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import tvm
from tvm import relax
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.op_view import OpView
from tvm.contrib.onednn.policy.rules.quantize import along
from tvm.contrib.onednn.policy.rules.reduce import batch_norm_affine
from tvm.contrib.onednn.rewrites.scale_walk import Affine, ScaleWalk

from .fold_constants import reals_of
from .graph import RelaxGraph
from .mutators import BindingMutator, Replace, replaced
from .reading import Constant, constant_of, is_constant, op_name, short_name, value_of
from .virtual_ops import dense_of


def fold_scale(mod: tvm.IRModule, func: relax.Function, rules: Rules) -> relax.Function:
    """Return a function without batch norms, and with constants folded into weights and biases.

    Parameters
    ----------
    mod : tvm.IRModule
        The module that the function is of.
    func : relax.Function
        The function.
    rules : Rules
        The policy.
    """
    graph, values = RelaxGraph(func, rules.options.exclude), {}
    names, done = rules.with_field("scaled_weight"), set()
    for i in (i for i, name in enumerate(graph.ops) if name in names):
        view = _view_of_constants(graph, i)
        if view is not None and rules.refusal(view) is None:
            walk = _Walk(graph, rules, i, view)
            values.update(walk.replacement())
            done.update(walk.replaced)
    for i, node in enumerate(graph.nodes):
        affine = None if i in done else _affine_of(graph, rules, i)
        if affine is not None and node.args[0].ty.ndim >= 0:
            values[node] = partial(_written_out, affine)
    return replaced(mod, func, values)


def _view_of_constants(graph: RelaxGraph, i: int) -> OpView | None:
    """Return an op with a constant weight as its rule sees it; None for other weights.

    A matmul reads a transpose of its constant weight: that is a dense.
    """
    dense = dense_of(graph, i)
    view = graph.views[i] if dense is None else graph.view(i, dense)
    weight = view.args[1]
    return view if weight.is_constant and weight.dtype == view.result.dtype else None


def _affine_of(graph: RelaxGraph, rules: Rules, i: int) -> Affine | None:
    """Return what an expression does if it is a batch_norm of constants, at inference."""
    bn = graph.nodes[i]
    is_read = op_name(bn) == "relax.nn.batch_norm" and not rules.excludes(short_name(bn))
    if not is_read or bn.attrs.training:
        return None
    values = [_reals(graph, k) for k in graph.operands[i][1:]]
    if len(values) != 4 or any(value is None for value in values):
        return None
    return Affine(int(bn.attrs.axis), *batch_norm_affine(bn.attrs, *values))


def _reals(graph: RelaxGraph, i: int) -> np.ndarray | None:
    """Return the value of a constant of real numbers, or of one that is dequantized."""
    node = graph.nodes[i]
    if is_constant(node):
        return value_of(node).astype("float64")
    is_known = op_name(node) == "relax.dequantize" and all(map(is_constant, node.args))
    return reals_of(node) if is_known else None


class _Walk(ScaleWalk):
    # The replaced ops, by number.
    replaced: list[int] = []

    def batch_norm(self, i: int) -> Affine | None:
        """Return what an expression does if it is a batch_norm of constants, at inference."""
        return _affine_of(self.graph, self.rules, i)

    def replacement(self) -> dict[relax.Expr, Replace]:
        """Return what takes the place of the last of the most ops that can be folded."""
        root, dtype, last = self.ops[0], self.view.result.dtype, None
        for folded in self.matches():
            values = (value for value in folded[1:3] if value is not None)
            constants = [constant_of(value, dtype) for value in values]
            if all(np.isfinite(value_of(each).astype("float64")).all() for each in constants):
                last, self.replaced = constants, folded.ops
        if last is None:
            return {}
        # A dense has its weight transposed.
        is_turned = self.view.name != self.graph.ops[root]
        build = partial(_call, self.graph.nodes[root], is_turned, *last)
        return {self.graph.nodes[self.replaced[-1]]: build}


def _call(
    root: relax.Call,
    is_turned: bool,
    weight: Constant,
    *args,
) -> relax.Expr:
    """Call a root with the constants that stand for all that is folded into it."""
    *bias, mutator, _ = args
    emit = mutator.builder_.emit
    weight = emit(relax.op.permute_dims(weight)) if is_turned else weight
    call = relax.Call(root.op, [mutator.visit_expr(root.args[0]), weight], root.attrs, root.ty_args)
    return relax.op.add(emit(call), bias[0]) if bias else call


def _written_out(affine: Affine, mutator: BindingMutator, call: relax.Call) -> relax.Expr:
    """Return the results of a batch_norm, the first as a factor and a summand."""
    data, *statistics = call.args
    scale, shift = (_along(values, data, affine.axis) for values in affine[1:])
    product = mutator.builder_.emit(relax.op.multiply(data, scale))
    result = mutator.builder_.emit(relax.op.add(product, shift))
    return relax.Tuple([result, *statistics[2:]])


def _along(values: np.ndarray, data: relax.Expr, axis: int) -> Constant:
    """Return values of channels as a constant that broadcasts to data."""
    return constant_of(along(values, axis, data.ty.ndim), str(data.ty.dtype))
