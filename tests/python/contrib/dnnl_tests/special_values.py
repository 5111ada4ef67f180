# SPDX-License-Identifier: Apache-2.0
"""NaN, infinities, zeros, subnormal, huge and equal numbers as operands of each op of the nets."""

import itertools

import ml_dtypes
import numpy as np
from tvm.contrib.onednn.ir.numpy_types import numpy_type
from tvm.contrib.onednn.ops.recurrent import GATES
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.rewrites.exact_nan import SELECTING

# Ops that weigh elements: whether 0 times an infinity counts depends on the kernel.
WEIGHTING = {name for name in TABLE if name.startswith(("image.", "nn.upsampling"))}
# What may be flushed to zero.
LEAST = 2.0**-126


def _limits(dtype):
    info = ml_dtypes.finfo(numpy_type(dtype))
    return float(info.smallest_subnormal), float(info.max)


def _some(value):
    """Return what makes every fifth element, or so, one number."""
    return lambda rng, plain, dtype: np.where(rng.random(plain.shape) < 0.2, value, plain)


def _rows(value):
    """Return what makes the first and every second row one number."""

    def draw(rng, plain, dtype):
        count = int(np.prod(plain.shape[:-1]))
        is_row = (np.arange(count) % 2 == 0).reshape(*plain.shape[:-1], *([1] * (plain.ndim > 0)))
        return np.where(is_row, value, plain)

    return draw


def _mixed(rng, plain, dtype):
    numbers = np.nan, np.inf, -np.inf, -0.0, 1.0
    return np.where(rng.random(plain.shape) < 0.5, rng.choice(numbers, plain.shape), plain)


def _huge_mean(rng, plain, dtype):
    return 1e6 + np.round(8 * plain) / 8 if dtype == "float32" else 64 + np.round(2 * plain)


# From a generator of random numbers, numbers between -1 and 1, and their type.
KINDS = {
    "NaN": _some(np.nan),
    "infinite": _some(np.inf),
    "negative infinite": _some(-np.inf),
    "rows of NaN": _rows(np.nan),
    "masked rows": _rows(-np.inf),
    "equal rows": _rows(1.7),
    "zeros": lambda rng, plain, dtype: np.copysign(0.0, plain),
    "subnormal": lambda rng, plain, dtype: plain * 8 * _limits(dtype)[0],
    "huge mean": _huge_mean,
    "largest": lambda rng, plain, dtype: np.copysign(_limits(dtype)[1], plain),
    "mixed": _mixed,
}


def drawn(names, values, seed):
    """Yield a kind and operands, of which the first float and some of the others are special.

    Parameters
    ----------
    names : set of str
        The ops to compute. The weights of those that pad stay ordinary: kernels skip the padding,
        and do not multiply it by an infinity.
    values : list of numpy.ndarray
        The operands with ordinary values.
    seed : int
        The seed of all choices.
    """
    pads = any("conv" in name for name in names)
    reals = [k for k, each in enumerate(values) if "float" in str(each.dtype)]
    # Every third kind: each is drawn with several calls of an op.
    for number, (kind, draw) in itertools.islice(enumerate(KINDS.items()), seed % 3, None, 3):
        rng, given = np.random.default_rng([seed, number]), list(values)
        for k in reals:
            if k == reals[0] or (rng.random() < 0.2 and not pads):
                dtype, plain = str(given[k].dtype), rng.uniform(-1, 1, given[k].shape)
                given[k] = np.asarray(draw(rng, plain, dtype)).astype(numpy_type(dtype))
        if reals:
            yield kind, given


def reads_next_channel(call):
    """Whether kernels multiply an element that is beside those of a window by zero.

    oneDNN's convolutions in bfloat16 read the channels of a group in pairs.
    """
    if "conv" not in call.name or call.args[0].dtype != "bfloat16":
        return False
    channels = call.args[0].shape[call.attrs.data_layout.index("C")]
    return channels is None or channels // call.attrs.groups % 2 == 1


def is_wrong(kind, names, got, want, rtol, atol=0.0, reads_next=False):
    """Whether a result is not what docs/numerics.md says.

    Parameters
    ----------
    kind : str
        Of the values of the operands.
    names : set of str
        The ops that were computed.
    got, want : numpy.ndarray
        The result, and that of the numpy definition.
    rtol : float
        How far a number may be off, relative to the largest one.
    atol : float
        How far it may be off if the largest one is small.
    reads_next : bool
        Whether `reads_next_channel` is true of one of the calls.
    """
    # One step between subnormal numbers is relatively large.
    step, lowest = 0.0, 0.0
    if "float" in str(got.dtype):
        step, largest = _limits(str(got.dtype))
        lowest = -largest
    got, want = (np.asarray(each).astype("float64") for each in (got, want))
    finite = np.abs(want[np.isfinite(want)])
    atol = max(rtol * finite.max(initial=0) + max(LEAST, step), atol)
    is_right = np.isclose(got, want, 0, atol, equal_nan=True)
    if names & SELECTING.keys():
        is_right |= np.isnan(want)
    if names & WEIGHTING:
        is_right |= ~(np.isfinite(want) & np.isfinite(got))
    if any("max_pool" in name for name in names):
        # A window without another number.
        is_right |= (want == lowest) & (got == -np.inf)
    if any(name == "erf" or "gelu" in name for name in names):
        # With AVX-512, GELU of infinity.
        is_right |= (want == np.inf) & np.isnan(got)
    if reads_next and kind != "ordinary":
        is_right |= np.isnan(got)
    if kind == "largest":
        # Squares and sums of these are infinite in float32, which gates saturate at.
        is_right |= ~np.isfinite(got) | (got == 0) | bool(names & GATES.keys())
    return not is_right.all()
