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
"""Writes recurrent layers in Relay, which has no ops for them: as the ops of all steps for TVM.

For oneDNN a function stands for a layer, whose attributes are the layer's. Its body is an op that
has a type and that TVM cannot run: TVM's passes would spend seconds on the ops of all steps. With
open dimensions it is these ops all the same, which have shape functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import ir, relay, tir
from tvm.contrib.onednn.graph.node import Node
from tvm.contrib.onednn.policy.rules.recurrent import DIRECTIONS, GRU, LSTM, RNN, states_of
from tvm.relay.op import op as _op
from tvm.runtime import String

_LAYER = "dnnl.recurrent_layer"


def unrolled(node: Node, *args: relay.Expr) -> relay.Tuple:
    """Return the results of a layer, computed by a few ops for each step.

    Parameters
    ----------
    node : Node
        The layer, of a known number of steps.
    args : relay.Expr
        Its operands.
    """
    attrs, (data, weight, recurrent, bias, *initial) = node.attrs, args
    dtype = node.type[0].dtype
    if node.operands[1].type.dtype != dtype:
        weight, recurrent = (relay.cast(each, dtype) for each in (weight, recurrent))
    if attrs.batch_first:
        data = relay.transpose(data, [1, 0, 2])
    steps = node.operands[0].type.dims[1 if attrs.batch_first else 0]
    inputs = [relay.squeeze(row, [0]) for row in relay.split(data, steps, 0)]
    sequences, states = [], []
    for k in range(DIRECTIONS[attrs.direction]):
        is_reverse = attrs.direction == "reverse" or k == 1
        own = [_item(each, k) for each in (weight, recurrent, bias)]
        given = [_item(each, k) for each in initial] or [None] * states_of(node.name)
        sequence = []
        for x in inputs[::-1] if is_reverse else inputs:
            given = _STEPS[node.name](attrs, x, *own, *given)
            sequence.append(given[0])
        sequences.append(relay.stack(sequence[::-1] if is_reverse else sequence, 0))
        states.append(given)
    y = sequences[0] if len(sequences) == 1 else relay.concatenate(sequences, 2)
    if attrs.batch_first:
        y = relay.transpose(y, [1, 0, 2])
    return relay.Tuple([y, *(relay.stack(list(each), 0) for each in zip(*states))])


def layer(node: Node, args: Sequence[relay.Expr], types: Sequence) -> relay.Call:
    """Return a call of a function that stands for a layer.

    Parameters
    ----------
    node : Node
        The layer.
    args : Sequence[relay.Expr]
        Its operands.
    types : Sequence
        The types of the operands and of the result in Relay.
    """
    *inputs, result = types
    params = [relay.var(f"data{k}", type_) for k, type_ in enumerate(inputs)]
    attrs = {
        key: String(value) if isinstance(value, str) else tir.IntImm("int32", int(value))
        for key, value in vars(node.attrs).items()
    }
    if any(None in operand.shape for operand in node.args):
        # TVM's VM computes the shapes of the results by those of the body.
        body = unrolled(node, *params)
    else:
        known = {"batch_first": attrs["batch_first"], "results": len(result.fields)}
        own = ir.make_node("DictAttrs", **known)
        body = relay.Call(ir.Op.get(_LAYER), [relay.Tuple(params)], own)
    func = relay.Function(params, body, result)
    # Patterns of TVM do not look into functions that have the second.
    func = func.with_attr({"Composite": String(node.name), "PartitionedFromPattern": String("")})
    return relay.Call(func.with_attr(attrs), list(args))


def _layer_type(types: Sequence, attrs) -> relay.TupleType:
    """Return the type of the results of a layer."""
    data, _, recurrent, _, *initial = types[0].fields
    batch = data.shape[0 if int(attrs["batch_first"]) else 1]
    count, _, hidden = recurrent.shape
    dtypes = [state.dtype for state in initial] or [data.dtype] * (int(attrs["results"]) - 1)
    y = relay.TensorType([*data.shape[:2], int(count) * int(hidden)], data.dtype)
    return relay.TupleType([y, *(relay.TensorType([count, batch, hidden], d) for d in dtypes)])


def _register() -> None:
    _op.register(_LAYER, "A recurrent layer of oneDNN, in a function that stands for it.")
    layer_op = ir.Op.get(_LAYER)
    layer_op.set_num_inputs(1)
    layer_op.add_argument("data", "Tuple of tensors", "The operands of the layer.")
    layer_op.set_attrs_type_key("DictAttrs")
    layer_op.add_type_rel("DNNLRecurrentLayer", _layer_type)
    _op.register_pattern(_LAYER, _op.OpPattern.OPAQUE)
    _op.register_stateful(_LAYER, False)


_register()


def _item(data: relay.Expr, index: int) -> relay.Expr:
    """Return a position along the first axis."""
    row = relay.strided_slice(data, [index], [index + 1], axes=[0])
    return relay.squeeze(row, [0])


def _sum(*terms: relay.Expr | None) -> relay.Expr:
    """Add what is not zero."""
    first, *others = (term for term in terms if term is not None)
    for each in others:
        first = relay.add(first, each)
    return first


def _product(state: relay.Expr | None, weight: relay.Expr) -> relay.Expr | None:
    return None if state is None else relay.nn.dense(state, weight)


def _lstm(attrs, x, weight, recurrent, bias, h, c):
    gates = _sum(relay.nn.dense(x, weight), _product(h, recurrent), bias)
    i, f, candidate, o = relay.split(gates, 4, -1)
    added = relay.multiply(relay.sigmoid(i), relay.tanh(candidate))
    c = _sum(None if c is None else relay.multiply(relay.sigmoid(f), c), added)
    return [relay.multiply(relay.sigmoid(o), relay.tanh(c)), c]


def _gru(attrs, x, weight, recurrent, bias, h):
    x_update, x_reset, x_candidate = relay.split(relay.nn.dense(x, weight), 3, -1)
    weights = relay.split(recurrent, 3, 0)
    biases = relay.split(bias, 4 if attrs.linear_before_reset else 3, -1)
    update = relay.sigmoid(_sum(x_update, _product(h, weights[0]), biases[0]))
    reset = relay.sigmoid(_sum(x_reset, _product(h, weights[1]), biases[1]))
    if attrs.linear_before_reset:
        state = relay.multiply(reset, _sum(_product(h, weights[2]), biases[3]))
    else:
        state = None if h is None else _product(relay.multiply(reset, h), weights[2])
    candidate = relay.tanh(_sum(x_candidate, biases[2], state))
    last = relay.negative(candidate) if h is None else relay.subtract(h, candidate)
    return [relay.add(relay.multiply(update, last), candidate)]


def _rnn(attrs, x, weight, recurrent, bias, h):
    value = _sum(relay.nn.dense(x, weight), _product(h, recurrent), bias)
    return [relay.tanh(value) if attrs.activation == "tanh" else relay.nn.relu(value)]


_STEPS: dict[str, Callable[..., list]] = {LSTM: _lstm, GRU: _gru, RNN: _rnn}
