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
"""A recurrent layer of any number of steps as one op: the call of a function of TIR.

Relax has no recurrent op. An attribute of the function tells which op of the table it computes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import SimpleNamespace

from tvm import relax, te, tirx
from tvm.contrib.onednn.frontend.layer_loops import result_shapes, state_dtypes, write_layer
from tvm.contrib.onednn.ir.op import attributes_of
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .tir_ops import named_op_attrs


def call_layer(
    builder: relax.BlockBuilder, name: str, operands: Sequence[relax.Expr], attrs: dict
) -> relax.Call:
    """Return the call of a function that computes a recurrent layer.

    Parameters
    ----------
    builder : relax.BlockBuilder
        The function is added to its module.
    name : str
        The op of the table.
    operands : Sequence[relax.Expr]
        Its operands, see `onednn/ops/recurrent.py`. They may be of any floating-point type.
    attrs : dict
        Its attributes.

    Returns
    -------
    call : relax.Call
        It returns a tuple of the states of all steps and the last states.
    """
    return builder.call_te(
        functools.partial(_layer, name, attributes_of(name, SimpleNamespace(**attrs))),
        list(operands),
        primfunc_name_hint=name.split(".")[-1],
        primfunc_attrs=named_op_attrs(name, attrs),
    )


def _layer(name: str, attrs: SimpleNamespace, operands: list[te.Tensor]) -> list[te.Tensor]:
    """Return the results of a layer as tensors of TE."""

    def body(inputs, outputs):
        inputs, outputs = ([_proxy(each) for each in group] for group in (inputs, outputs))
        with IRBuilder() as ib:
            write_layer(_Builder(), name, attrs, operands, inputs, outputs)
            return ib.get()

    shapes, dtypes = result_shapes(name, attrs, operands), state_dtypes(name, attrs, operands)
    dtypes = [operands[0].dtype, *dtypes]
    return list(te.extern(shapes, operands, body, name=name.split(".")[-1], dtype=dtypes))


class _Vector:
    """A vector whose index is passed to TVM as a tuple.

    TVM lets C++ raise an error to tell other indices from tuples, and the first error of a process
    reads the debug information of all libraries.
    """

    def __init__(self, buffer):
        self._proxy = T.buffer_proxy(buffer)

    def __getitem__(self, index):
        return self._proxy[(index,)]

    def __setitem__(self, index, value):
        self._proxy[(index,)] = value


def _proxy(buffer):
    """Return a buffer that is indexed with what loops have: an index, or a tuple of them."""
    return _Vector(buffer) if len(buffer.shape) == 1 else T.buffer_proxy(buffer)


class _Builder:
    """Writes TIR, see `layer_loops.Builder`."""

    tir = tirx

    @staticmethod
    def serial(count):
        return T.serial(0, count)

    @staticmethod
    def vector(size, dtype):
        return _Vector(T.alloc_buffer((size,), dtype, scope="global"))

    @staticmethod
    def choose(condition, then, otherwise):
        with T.If(condition):
            with T.Then():
                then()
            with T.Else():
                otherwise()

    @staticmethod
    def is_below(index, bound):
        return index < bound.astype(index.ty.dtype)
