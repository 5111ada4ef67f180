# SPDX-License-Identifier: Apache-2.0
"""Evaluating a module with numpy in float64: much faster than to compile it, and nearly exact."""

import warnings

import numpy as np
from tvm import relay
from tvm.contrib.onednn.ir.numpy_types import numpy_type
from tvm.contrib.onednn.ops.evaluate import define
from tvm.relay.op.contrib._dnnl.ir.constants import to_numpy
from tvm.relay.op.contrib._dnnl.ir.relay_view import plain_attrs
from tvm.relay.op.contrib._dnnl.recurrent import layer_name

from dnnl_tests.direct import result_type


def nearest(value, dtype):
    """Round to the nearest number of a type of reduced precision, as oneDNN and TVM do."""
    return value if dtype == "float32" else value.astype(dtype).astype("float64")


def at_random(seed):
    """Return a function that rounds up or down by the toss of a coin.

    So does the CESTAC method, which runs a program several times with random rounding and takes
    the digits on which the runs differ for those that rounding has spoilt. A value that a type has
    stays. For any other the mean of the squared error is four times that of the nearest: a
    fraction f of the way between neighbours has f ** 2 / 2 + (1 - f) ** 2 / 2, whose mean over
    all f is 1 / 3, and the nearest has min(f, 1 - f) ** 2, whose mean is 1 / 12.
    """
    rng = np.random.default_rng(seed)

    def rounded(value, dtype):
        near = np.asarray(value.astype(dtype))
        wide = near.astype("float64")
        other = np.nextafter(near, np.where(wide < value, np.inf, -np.inf).astype(dtype))
        other = other.astype("float64")
        is_moved = (rng.random(wide.shape) < 0.5) & (wide != value) & np.isfinite(other)
        return np.where(is_moved, other, wide)

    return rounded


def evaluate(mod, inputs, rounding=nearest):
    """Compute the outputs of main.

    Parameters
    ----------
    mod : tvm.IRModule
        Typed, and not partitioned.
    inputs : dict of str to array
        The values of main's parameters.
    rounding : callable, optional
        Rounds the result of each step to its type, where that is a float: `nearest`, which
        leaves float32 as it is, or one of `at_random`. None leaves all as they are.

    Returns
    -------
    list of numpy.ndarray or None
        The outputs, in float64 for all types of floats; None if numpy cannot tell, because
        an op is not known here or a window of a pooling is empty.
    """
    body, values = mod["main"].body, {}

    def visit(expr):
        if isinstance(expr, relay.Call):
            args = [values[arg] for arg in expr.args]
            name = layer_name(expr) or expr.op.name
            value = define(name)(plain_attrs(expr), result_type(expr), *args)
            values[expr] = _rounded(value, expr.checked_type, rounding)
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


def _rounded(value, type_, rounding):
    """Bring a result into the type that it has, where that is not a wide floating-point value."""
    if isinstance(type_, relay.TupleType):
        return [_rounded(field, inner, rounding) for field, inner in zip(value, type_.fields)]
    if rounding and type_.dtype in ("float32", "bfloat16", "float16"):
        return rounding(value, numpy_type(type_.dtype))
    return value.astype("float64" if "float" in type_.dtype else type_.dtype)
