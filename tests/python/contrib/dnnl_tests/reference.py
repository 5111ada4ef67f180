# SPDX-License-Identifier: Apache-2.0
"""Numpy references for what the DNNL backend computes."""

from types import SimpleNamespace

import numpy as np
from tvm.contrib.onednn.ir.op import infer
from tvm.contrib.onednn.ir.op_view import Tensor
from tvm.contrib.onednn.ops.evaluate import define

# f32 sums of a few hundred products of order one: the error grows with the square root of the
# number of terms, 2**-24 * sqrt(1000) * 10, relative to the largest output.
RTOL = 2e-5


def rand(*shape, seed=0):
    """Return values in [-1, 1] that are the same in every run."""
    return np.random.default_rng((seed, *shape)).uniform(-1, 1, shape).astype("float32")


def _compute(name, attrs, *values):
    """Evaluate an op in float64; the result has the type of the first operand."""
    attrs = SimpleNamespace(**attrs)
    types = [Tensor(value.shape, str(value.dtype)) for value in values]
    wide = (value.astype("float64") for value in values)
    result = define(name)(attrs, infer(name, types, attrs), *wide)
    result = result[0] if isinstance(result, list) else result
    return result.astype(values[0].dtype)


def _letters(data):
    return "DHW"[5 - data.ndim :]


def _conv_attrs(data, kernel, attrs):
    layouts = dict(data_layout="NC" + _letters(data), kernel_layout=kernel + _letters(data))
    return {**layouts, "strides": 1, "padding": 0, "dilation": 1, **attrs}


def conv(data, weight, attrs):
    """Compute Relay's nn.conv1d, conv2d or conv3d in float64.

    Parameters
    ----------
    data, weight : numpy.ndarray
        In the layouts that `attrs` names.
    attrs : dict
        The attributes as passed to Relay; absent ones have Relay's defaults.

    Returns
    -------
    numpy.ndarray
        Of the type of `data`, in the layout of `data` unless `attrs` has an `out_layout`.
    """
    attrs = _conv_attrs(data, "OI", attrs)
    return _compute(f"nn.conv{data.ndim - 2}d", attrs, data, weight)


def conv2d(data, weight, attrs):
    """Compute Relay's nn.conv2d in float64, see `conv`."""
    return conv(data, weight, attrs)


def conv_transpose(data, weight, attrs):
    """Compute Relay's nn.conv1d_transpose, conv2d_transpose or conv3d_transpose in float64."""
    attrs = _conv_attrs(data, "IO", attrs)
    return _compute(f"nn.conv{data.ndim - 2}d_transpose", attrs, data, weight)


def pool(data, kind, attrs):
    """Compute Relay's nn.max_pool or nn.avg_pool over one to three dimensions in float64.

    Parameters
    ----------
    data : numpy.ndarray
        In the layout that `attrs` names.
    kind : str
        "max" or "avg".
    attrs : dict
        The attributes as passed to Relay, with tuples for `pool_size` and `strides`.
    """
    attrs = {"layout": "NC" + _letters(data), **attrs}
    return _compute(f"nn.{kind}_pool{data.ndim - 2}d", attrs, data)


def dense(data, weight):
    """Compute Relay's nn.dense in float64: (..., I) by (O, I) to (..., O)."""
    return _compute("nn.dense", {}, data, weight)


def batch_norm(data, gamma, beta, mean, variance, attrs):
    """Compute Relay's nn.batch_norm at inference in float64."""
    attrs = {"axis": 1, "epsilon": 1e-5, **attrs}
    return _compute("nn.batch_norm", attrs, data, gamma, beta, mean, variance)
