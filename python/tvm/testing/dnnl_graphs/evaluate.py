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
"""Evaluating a module with numpy in float64: much faster than to compile it, and nearly exact."""

import warnings

import numpy as np
from tvm import relay
from tvm.relay.op.contrib._dnnl.constants import to_numpy

from .graph import numpy_type
from .numpy_ops import OPS


def evaluate(mod, inputs, is_rounded=True):
    """Compute the outputs of main.

    Parameters
    ----------
    mod : tvm.IRModule
        Typed, and not partitioned.
    inputs : dict of str to array
        The values of main's parameters.
    is_rounded : bool
        Whether each step's result is rounded to its type, where that is bfloat16 or float16.

    Returns
    -------
    list of numpy.ndarray or None
        The outputs, in float64 for all types of real numbers; None if numpy cannot tell, because
        an op is not known here or a window of a pooling is empty.
    """
    body, values = mod["main"].body, {}

    def visit(expr):
        if isinstance(expr, relay.Call):
            args = [values[arg] for arg in expr.args]
            found = OPS[expr.op.name](expr, *args)
            values[expr] = _rounded(found, expr.checked_type, is_rounded)
        elif isinstance(expr, relay.Var):
            values[expr] = _real(inputs[expr.name_hint])
        elif isinstance(expr, relay.Constant):
            values[expr] = _real(to_numpy(expr.data))
        elif isinstance(expr, relay.Tuple):
            values[expr] = [values[field] for field in expr.fields]
        elif isinstance(expr, relay.TupleGetItem):
            values[expr] = values[expr.tuple_value][expr.index]

    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("error")
            relay.analysis.post_order_visit(body, visit)
    # An exception that passes through TVM changes its type.
    except Exception:  # pylint: disable=broad-except
        return None
    return values[body] if isinstance(body, relay.Tuple) else [values[body]]


def _real(value):
    return value.astype("float64") if value.dtype.kind not in "iub" else value


def _rounded(value, type_, is_rounded):
    """Bring a result into the type that it has, where that is not a wide real number."""
    if isinstance(type_, relay.TupleType):
        return [_rounded(field, inner, is_rounded) for field, inner in zip(value, type_.fields)]
    if is_rounded and type_.dtype in ("bfloat16", "float16"):
        return value.astype(numpy_type(type_.dtype)).astype("float64")
    return value.astype("float64" if "float" in type_.dtype else type_.dtype)
