# SPDX-License-Identifier: Apache-2.0
"""Rows of single ops: the schema draws their attributes and their other operands.

A step keeps the seed only, so that a smaller tensor has smaller parameters.
"""

import functools
import math
from types import SimpleNamespace

import numpy as np
import tvm
from tvm import relay
from tvm.contrib.onednn.ir.op import attributes_of, infer
from tvm.contrib.onednn.ops import draw as schema
from tvm.contrib.onednn.ops.table import PLAIN, TABLE
from tvm.relay.op.contrib._dnnl.ir.relay_view import view_of

from ..calls import relay_call
from ..draw import ANY, REAL, Unfit
from ..graph import Builder, Tensor
from ..row import Row, bounded, positive

SEEDS, TRIES = 100, 8
FEATURES = (1, 3, 8, 10, 16, 16, 17, 32)
# By how often an op is drawn; all others, twice.
WEIGHTS = {
    8: "nn.conv2d",
    6: "nn.dense reshape transpose",
    5: "nn.batch_norm",
    4: "nn.conv1d nn.conv3d nn.layer_norm nn.relu nn.softmax",
    3: "nn.matmul nn.bias_add nn.pad split strided_slice",
    1: "broadcast_to ceil contrib_reverse_reshape cos erf floor image.resize1d image.resize2d "
    "image.resize3d log nn.upsampling nn.upsampling3d sign sin take trunc",
}
_WEIGHTS = {name: weight for weight, names in WEIGHTS.items() for name in names.split()}
# Functions that jump: of what is computed the last bit may decide.
JUMPING = ("ceil", "floor", "sign", "trunc")
# Functions of any values; those without attributes that are not here read positive ones.
SIGNED = (*JUMPING, "abs", "cos", "erf", "negative", "nn.relu", "sigmoid", "sin", "tanh")
OF_ANY_TYPE = ("abs", "clip", "negative", "nn.relu")


class OfTensor(schema.Draw):
    """Draws a call of which the data is a tensor of the graph: the first shape is the tensor's."""

    def __init__(self, seed, shape):
        super().__init__(seed)
        self._given = tuple(shape)

    def shape(self, *ranks):
        if self._given is None:
            return super().shape(*ranks)
        shape, self._given = list(self._given), None
        if len(shape) not in (ranks or range(1, 6)):
            raise Unfit(f"rank {len(shape)}")
        return shape

    def any_shape(self):
        return self.shape(*range(9))

    def image(self, n):
        letters = schema.SPATIAL[-n:]
        layout = self.choice((f"NC{letters}", f"N{letters}C"))
        return dict(zip(layout, self.shape(n + 2))), layout

    def features(self):
        return self.choice(FEATURES)

    def values(self, shape):
        # The types count; `Builder.param` makes the values.
        return np.zeros(shape, "float32")


@functools.lru_cache(maxsize=None)
def _ranks(name):
    """Return the ranks of data that an op is drawn for."""

    def fits(rank, seed):
        try:
            call = TABLE[name].draw(OfTensor(seed, (1,) * rank))
        except (Unfit, ValueError):
            return False
        return call.values[0].shape == (1,) * rank

    return [rank for rank in range(9) if any(fits(rank, seed) for seed in range(TRIES))]


def _near_one(b, x):
    # The product would leave the range of float32, and the order of many factors would show.
    if math.prod(x.shape) > 256:
        raise Unfit(f"a product of {x.shape}")
    return relay.tanh(x.expr) * b.scalar(0.01) + b.scalar(1.0)


def _data(name, b, x):
    """Return the data in the domain of an op, and where its results stay finite."""
    if name == "prod":
        return _near_one(b, x)
    if name == "exp":
        return bounded(x)
    return positive(b, x) if name in PLAIN and name not in SIGNED else x.expr


def _operand(name, k, value, attrs, b):
    """Return an operand after the data: a parameter, or a constant."""
    if value.dtype != "float32":
        return relay.const(tvm.nd.array(value))
    if not value.shape:
        return b.scalar(value)
    fan_in = 1
    if k == 1 and TABLE[name].weight_axis is not None:
        fan_in = value.size // attrs["channels"] if "channels" in attrs else value.shape[-1]
    is_variance = (name, k) == ("nn.batch_norm", 4)
    return b.param(value.shape, "pos" if is_variance else "par", fan_in)


def call(name, b, x, seed):
    """Return a call of an op of the table for a tensor.

    Raises
    ------
    Unfit
        What this seed draws is not for the tensor.
    """
    drawn = TABLE[name].draw(OfTensor(seed, x.shape))
    if drawn.values[0].shape != x.shape:
        raise Unfit(f"{name} of {x.shape}")
    # Another type in the place of float32 is that of the result, too.
    drawn.attrs.pop("out_dtype", None)
    operands = enumerate(drawn.values[1:], 1)
    args = [_data(name, b, x), *(_operand(name, k, v, drawn.attrs, b) for k, v in operands)]
    if "pool" in name and min(_inferred_shape(name, drawn)) < 1:
        # TVM counts a window that does not fit into the data if the stride is larger than what is
        # missing, and reads beyond the data.
        raise Unfit(f"no window fits into {x.shape}")
    expr = relay_call(name, drawn, args, b.real)
    if name == "nn.batch_norm":
        return relay.TupleGetItem(expr, 0)
    if "max_pool" in name and _has_empty_window(name, expr):
        # TVM's maximum of nothing is the lowest number, of which the next sum would overflow or
        # not as the order is.
        return relay.clip(expr, -100.0, 100.0)
    return expr


def _inferred_shape(name, drawn):
    attrs = attributes_of(name, SimpleNamespace(**drawn.attrs))
    return infer(name, drawn.types(), attrs).shape


def _has_empty_window(name, expr):
    """Whether a window of a pool holds nothing but padding."""
    relay.transform.InferTypeLocal(expr)
    return "only padding" in (TABLE[name].reason(view_of(expr)) or "")


def row(name, of=None, build=None):
    """Make the row of an op of the table.

    Parameters
    ----------
    name : str
        The name of the row.
    of : str, optional
        The op, if it is not the row's name.
    build : callable, optional
        Builds more of the call: takes a Builder and the call.
    """
    of = of or name
    dtypes = ANY if TABLE[of].moves == "view" or of in OF_ANY_TYPE else REAL

    def draw(draw):
        def fits(tensor):
            return of != "squeeze" or 1 in tensor.shape

        x = draw.data(_ranks(of), dtypes, where=fits, inputs_only=of in JUMPING)
        for _ in range(TRIES):
            seed = draw.integer(0, SEEDS - 1)
            try:
                Tensor.of(call(of, Builder(0, True, "float32"), draw.tensor(x), seed))
            except (Unfit, tvm.TVMError, TypeError, ValueError):
                continue
            return [x], dict(seed=seed)
        raise Unfit("no attributes")

    def whole(b, x, seed):
        expr = call(of, b, x, seed)
        return expr if build is None else build(b, expr)

    return Row(name, draw, whole, _WEIGHTS.get(name, 1 if "adaptive" in name else 2))
