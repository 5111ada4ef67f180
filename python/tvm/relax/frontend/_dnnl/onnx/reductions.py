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
"""Converters of reductions with `noop_with_empty_axes`, of which TVM drops the elementwise part."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from ..backend import is_constant, value_of


def _reduction(name: str, elementwise: Callable) -> type:
    """Return the converter of a reduction.

    Parameters
    ----------
    name : str
        The ONNX op.
    elementwise : Callable
        What the op computes of each element if it reduces no axis.
    """
    own = getattr(onnx_frontend, name)

    class Reduction(own):
        """Converts a reduction."""

        @classmethod
        def _impl_v18(cls, bb, inputs, attr, params):
            axes = None if inputs[1] is None else onnx_frontend.get_constant(inputs[1], params)
            is_empty = axes is None or (is_constant(axes) and not value_of(axes).size)
            if is_empty and attr.get("noop_with_empty_axes", 0):
                attr.get("keepdims")  # has no effect
                return bb.normalize(elementwise(inputs[0]))
            return super()._impl_v18(bb, inputs, attr, params)

    Reduction.__name__ = name
    return Reduction


_ELEMENTWISE = {
    "ReduceL1": relax.op.abs,
    "ReduceL2": relax.op.abs,
    "ReduceLogSum": relax.op.log,
    "ReduceSumSquare": lambda x: relax.op.multiply(x, x),
}

REPLACEMENTS = {name: _reduction(name, each) for name, each in _ELEMENTWISE.items()}
