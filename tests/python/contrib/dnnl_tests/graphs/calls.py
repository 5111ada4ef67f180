# SPDX-License-Identifier: Apache-2.0
"""Calls of one op in Relay, which the schema draws."""

from types import SimpleNamespace

import tvm
from tvm import relay
from tvm.contrib.onednn.ir.node import CALL, INPUT, Node
from tvm.contrib.onednn.ir.numpy_types import numpy_type
from tvm.contrib.onednn.ir.op_view import Tensor
from tvm.contrib.onednn.ops.draw import Draw
from tvm.contrib.onednn.ops.table import TABLE
from tvm.relay.op.contrib._dnnl.write_ops import written

from .draw import EDGE_DTYPES


def alone(call, with_constants=True):
    """Return a call with a variable for each operand, or each that is no constant, and these."""
    params = []

    def operand(arg):
        # The value of a pad, for example, is to be known.
        if isinstance(arg, relay.Constant) and (with_constants or not arg.data.shape):
            return arg
        if isinstance(arg, relay.Tuple):
            return relay.Tuple([operand(field) for field in arg.fields])
        type_ = relay.transform.InferTypeLocal(arg)
        params.append(relay.var(f"x{len(params)}", type_annotation=type_))
        return params[-1]

    return relay.Call(call.op, [operand(arg) for arg in call.args], call.attrs), params


def function(call, params):
    """Return a typed function of a call; of a batch_norm's results it has the first only."""
    relay.transform.InferTypeLocal(call)
    body = call
    if isinstance(call.checked_type, relay.TupleType):
        count = 1 if call.op.name == "nn.batch_norm" else len(call.checked_type.fields)
        fields = [relay.TupleGetItem(call, i) for i in range(count)]
        body = fields[0] if count == 1 else relay.Tuple(fields)
    mod = tvm.IRModule.from_expr(relay.Function(params, body))
    return relay.transform.InferType()(mod)["main"]


def call_of(func):
    """Return the call that a function of `function` makes."""
    body = func.body
    while not isinstance(body, relay.Call):
        body = body.fields[0] if isinstance(body, relay.Tuple) else body.tuple_value
    return body


def relay_call(name, call, args, real):
    """Return what Relay writes of a call that the schema drew.

    Parameters
    ----------
    name : str
        The op of the table.
    call : Call
        What was drawn.
    args : list of relay.Expr
        Its operands.
    real : str
        The type in place of float32.
    """
    attrs = {key: value for key, value in call.attrs.items() if (key, value) != ("out_dtype", "")}
    if name == "contrib_reverse_reshape":
        return relay.reverse_reshape(*args, **attrs)
    nodes = [Node(INPUT, None, [], each) for each in call.types()]
    type_ = Tensor((), attrs.get("dtype", real))
    expr = written(Node(CALL, name, nodes, type_, SimpleNamespace(**attrs)), args)
    return expr.astuple() if isinstance(expr, relay.TupleWrapper) else expr


def operand(d, value, dtypes, is_first):
    """Return a value that was drawn by the schema, of one of the types in the place of float32."""
    if isinstance(value, list):
        return [operand(d, each, dtypes, is_first and k == 0) for k, each in enumerate(value)]
    dtype = (
        d.choice(dtypes[:1] if is_first else dtypes) if value.dtype == "float32" else value.dtype
    )
    if value.shape and (is_first or d.chance(0.2)):
        return relay.var("x", shape=value.shape, dtype=str(dtype))
    return relay.const(tvm.nd.array(value.astype(numpy_type(str(dtype)))))


def drawn(name, seed, real):
    """Return a call of an op of the table, in which a type is in the place of float32.

    Operands of some calls have other types.
    """
    d = Draw(seed, edges=True)
    call = TABLE[name].draw(d)
    dtypes = (d.choice(EDGE_DTYPES), real) if d.chance(0.15) else (real,)
    args = [operand(d, value, dtypes, k == 0) for k, value in enumerate(call.values)]
    return relay_call(name, call, args, real)
