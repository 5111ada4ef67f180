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
"""What the row of an op declares: all that the project knows of it in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from ..ir.dim import broadcast
from ..ir.numpy_types import Array
from ..ir.op_view import OpView, Tensor, Value, tensor_of
from .attrs import Attr, declared
from .draw import Call, Draw, broadcast_operands, unary
from .tensors import result_elements

# What quantizers write after an op. MergeComposite looks for each pattern in the whole function,
# so there are no others.
POSTS_INT8 = "relu_quantize clip_quantize"
RESIDUAL_INT8 = (
    f"{POSTS_INT8} quantize_relu_quantize quantize_clip_quantize sum_quantize sum_relu_quantize "
    "quantize_sum quantize_sum_quantize quantize_sum_relu_quantize quantize_sum_clip_quantize"
)

# From the attributes, the type of the result, and the values of the operands.
Definition = Callable[..., Union[Array, list[Array]]]

# The cost weight where oneDNN has vector code and TVM calls a function of the C library.
FUNCTION = 64


def same_type(args: Sequence[Value], attrs: object) -> Value:
    """Infer the type of the first operand."""
    return Tensor(tensor_of(args[0]).dims, tensor_of(args[0]).dtype)


def broadcast_type(args: Sequence[Value], attrs: object) -> Value:
    """Infer the type of the operands of a binary elementwise op, broadcast to one shape."""
    return Tensor(broadcast(*(tensor_of(arg).dims for arg in args)), tensor_of(args[0]).dtype)


def out_dtype(attrs: Any, data: Tensor) -> str:
    """Return the type of a result: that of the data, unless the attributes say another one."""
    return attrs.out_dtype or data.dtype


def of_values(function: Callable[..., Array]) -> Definition:
    """Define an op without attributes by a function of its operands."""
    return lambda attrs, result_type, *values: function(*values)


@dataclass(frozen=True)
class OpSchema:
    """All that the partitioner knows about one op.

    Parameters
    ----------
    name : str
        The Relay op, or the name of a virtual op, which starts with "dnnl.".
    reason : Callable
        The rule: returns None for a call that oneDNN can run, else why it cannot.
    attrs : tuple[Attr, ...]
        Its attributes.
    infer : Callable
        From the operands and the declared attributes of a call: what it computes, a tuple for an op
        that returns one.
    numpy : Callable | None
        What the op computes, for constants and tests: ``numpy(attrs, result_type, *values)``
        returns an array, or a list of them, in the type of the operands or a wider one, and does
        not round. A tuple is given as a list. None for numpy's function of the op's name.
    channel_axis : Callable | None
        For an op that accepts a bias: the channel axis of a call's result.
    draw : Callable
        Draws a random call that the rule may accept: its operands and attributes, and what is at
        their edges. By default one operand of any rank and no attributes.
    heavy : bool
        Whether the op computes enough to be worth a partition of its own.
    cost_weight : int
        For an op that is not heavy: what an element of its result counts when a partition is
        weighed against TVM.
    moves : str | None
        For an op that computes nothing: "view" if it names elements in another way, "copy" if it
        may have to move them. A partition may reach through it, but not consist of it.
    reshapes : bool
        Whether a view gives the same elements in the same order other dimensions.
    keeps_values : bool
        Whether each element of the result is one of the data's, whatever scale these have.
    output_axis : Callable | None
        For a view: which axis of a call's results is an axis of its data, None if none is.
    weight_axis : Callable | None
        For an op with a weight: the axis of the output channels in a call's weight; None where the
        weight has none.
    reads_int8 : str | None
        For an op that can read integers in 8 bits: "constant weight" or "weight" if it multiplies
        data by it, "operands" if it reads each of its operands so, "data" if it has one and its
        result must be in 8 bits, too.
    post : str | None
        "eltwise", "binary", "prelu" or "quantize" for an op that can be fused to the result of
        another.
    swaps : bool
        Whether a binary op can be fused to its second operand.
    fuses : tuple[str, ...]
        What can be fused to the result of this op: kinds as in `post`, or ops by name.
    kept_dims : int | None
        How many of the last dimensions a reshape between the post-ops must keep, since the
        primitive sees all the others as one; None where no reshape may be there.
    flops : Callable
        The number of floating-point operations of a call.
    padding : str | None
        For an op with an attribute `padding` that a pad can be folded into: what it pads with.
        "zero"; "lowest", which no value of the data is below; or "average", which are zeros that
        count if the attributes say so.
    grows : bool
        Whether an element of the result may be so much larger than the operands that float16 does
        not hold it.
    only_float32 : bool
        Whether the op has no reduced precision: with the option `precision` it stays in float32.
    typed_operands : int | None
        For an op that computes in float32 whatever it reads: how many operands have the data type
        of the result. The others, such as masks, remain in float32 in reduced precision.
    normalizes : bool
        Whether the op scales rows of its data to one mean square, so that the sum of a residual
        connection, which is what it reads in a transformer, is worth more bits than its result.
    is_not_negative : Callable | None
        Whether no element of a call's result is below zero, whatever the data; None for no.
    scaled_weight : Callable | None
        For an op with a weight that a factor of each output channel can be folded into: returns
        the weight for a call, its old weight and the factors, as arrays.
    relax : str | None
        The ops of Relax that are read as this one, without "relax.", separated by spaces; None for
        one of the same name, and no names for what Relax writes as several ops or does not have.
    skips_positions : bool
        Whether the op has strides that leave out spatial positions of its result, and may get
        larger ones where what reads the result leaves out more.
    patterns : str
        The composites that the pattern table has of this op: what is fused to it, in words
        separated by spaces.
    patterns_int8 : str
        The same of the composites whose op reads integers in 8 bits, but for those that each such
        op has: with nothing fused to it, with a bias in front, and with a quantize.
    """

    name: str
    reason: Callable[[OpView], str | None]
    channel_axis: Callable[[OpView], int] | None = None
    attrs: tuple[Attr, ...] = ()
    infer: Callable[[Sequence[Value], Any], Value] = same_type
    numpy: Definition | None = None
    draw: Callable[[Draw], Call] = unary()
    heavy: bool = False
    cost_weight: int = 1
    moves: str | None = None
    reshapes: bool = False
    keeps_values: bool = False
    output_axis: Callable[[OpView, int], int | None] | None = None
    weight_axis: Callable[[OpView], int | None] | None = None
    reads_int8: str | None = None
    post: str | None = None
    swaps: bool = False
    fuses: tuple[str, ...] = ()
    kept_dims: int | None = None
    flops: Callable[[OpView], int] = result_elements
    padding: str | None = None
    grows: bool = False
    only_float32: bool = False
    typed_operands: int | None = None
    normalizes: bool = False
    is_not_negative: Callable[[OpView], bool] | None = None
    scaled_weight: Callable[[OpView, np.ndarray, np.ndarray], np.ndarray] | None = None
    relax: str | None = None
    skips_positions: bool = False
    patterns: str = ""
    patterns_int8: str = ""

    def attributes(self, given: object) -> object:
        """Return the attributes of a call as they are declared; see `attributes_of`."""
        return declared(self.name, self.attrs, given)

    @property
    def definition(self) -> Definition:
        """What the op computes; see `numpy`."""
        return self.numpy or of_values(getattr(np, self.name))

    @property
    def relax_ops(self) -> list[str]:
        """The ops of Relax that are read as this one, without "relax."."""
        return [self.name] if self.relax is None else self.relax.split()


def no_flops(call: OpView) -> int:
    """Return 0, for an op that computes nothing."""
    return 0


def always(call: OpView) -> bool:
    """Return True, for an op of which something holds for every call."""
    return True


def root(name: str, reason, channel_axis, **fields) -> OpSchema:
    """Make the row of an op that computes much, to which others are fused."""
    fuses = ("eltwise", "binary", "prelu", "quantize")
    return OpSchema(name, reason, channel_axis, heavy=True, fuses=fuses, **fields)


def light(name: str, reason, channel_axis=None, **fields) -> OpSchema:
    """Make the row of an op that wins nothing alone, to which others are fused."""
    fuses = ("eltwise", "binary", "quantize")
    return OpSchema(name, reason, channel_axis, cost_weight=0, fuses=fuses, **fields)


def function(name: str, reason, **fields) -> OpSchema:
    """Make the row of an op that computes functions such as exp, and to which nothing is fused."""
    return OpSchema(name, reason, cost_weight=FUNCTION, **fields)


def view(name: str, reason, **fields) -> OpSchema:
    """Make the row of an op that names or orders elements in another way."""
    return OpSchema(name, reason, moves="view", keeps_values=True, flops=no_flops, **fields)


def copy(name: str, reason, **fields) -> OpSchema:
    """Make the row of an op that puts elements together in another way."""
    return OpSchema(name, reason, moves="copy", flops=no_flops, **fields)


def eltwise(name: str, reason, **fields) -> OpSchema:
    """Make the row of a unary elementwise op."""
    fields.update(fuses=("binary", "quantize"), reads_int8="data")
    return OpSchema(name, reason, post="eltwise", **fields)


def binary(name: str, reason, **fields) -> OpSchema:
    """Make the row of a binary elementwise op, the second operand of which may be broadcast."""
    fields.update(fuses=("eltwise", "binary", "quantize"), reads_int8="operands")
    return OpSchema(
        name,
        reason,
        post="binary",
        **{"infer": broadcast_type, "draw": broadcast_operands, **fields},
    )
