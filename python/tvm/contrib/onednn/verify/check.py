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
"""Verifies a compiled model against its source, and finds the first op that differs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from . import compare

#: So many bytes of intermediate results are computed at a time.
MAX_BYTES = 1 << 29
_DRAWS = 2
# A bound tells nothing if it is larger than this part of a result.
_VAGUE = 0.25
# Each draw finds a tie in about two of five cases.
_DRAWS_OF_TIES = 8


class VerificationError(RuntimeError):
    """The results of a compiled model differ from its source by more than rounding explains."""


class CannotRun(Exception):
    """A source cannot be run, or no inputs are known, for the reason in the message."""


def is_flag_set(verify: bool | None, default: bool = False) -> bool:
    """Tell whether the option `verify` is set; raise a TypeError if it is no bool."""
    if verify is not None and not isinstance(verify, bool):
        raise TypeError(f"verify must be True or False, not {verify!r}")
    return default if verify is None else verify


def check_reference(reference: str | None, is_module: bool) -> None:
    """Raise a ValueError for an unknown reference, or a TypeError for a source of a module."""
    if reference not in (None, "source", "numpy"):
        raise ValueError(f'reference must be "source" or "numpy", not {reference!r}')
    if is_module and reference == "source":
        raise TypeError('reference="source" is for models of PyTorch and ONNX')


@dataclasses.dataclass(frozen=True)
class Step:
    """An op of the source.

    Parameters
    ----------
    name : str
        Its name, by which `Source` knows its result.
    op : str
        What it computes.
    where : str
        Where the user wrote it; empty if that is not known.
    operands : tuple[str, ...]
        The names of the results that it reads.
    size : int
        Bytes of its result.
    """

    name: str
    op: str
    where: str
    operands: tuple[str, ...]
    size: int


class Source(Protocol):
    """A model as its framework runs it.

    Attributes
    ----------
    framework : str
        Its name.
    inputs : list[numpy.ndarray]
        The inputs of the compiled model.
    dtype : str
        The coarsest floating-point type that the model itself computes in.
    is_discrete : bool
        Whether it rounds to integers, or compares numbers.
    undefined : Sequence[Step]
        The ops that it cannot compute.
    """

    framework: str
    inputs: list[np.ndarray]
    dtype: str
    is_discrete: bool
    undefined: Sequence[Step]

    def results(self) -> list[np.ndarray | None]:
        """Return the results; None for those that are random."""

    def rounded(self, epsilon: float, seed: int) -> list[np.ndarray | None]:
        """Return the results if each intermediate result has a random relative error.

        With `epsilon` 0, those of what is imported, after rewrites of this package.
        """

    def steps(self) -> Sequence[Step]:
        """Return the ops whose results can be compared, in order."""

    def compiled(self, names: Sequence[str], precision: str | None) -> list[np.ndarray]:
        """Import the model with these results, compile it and run it.

        `precision` is that of `partition_for_dnnl`, or None for TVM without oneDNN.
        """

    def values(self, names: Sequence[str]) -> list[np.ndarray]:
        """Return the results of ops as the framework computes the model."""

    def evaluate(self, step: Step, values: dict, epsilon: float = 0, seed: int = 0) -> np.ndarray:
        """Return the result of an op for the operands that were computed, rounded at random."""

    def opinions(self, step: Step, values: dict) -> Iterable[np.ndarray]:
        """Return the results of other implementations of an op, each of which is right, too."""

    def other_results(self) -> Iterable[list[np.ndarray | None]]:
        """Return the results of other implementations of the model."""


@dataclasses.dataclass
class Difference:
    """A result beside that of the source.

    Parameters
    ----------
    step : Step
        The op.
    error : float
        The largest absolute error.
    bound : float
        The error that rounding explains.
    got, want : numpy.ndarray
        The two results.
    """

    step: Step
    error: float
    bound: float
    got: np.ndarray
    want: np.ndarray

    def __str__(self):
        what = compare.describe(self.got, self.want)
        what = what or f"largest error {self.error:.3g}, bound {self.bound:.3g}"
        shape = "x".join(map(str, self.want.shape)) or "scalar"
        return f"{self.step.name} ({self.step.op}, {shape} {self.want.dtype}): {what}"


def check(source: Source, run: Callable, precision: str, tell: Callable = lambda text: None) -> str:
    """Compare a compiled model with its source.

    Results within a bound of rounding are accepted at once. Otherwise the source is run again with
    random rounding of each intermediate result, which tells what error the arithmetic explains.
    If the error is larger, the model is imported and compiled with its intermediate results, and
    each op is compared given the operands that the compiled model computed.

    Parameters
    ----------
    source : Source
        The model in its framework.
    run : Callable
        The compiled model: returns its results as a list of arrays.
    precision : str
        The type that it computes float32 in.
    tell : Callable
        Is called with what is done now.

    Returns
    -------
    note : str
        What was compared, for the report.

    Raises
    ------
    VerificationError
        A result differs by more than rounding explains.
    """
    want = source.results()
    if all(each is None for each in want):
        return "not compared: the results are random"
    got = run(source.inputs)
    if len(got) != len(want):
        raise VerificationError(
            f"the compiled model has {len(got)} results, {source.framework} has {len(want)}"
        )
    dtype = compare.coarsest(precision, source.dtype)
    worst, exceeding = 0.0, []
    for i, (one, other) in enumerate(zip(got, want)):
        if other is None:
            continue
        error, largest = compare.largest_error(one, other), compare.largest_value(other)
        worst = max(worst, error / largest if error and largest else error)
        if error > compare.free_bound(other, dtype):
            exceeding.append(i)
    note = f"as {source.framework} computes it, relative error {worst:.1e}"
    if not exceeding:
        if any(compare.tells_anything(each) for each in want if each is not None):
            return note
        return "not compared: for these inputs, the results are empty, NaN or infinite"
    tell("explain a difference")
    return _explained(source, got, want, exceeding, dtype, precision) or note


def _explained(source, got, want, exceeding, dtype, precision) -> str:
    """Raise an error if rounding does not explain the error of these results."""
    own = source.rounded(0, 0)
    try:
        draws = [source.rounded(compare.EPSILON[dtype], i) for i in range(_DRAWS)]
    except CannotRun:
        draws = []
    bounds = _bounds(want, draws, dtype)
    # Where rounding explains any result, each op is compared.
    vague = [i for i in exceeding if bounds[i] > _VAGUE * compare.largest_value(want[i])]
    exceeding = [i for i in exceeding if compare.largest_error(got[i], want[i]) > bounds[i]]
    if not exceeding and not vague:
        return ""
    i = (exceeding or vague)[0]
    result = Step(f"result {i}", "output", "", (), 0)
    error = compare.largest_error(got[i], want[i])
    text = f"the compiled model differs from {source.framework}: " + str(
        Difference(result, error, bounds[i], got[i], want[i])
    )
    own_error = compare.largest_error(own[i], want[i]) if own[i] is not None else 0.0
    if own_error > bounds[i]:
        raise VerificationError(f"{text}\nAlready the rewritten program differs. {_REPORT}")
    unknown = ""
    for each in dict.fromkeys(("float32", precision)):
        try:
            first = _first_difference(source, compare.coarsest(each, source.dtype), each)
        except Exception as error:  # of TVM, which may be unable to compile all these results
            unknown = f"the first op that differs is not known: {str(error).strip()[:200]}"
            continue
        if first is not None:
            raise VerificationError(f"{text}\n{_advice(source, first, each)}")
    if not exceeding:
        return ""
    note = f"{text}; {unknown or 'each op is right for its operands'}"
    if precision != "float32" or source.dtype != "float32":
        return note
    if source.is_discrete:
        bounds = _bounds_with_ties(source, want, dtype)
    for each in itertools.chain([want], source.other_results()):
        if all(compare.largest_error(got[i], each[i]) <= bounds[i] for i in exceeding):
            return note
    unknown = unknown or (
        "Each op is right if its result is a result of the model: a rewrite or fusion is wrong."
    )
    raise VerificationError(f"{text}\n{unknown} {_REPORT}")


def _bounds_with_ties(source: Source, want, dtype: str) -> list[float]:
    """Return the errors of results where the source may round, compare or sort either way.

    Random rounding that is a few times as large then changes the source's results as much.
    """
    try:
        epsilon = compare.MARGIN * compare.EPSILON[dtype]
        draws = [source.rounded(epsilon, _DRAWS + i) for i in range(_DRAWS_OF_TIES)]
    except CannotRun:
        return [np.inf] * len(want)
    return _bounds(want, draws, dtype)


_REPORT = (
    "Please report it with the model. Until then, verify=False accepts the results, and ops in "
    "`exclude` stay on TVM."
)


def _bounds(want, draws, dtype: str) -> list[float]:
    """Return the error that rounding explains, by result."""
    return [
        (
            max(
                compare.free_bound(each, dtype),
                *(compare.MARGIN * compare.largest_error(draw[i], each) for draw in draws),
                0.0,
            )
            if each is not None
            else np.inf
        )
        for i, each in enumerate(want)
    ]


def _first_difference(source: Source, dtype: str, precision: str) -> Difference | None:
    """Return the first op whose result is wrong for the operands that were computed."""
    for steps, names in batches(source.steps()):
        values = dict(zip(names, source.compiled(names, precision)))
        for step in steps:
            one = difference(source, step, values, dtype)
            if one.error > one.bound:
                return one
    return None


def difference(source: Source, step: Step, values: dict, dtype: str) -> Difference:
    """Compare an op with the source's, for the operands that were computed.

    Parameters
    ----------
    source : Source
        The model in its framework.
    step : Step
        The op.
    values : dict[str, numpy.ndarray]
        Its result and its operands, as the compiled model computed them, by name.
    dtype : str
        The floating-point type that it was computed in.
    """
    got, want = values[step.name], source.evaluate(step, values)
    error, bound = compare.largest_error(got, want), compare.free_bound(want, dtype)
    if error <= bound:
        return Difference(step, error, bound, got, want)
    draws = [[source.evaluate(step, values, compare.EPSILON[dtype], i)] for i in range(_DRAWS)]
    bound = _bounds([want], draws, dtype)[0]
    others = (compare.largest_error(got, each) for each in source.opinions(step, values))
    return Difference(step, min([error, *others]), bound, got, want)


def batches(steps: Sequence[Step]) -> Iterator[tuple[list[Step], list[str]]]:
    """Yield steps whose results fit in memory, and the names of these and their operands."""
    sizes, total = {step.name: step.size for step in steps}, 0
    batch: list[Step] = []
    for step in steps:
        size = step.size + sum(sizes.get(name, 0) for name in step.operands)
        if batch and total + size > MAX_BYTES:
            yield batch, _names(batch)
            batch, total = [], 0
        batch.append(step)
        total += size
    if batch:
        yield batch, _names(batch)


def _names(steps: Sequence[Step]) -> list[str]:
    return list(dict.fromkeys(name for step in steps for name in (*step.operands, step.name)))


def _advice(source: Source, first: Difference, precision: str) -> str:
    """Say which op differs, and what to do."""
    step = first.step
    lines = [f"The first op that differs is {first}", *(f"  {x}" for x in step.where.splitlines())]
    try:
        names = [*step.operands, step.name]
        values = dict(zip(names, source.compiled(names, None)))
        one = difference(source, step, values, source.dtype)
        is_own = one.error <= one.bound
    except Exception:  # TVM may be unable to compile it, whatever the reason
        is_own = False
    if is_own:
        where = "in float32" if precision == "float32" else f"with precision={precision!r}"
        lines.append(f"TVM without oneDNN computes it correctly; oneDNN does not, {where}.")
    else:
        lines.append("TVM without oneDNN differs, too: the op is imported wrongly.")
    return "\n".join([*lines, _REPORT])
