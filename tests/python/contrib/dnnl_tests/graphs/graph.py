# SPDX-License-Identifier: Apache-2.0
"""Graphs of Relay ops as plain data, which can be drawn at random, built and made smaller."""

import math
import zlib
from typing import NamedTuple

import numpy as np
import tvm
from tvm import relay
from tvm.contrib.onednn.ir.numpy_types import numpy_type

# A result: the number of the step that makes it, and which of its results it is.
Ref = tuple


class Step(NamedTuple):
    """One use of a row.

    Attributes
    ----------
    op : str
        The name of the row, or "input".
    args : tuple of Ref
        The operands that other steps make.
    attrs : dict
        What the row drew: numbers, texts, and tuples of numbers.
    """

    op: str
    args: tuple
    attrs: dict


class Tensor(NamedTuple):
    """A typed expression."""

    expr: relay.Expr
    shape: tuple
    dtype: str

    @property
    def rank(self):
        """The number of dimensions."""
        return len(self.shape)

    @staticmethod
    def of(expr):
        """Type an expression whose operands are typed; a list of tensors if it is a tuple."""
        type_ = relay.transform.InferTypeLocal(expr)
        if isinstance(type_, relay.TupleType):
            return [Tensor.of(relay.TupleGetItem(expr, i)) for i in range(len(type_.fields))]
        if not all(isinstance(dim, tvm.tir.IntImm) and int(dim) > 0 for dim in type_.shape):
            raise ValueError(f"a result has the shape {type_.shape}")
        return Tensor(expr, tuple(map(int, type_.shape)), type_.dtype)


def values(name, shape, dtype):
    """Return the value of an input: the same for the same arguments.

    Names that start with "pos" have values around one, all others between -1 and 1.
    """
    rng = np.random.default_rng([zlib.crc32(name.encode()), *shape])
    if "int" in dtype:
        return rng.integers(-4, 5, shape).astype(dtype)
    low, high = (0.5, 1.5) if name.startswith("pos") else (-1.0, 1.0)
    # Rounded to float32 in any case: a float64 run has the same inputs.
    return np.asarray(rng.uniform(low, high, shape)).astype("float32").astype(numpy_type(dtype))


class Builder:
    """What a row builds its expression with.

    Parameters
    ----------
    number : int
        The number of the step.
    constant : bool
        Whether parameters are constants, else they are inputs.
    real : str
        The type in place of float32.
    """

    def __init__(self, number, constant, real):
        self.number, self.constant, self.real = number, constant, real
        self._count = 0

    def param(self, shape, kind="par", fan_in=1):
        """Make a parameter; the values of a constant are divided by the root of `fan_in`."""
        name = f"{kind}{self.number}_{self._count}"
        self._count += 1
        shape = tuple(int(dim) for dim in shape)
        if math.prod(shape) > 1 << 20 or min(shape, default=1) < 1:
            raise ValueError(f"{shape} is no shape for a parameter")
        if self.constant:
            value = values(name, shape, self.real) / np.sqrt(max(fan_in / 3, 1))
            # Without the NDArray Relay would make float32 of float64.
            return relay.const(tvm.nd.array(value.astype("float32").astype(numpy_type(self.real))))
        return relay.var(name, shape=shape, dtype=self.real)

    def scalar(self, value, like=None):
        """Make a constant of no dimensions."""
        return relay.const(float(np.float32(value)), like.dtype if like else self.real)


class Graph:
    """Steps by number, and the results that the function returns.

    Parameters
    ----------
    steps : dict of int to Step
        Operands have lower numbers than their users.
    outputs : list of Ref
        The results.
    """

    def __init__(self, steps, outputs):
        used, stack = set(), [ref[0] for ref in outputs]
        while stack:
            number = stack.pop()
            if number not in used:
                used.add(number)
                stack += [ref[0] for ref in steps[number].args]
        self.steps = {number: steps[number] for number in sorted(used)}
        self.outputs = list(dict.fromkeys(outputs))

    def tensors(self, rows, real="float32"):
        """Build every step; return the tensors by Ref."""
        tensors = {}
        for number, step in self.steps.items():
            for i, tensor in enumerate(build(number, step, tensors, rows, real)):
                tensors[number, i] = tensor
        return tensors

    def module(self, rows, real="float32"):
        """Return the module of a function main that computes the graph."""
        tensors = self.tensors(rows, real)
        results = [tensors[ref].expr for ref in self.outputs]
        body = results[0] if len(results) == 1 else relay.Tuple(results)
        params = sorted(relay.analysis.free_vars(body), key=lambda var: var.name_hint)
        mod = tvm.IRModule.from_expr(relay.Function(params, body))
        return relay.transform.InferType()(mod)

    @property
    def depth(self):
        """The most steps, inputs left out, on a way through the graph."""
        depth = {}
        for number, step in self.steps.items():
            before = max((depth[ref[0]] for ref in step.args), default=0)
            depth[number] = before + (step.op != "input")
        return max(depth.values())


def build(number, step, known, rows, real="float32"):
    """Return the tensors that a step makes of those that are known."""
    if step.op == "input":
        dtype = real if step.attrs["dtype"] == "float32" else step.attrs["dtype"]
        return [Tensor.of(relay.var(f"x{number}", shape=step.attrs["shape"], dtype=dtype))]
    attrs = dict(step.attrs)
    builder = Builder(number, attrs.pop("constant", True), real)
    results = rows[step.op].build(builder, *(known[ref] for ref in step.args), **attrs)
    tensors = Tensor.of(results.astuple() if isinstance(results, relay.TupleWrapper) else results)
    return tensors if isinstance(tensors, list) else [tensors]


def inputs_of(mod):
    """Return the values of all parameters of main, by name."""
    inputs = {}
    for var in mod["main"].params:
        shape = [int(dim) for dim in var.checked_type.shape]
        inputs[var.name_hint] = values(var.name_hint, shape, var.checked_type.dtype)
    return inputs
