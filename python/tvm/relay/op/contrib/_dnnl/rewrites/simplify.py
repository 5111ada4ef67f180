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
"""Prepares a function before its ops are looked at: parameters, dropout, constants."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import tvm
from tvm import relay
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.rules.quantize import DEQUANTIZE, QUANTIZE, quantized
from tvm.contrib.onednn.policy.tensors import MOST_FILLED, text_of_shape
from tvm.relay import transform

from ..ir.constants import to_constant, to_numpy
from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from .driver import Match, rewrite


def remove_identities(function: TypedFunction, rules: Rules) -> Rewritten:
    """Replace a copy, a cast to the same type and a dropout's result by the argument they are."""
    return rewrite(function, rules, _find_identities)


def _find_identities(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    for dropout in calls_of("nn.dropout"):
        for user in graph.users[dropout]:
            expr = graph.nodes[user]
            if isinstance(expr, relay.TupleGetItem) and expr.index == 0:
                yield Match([user], graph.operands[dropout], lambda data: data, folded=[dropout])
    for copy in calls_of("copy", "cast"):
        (data,) = graph.operands[copy]
        if graph.views[copy].args[0].dtype != graph.views[copy].result.dtype:
            continue
        is_only_name = isinstance(graph.nodes[data], relay.Call) and graph.users[data] == [copy]
        if is_only_name or not _is_returned(graph, copy):
            yield Match([copy], [data], lambda data: data, folded=[copy])


def _is_returned(graph: DataflowGraph, i: int) -> bool:
    """Whether a value may leave the function, for which it needs a buffer of its own."""
    return not graph.users[i] or any(
        graph.ops[user] is None
        and (not isinstance(graph.nodes[user], relay.Tuple) or _is_returned(graph, user))
        for user in graph.users[i]
    )


def remove_broadcasts(function: TypedFunction, rules: Rules) -> Rewritten:
    """Have a binary op read what was broadcast for it, where its other operand has the shape.

    Importers make a `broadcast_to` of ONNX's Expand, for which oneDNN has no primitive.
    """
    return rewrite(function, rules, _find_broadcasts)


def _find_broadcasts(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    for i in calls_of(*(name for name, spec in rules.ops.items() if spec.post == "binary")):
        for place, operand in enumerate(graph.operands[i]):
            if graph.ops[operand] == "broadcast_to":
                operands = list(graph.operands[i])
                operands[place] = graph.operands[operand][0]
                build = partial(_with_operands, graph.nodes[i])
                yield Match([i], operands, build, folded=[operand])


def _with_operands(call: relay.Call, *operands: relay.Expr) -> relay.Call:
    return relay.Call(call.op, operands, call.attrs, call.type_args, call.span)


def fold_filled(function: TypedFunction, rules: Rules) -> Rewritten:
    """Write tensors of one known value as constants, such as the first state of an LSTM.

    TVM computes them at each run, and they would cut a partition.
    """
    return rewrite(function, rules, _find_filled)


def _find_filled(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    for i in calls_of("zeros", "zeros_like", "ones", "ones_like", "full", "full_like"):
        out, name = graph.result(i), graph.ops[i]
        if None in out.shape or math.prod(out.shape) > MOST_FILLED:
            continue
        if name.startswith("full"):
            (value,) = graph.operands[i][-1:]
            if not isinstance(graph.nodes[value], relay.Constant):
                continue
            values = to_numpy(graph.nodes[value].data)
        else:
            values = np.array(name.startswith("ones"))
        constant = to_constant(np.broadcast_to(values, out.shape), out.dtype)
        yield Match([i], [], lambda constant=constant: constant)


def fold_constants(function: TypedFunction, rules: Rules) -> Rewritten:
    """Compute what depends on constants alone."""
    return Rewritten(with_constants_folded(function.func, function.mod))


def fold_quantized(function: TypedFunction, rules: Rules) -> Rewritten:
    """Compute the quantize of constants, such as weights that a model keeps as real numbers.

    TVM's FoldConstant leaves QNN ops alone; with `fold_qnn` it rounds halves away from zero, which
    is not how ONNX and PyTorch define a quantize.
    """
    rewritten = rewrite(function, rules, _find_quantized)
    if rewritten.func.same_as(function.func):
        return rewritten
    # Ops that now read constants only, such as a transpose.
    return rewritten._replace(func=with_constants_folded(rewritten.func, function.mod))


def _find_quantized(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    for i in calls_of(QUANTIZE):
        call = graph.nodes[i]
        if not all(isinstance(arg, relay.Constant) for arg in call.args):
            continue
        arrays, dtype = [to_numpy(arg.data) for arg in call.args], graph.result(i).dtype
        values = quantized(*arrays, int(call.attrs.axis), dtype)
        if values is not None:
            constant = to_constant(values, dtype)
            yield Match([i], [], lambda constant=constant: constant, folded=[i])


def merge_equal(function: TypedFunction, rules: Rules) -> Rewritten:
    """Compute what a quantized model asks for several times once.

    Importers write the scale and the zero point of each quantize anew, which keeps two of the same
    tensor apart.
    """
    graph = function.graph
    if max(graph.scope) > 1:
        # A value that two branches share is evaluated before them; neither can read it in 8 bits.
        return Rewritten(function.func)
    kept: dict[tuple, relay.Constant] = {}
    replacements = {}
    for i, name in enumerate(graph.ops):
        for k in graph.operands[i][1:] if name in (QUANTIZE, DEQUANTIZE) else ():
            expr = graph.nodes[k]
            if isinstance(expr, relay.Constant):
                values = expr.data.numpy()
                first = kept.setdefault((values.dtype, values.shape, values.tobytes()), expr)
                replacements[k] = [], lambda first=first: first
    if not replacements:
        return Rewritten(function.func)
    mod = tvm.IRModule(function.mod.functions, function.mod.type_definitions)
    mod[function.name] = graph.replace(replacements)
    return Rewritten(transform.EliminateCommonSubexpr()(mod)[function.name])


def with_constants_folded(func: relay.Function, mod: tvm.IRModule) -> relay.Function:
    """Fold constants, unless TVM cannot: it has no code for some functions of bfloat16."""
    try:
        return transform.FoldConstantExpr(func, mod)
    except tvm.TVMError:
        return func


def bind_params(mod: tvm.IRModule, params: dict) -> tvm.IRModule:
    """Make the parameters of main that are in `params` constants.

    Parameters
    ----------
    mod : tvm.IRModule
        A module with a function main, which is changed.
    params : dict[str, tvm.nd.NDArray | numpy.ndarray]
        Values by name of main's parameters. Other names are ignored with a warning: importers
        return more than main uses, such as the shape that a reshape was given.

    Raises
    ------
    TypeError
        `params` is not a dict.
    ValueError
        There is no main, or a value does not fit its parameter.
    """
    if not params:
        return mod
    if not isinstance(params, dict):
        raise TypeError(f"params must be a dict of values by name, not {type(params).__name__}")
    if "main" not in {var.name_hint for var in mod.functions}:
        raise ValueError("params can only be bound to a function main, and the module has none")
    main = mod["main"]
    inputs: dict[str, list[relay.Var]] = {}
    for var in main.params:
        inputs.setdefault(var.name_hint, []).append(var)
    bound = {}
    for name in (name for name in params if name in inputs):
        if len(inputs[name]) > 1:
            raise ValueError(f"params['{name}']: main has {len(inputs[name])} parameters so named")
        bound[inputs[name][0]] = relay.const(_value(name, params[name], inputs[name][0]))
    unknown = sorted(str(name) for name in params if name not in inputs)
    if unknown:
        warnings.warn(
            f"params has {len(unknown)} of {len(params)} names that main does not have, "
            f"which are ignored: {_first(unknown)}; main has {_first(list(inputs)) or 'none'}",
            UserWarning,
            stacklevel=4,
        )
    mod["main"] = relay.bind(main, bound)
    return mod


def _first(names: list[str], limit: int = 8) -> str:
    """List the first few names."""
    return ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")


def _value(name: str, value, var: relay.Var) -> tvm.nd.NDArray:
    """Check a parameter's value against its variable, and return it as an NDArray."""
    if isinstance(value, relay.Constant):
        value = value.data
    if not isinstance(value, tvm.nd.NDArray):
        value = tvm.nd.array(np.asarray(value))
    type_ = var.type_annotation
    if isinstance(type_, relay.TensorType):
        same_shape = len(type_.shape) == len(value.shape) and all(
            not isinstance(dim, tvm.tir.IntImm) or int(dim) == size
            for dim, size in zip(type_.shape, value.shape)
        )
        if not same_shape or type_.dtype != value.dtype:
            raise ValueError(
                f"params['{name}'] is {value.dtype} of shape {text_of_shape(value.shape)}, "
                f"but that of main is {type_.dtype} of shape {text_of_shape(type_.shape)}"
            )
    return value
