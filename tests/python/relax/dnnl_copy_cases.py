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
"""Cases of `test_dnnl_ops.py`: ops that select, repeat or gather elements, and of truths."""

import numpy as np
from dnnl_modules import X3, const, var
from tvm import relax
from tvm.relax import op


def _unary(name):
    """A unary function of halves and other numbers."""
    return lambda b, x: getattr(op, name)(b.emit(op.multiply(x, relax.const(4.0, "float32"))))


def _truths(name):
    """A selection by what an op computes of comparisons."""

    def build(builder, x):
        truths = [builder.emit(op.greater(x, const(8, seed=seed))) for seed in (3, 4)]
        count = 1 if name == "logical_not" else 2
        condition = builder.emit(getattr(op, name)(*truths[:count]))
        return op.where(condition, x, const(8, seed=5))

    return build


def _special(name):
    def build(builder, x):
        # 1 / 0 and 0 / 0, of elements that a relu has made zero.
        zeros = builder.emit(op.nn.relu(x))
        numbers = builder.emit(op.divide(builder.emit(op.minimum(x, zeros)), zeros))
        return op.where(builder.emit(getattr(op, name)(numbers)), x, const(8))

    return build


CASES = {
    "astype": (
        lambda b, x: op.nn.relu(b.emit(op.astype(x, "float32"))),
        [var("x", 4, 8, dtype="int8")],
        {"dnnl.cast": 1, "dnnl.relu": 1},
    ),
    "where": (
        lambda b, c, x: op.where(c, b.emit(op.tanh(x)), const(5, 8)),
        [var("c", 5, 1, dtype="bool"), X3],
        {"dnnl.tanh": 1, "dnnl.where": 1},
    ),
    "where-scalars": (
        lambda b, x: op.where(
            b.emit(op.greater(x, const(2, 5, 8))),
            relax.const(1.0, "float32"),
            relax.const(-np.inf, "float32"),
        ),
        [X3],
        {"dnnl.greater": 1, "dnnl.where": 1},
    ),
    **{
        name: (_unary(name), [X3], {"dnnl.multiply": 1, f"dnnl.{name}": 1})
        for name in ("ceil", "floor", "round", "sign", "trunc")
    },
    **{
        name: (_truths(name), [X3], {"dnnl.greater": count, "dnnl.where": count_where})
        for name, count, count_where in (
            ("logical_not", 1, 2),
            ("logical_and", 2, 2),
            ("logical_or", 2, 2),
            ("logical_xor", 2, 3),
        )
    },
    **{name: (_special(name), [X3], None) for name in ("isnan", "isinf", "isfinite")},
    "broadcast_to": (
        lambda b, x: op.nn.relu(b.emit(op.broadcast_to(x, (3, 2, 4, 8)))),
        [var("x", 2, 1, 8)],
        {"dnnl.broadcast_to": 1, "dnnl.relu": 1},
    ),
    "repeat": (
        lambda b, x: op.nn.relu(b.emit(op.repeat(x, 3, 1))),
        [X3],
        {"dnnl.reshape": 2, "dnnl.broadcast_to": 1, "dnnl.relu": 1},
    ),
    "tile": (
        lambda b, x: op.nn.relu(b.emit(op.tile(x, (2, 1, 3)))),
        [X3],
        {"dnnl.reshape": 2, "dnnl.broadcast_to": 1, "dnnl.relu": 1},
    ),
    "take": (
        lambda b, x, i: op.nn.relu(b.emit(op.take(x, i, axis=1, mode="clip"))),
        [X3, var("i", 3, 2, dtype="int32")],
        {"dnnl.take": 1, "dnnl.relu": 1},
    ),
    "take-int64": (
        lambda b, x, i: op.nn.relu(b.emit(op.take(x, i, axis=-1, mode="clip"))),
        [X3, var("i", 3, dtype="int64")],
        {"dnnl.take": 1, "dnnl.relu": 1},
    ),
    "take-constant": (
        lambda b, x: op.nn.relu(b.emit(op.take(x, relax.const(np.array([3, 0, 2])), axis=1))),
        [X3],
        {"dnnl.take": 1, "dnnl.relu": 1},
    ),
    "truths-moved": (
        lambda b, x: op.astype(
            b.emit(
                op.strided_slice(
                    b.emit(op.reshape(b.emit(op.greater(x, const(8))), (10, 8))), [0], [1], [9]
                )
            ),
            "float32",
        ),
        [X3],
        {"dnnl.greater": 1, "dnnl.reshape": 1, "dnnl.strided_slice": 1, "dnnl.cast": 1},
    ),
}
