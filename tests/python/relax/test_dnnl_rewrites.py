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
"""Rewrites that change what is computed: positions that nothing reads are left out."""

import pytest
import tvm_dnnl
from dnnl_modules import check, const, module, rand, var
from tvm import relax
from tvm.relax import op

X = var("x", 1, 6, 12, 16)


def conv(builder, x, kernel=3, strides=1, seed=1):
    weight = const(6, 6, kernel, kernel, seed=seed)
    return builder.emit(op.nn.conv2d(x, weight, strides=strides, padding=kernel // 2))


def relu(builder, x):
    return builder.emit(op.nn.relu(x))


def every(builder, x, *strides, seed=1):
    """A 1x1 convolution that reads every so many spatial positions."""
    return conv(builder, x, 1, strides, seed)


def both(builder, x):
    """Two convolutions that skip the same spatial positions."""
    return op.add(every(builder, x, 2, 2), every(builder, x, 2, 2, seed=2))


def _residual(builder, x):
    y = builder.emit(op.add(conv(builder, x), x))
    y = builder.emit(op.multiply(y, const(1, 6, 1, 1)))
    return both(builder, relu(builder, y))


def _read_whole(builder, x):
    y = relu(builder, conv(builder, x))
    return relax.Tuple([y, every(builder, y, 2, 2)])


# By name: the function, the strides of its convolutions afterwards, and how many slices it has.
STRIDES = {
    "relu": (lambda b, x: every(b, relu(b, conv(b, x)), 2, 2), [(1, 1), (2, 2)], 0),
    "one-axis": (lambda b, x: every(b, relu(b, conv(b, x)), 1, 2), [(1, 1), (1, 2)], 0),
    "two-readers": (lambda b, x: both(b, relu(b, conv(b, x))), [(1, 1), (1, 1), (2, 2)], 0),
    "residual": (_residual, [(1, 1), (1, 1), (2, 2)], 1),
    "multiplied": (
        lambda b, x: every(b, conv(b, x, strides=(1, 2)), 2, 1),
        [(1, 1), (2, 2)],
        0,
    ),
    "result": (_read_whole, [(1, 1), (2, 2)], 0),
    "3x3": (lambda b, x: conv(b, relu(b, conv(b, x)), strides=2), [(1, 1), (2, 2)], 0),
    "input": (lambda b, x: every(b, relu(b, x), 2, 2), [(2, 2)], 0),
}


def calls_of(mod, name):
    """Return the calls of an op in all functions of a module."""
    found = []

    def visit(expr):
        if isinstance(expr, relax.Call) and getattr(expr.op, "name", None) == f"relax.{name}":
            found.append(expr)

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    return found


@pytest.mark.parametrize("name", STRIDES)
def test_strides(name):
    build, strides, slices = STRIDES[name]
    mod = module(build, X)
    found = check(mod, None, rand(1, 6, 12, 16))
    convs = calls_of(found, "nn.conv2d")
    assert sorted(tuple(map(int, conv.attrs.strides)) for conv in convs) == strides
    assert len(calls_of(found, "strided_slice")) == slices


def test_no_slice_is_made_where_slices_stay_on_tvm():
    mod = module(_residual, X)
    found = tvm_dnnl.partition_for_dnnl(mod, exclude=["strided_slice"])
    assert not calls_of(found, "strided_slice")
    strides = [int(conv.attrs.strides[0]) for conv in calls_of(found, "nn.conv2d")]
    assert sorted(strides) == [1, 2, 2]
