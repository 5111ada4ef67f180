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
"""Recurrent layers in Relay: an op with the attributes of the layer, whose loops TVM compiles.

For oneDNN a function stands for a layer, whose attributes are the layer's and whose body is the op.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from tvm import ir, relay, te, tir, topi
from tvm.contrib.onednn.frontend.layer_loops import result_shapes, state_dtypes, write_layer
from tvm.contrib.onednn.ir.op import attributes_of
from tvm.contrib.onednn.ops.recurrent import operand_shapes, states_of
from tvm.contrib.onednn.ops.tensors import text_of_shape
from tvm.relay.op import op as _op
from tvm.runtime import String
from tvm.target import generic_func

from .integration.shape_functions import shape_tensors
from .ir.relay_view import dims, native_attrs, op_name

# Not "dnnl.", which is for composites. Ops of Relay have a fixed number of operands: the data, two
# weights and the bias, then the states, the lengths, and the scales and zero points, where a layer
# has them.
_NAME = "onednn.recurrent_layer_"
_COUNTS = range(4, 12)


def layer_call(name: str, args: Sequence[relay.Expr], attrs: dict) -> relay.Call:
    """Return the call of the op for a layer; the result is a tuple.

    Parameters
    ----------
    name : str
        The layer's op of the table.
    args : Sequence[relay.Expr]
        Its operands.
    attrs : dict
        Its attributes.
    """
    own = ir.make_node("DictAttrs", op=String(name), **native_attrs(attrs))
    return relay.Call(ir.Op.get(f"{_NAME}{len(args)}"), list(args), own)


def layer_name(expr: relay.Expr) -> str | None:
    """Return the table's op of a layer; None for anything but the call of a layer's op."""
    is_layer = (op_name(expr) or "").startswith(_NAME)
    return str(expr.attrs["op"]) if is_layer else None


def layer_attrs(call: relay.Call) -> SimpleNamespace:
    """Return the attributes of a layer."""
    return _plain(call.attrs)[1]


def _plain(attrs) -> tuple[str, SimpleNamespace]:
    """Return the layer's op of the table, and its attributes."""
    values = {str(key): attrs[key] for key in attrs.keys()}
    name = str(values.pop("op"))
    return name, attributes_of(name, SimpleNamespace(**values))


def _layer_type(types: Sequence, attrs) -> relay.TupleType:
    """Return the type of the results of a layer; refuse operands of other shapes."""
    name, attrs = _plain(attrs)
    data, hidden = types[0], int(types[2].shape[-1])
    wanted = operand_shapes(name, attrs, dims(data), hidden, types[1].dtype == "int8")
    shapes = [dims(each) for each in types[: len(wanted)]]
    for k, (shape, other) in enumerate(zip(shapes, wanted)):
        pairs = list(zip(shape, other))
        if len(shape) != len(other) or any(None not in pair and len({*pair}) > 1 for pair in pairs):
            texts = f"shape {text_of_shape(shape)}, not {text_of_shape(other)}"
            raise ValueError(f"{name}: operand {k} has {texts}")
    if len(types) != len(wanted):
        raise ValueError(f"{name}: {len(types)} operands, not {len(wanted)}")
    dtypes = [data.dtype, *state_dtypes(name, attrs, types)]
    shapes = result_shapes(name, attrs, types)
    return relay.TupleType([relay.TensorType(*each) for each in zip(shapes, dtypes)])


def _compute(attrs, inputs, _) -> list[te.Tensor]:
    """Return the results of a layer as tensors of TE."""
    name, attrs = _plain(attrs)

    def body(operands, results):
        builder = _Builder()
        operands, results = (
            [builder.ib.buffer_ptr(each) for each in group] for group in (operands, results)
        )
        write_layer(builder, name, attrs, inputs, operands, results)
        return builder.ib.get()

    dtypes = [inputs[0].dtype, *state_dtypes(name, attrs, inputs)]
    shapes = result_shapes(name, attrs, inputs)
    return list(te.extern(shapes, list(inputs), body, name=name.split(".")[-1], dtype=dtypes))


class _Builder:
    """Writes TIR, see `layer_loops.Builder`."""

    tir = tir

    def __init__(self):
        self.ib = tir.ir_builder.create()

    def serial(self, count):
        return self.ib.for_range(0, count)

    def vector(self, size, dtype):
        return self.ib.allocate(dtype, size, scope="global")

    def choose(self, condition, then, otherwise):
        with self.ib.if_scope(condition):
            then()
        with self.ib.else_scope():
            otherwise()

    @staticmethod
    def is_below(index, bound):
        return index < bound.astype(index.dtype)


@generic_func
def schedule_layer(attrs, outs, target):
    """Schedule the loops of a layer as they are."""
    with target:
        return topi.generic.schedule_extern(outs)


def _shapes(attrs, inputs, _) -> list[te.Tensor]:
    """Return the shapes of the results, computed from those of the operands."""
    name, attrs = _plain(attrs)

    def result(data, recurrent):
        return [data[0], data[1], recurrent[0] * recurrent[2]]

    def state(data, recurrent):
        return [recurrent[0], data[0 if attrs.batch_first else 1], recurrent[2]]

    functions = [result, *[state] * states_of(name)]
    return [shape_tensors([inputs[0], inputs[2]], each)[0] for each in functions]


def _register(count: int) -> None:
    name = f"{_NAME}{count}"
    _op.register(name, "A recurrent layer, whose attributes say which.")
    layer_op = ir.Op.get(name)
    layer_op.set_num_inputs(count)
    for k in range(count):
        layer_op.add_argument(f"data{k}", "Tensor", "An operand of the layer.")
    # No type of its attributes, so that TVM's text has them as metadata: its parser cannot read
    # those of this type otherwise.
    layer_op.add_type_rel("DNNLRecurrentLayer", _layer_type)
    _op.register_pattern(name, _op.OpPattern.OPAQUE)
    _op.register_stateful(name, False)
    _op.register_compute(name, _compute)
    _op.register_schedule(name, schedule_layer)
    _op.register_shape_func(name, False, _shapes)


for _count in _COUNTS:
    _register(_count)
