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
"""Draws recurrent layers, which Relax calls as functions of TIR."""

from types import SimpleNamespace

import numpy as np
from tvm import relax
from tvm.contrib.onednn.policy.rules.recurrent import (
    ACTIVATIONS,
    DIRECTIONS,
    GATES,
    GRU,
    LSTM,
    RNN,
    operand_shapes,
)
from tvm_dnnl._dnnl.recurrent_tir import call_layer


def _integers(d, shape, low, high):
    values = [d.integer(low, high) for _ in range(int(np.prod(shape)))]
    return np.array(values, "int32").reshape(shape)


def _layer(name):
    def draw(d):
        steps, batch, inputs, hidden = d.shape(4)
        attrs = {
            "direction": d.choice(DIRECTIONS),
            "batch_first": d.chance(0.5),
            "has_initial_state": d.chance(0.5),
            "has_lengths": d.chance(0.3),
        }
        if name == GRU:
            attrs["linear_before_reset"] = d.chance(0.5)
        if name == RNN:
            attrs["activation"] = d.choice(ACTIVATIONS)
        data = (batch, steps, inputs) if attrs["batch_first"] else (steps, batch, inputs)
        _, *shapes = operand_shapes(name, SimpleNamespace(**attrs), data, hidden)
        weight = d.choice((d.dtype, "bfloat16")) if d.dtype == "float32" else d.dtype
        is_int8 = name == LSTM and d.dtype == "float32" and d.chance(0.3)
        dtypes = ["int8" if is_int8 else weight] * 2 + ["float32"]
        states = 3 + (2 if name == LSTM else 1) * attrs["has_initial_state"]
        operands = [d.data(data), *map(d.weight, shapes[:3], dtypes), *map(d.var, shapes[3:states])]
        if attrs["has_lengths"]:
            lengths = _integers(d, [batch], 0, steps)
            operands.append(relax.const(lengths, "int32"))
        for shape in shapes[:2] if is_int8 else ():
            operands.append(relax.const(np.full(shape[:2], 0.01, "float32")))
            operands.append(relax.const(_integers(d, shape[:2], -3, 3), "int32"))
        field = d.integer(0, 2 if name == LSTM else 1)

        def emit(builder):
            results = builder.emit(call_layer(builder, name, operands, attrs))
            return builder.emit(relax.TupleGetItem(results, field))

        return emit

    return draw


DRAWS = {name: _layer(name) for name in GATES}
