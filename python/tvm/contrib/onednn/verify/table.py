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
"""The error of each op of a compiled model, beside its source."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Sequence

from . import compare
from .check import CannotRun, Source, batches, difference
from .kernels import Kernel

MOST_ROWS = 20  # of the table


@dataclasses.dataclass(frozen=True)
class OpError:
    """The error of one op.

    Parameters
    ----------
    name, op, where : str
        As the source has it: the name of its result, what it computes, where it is written.
    shape : tuple[int, ...]
        That of the result.
    dtype : str
        Its type.
    error : float
        The largest error for the operands that the compiled model computed, relative to the
        largest element of the result; infinite if shape, dtype or NaN differ.
    bound : float
        The error that rounding explains, relative to the same.
    accumulated : float
        The error of the compiled model's result, with the errors of all ops before.
    kernel, layouts : str
        oneDNN's implementation, and the layouts of its source and result. They are empty if the op
        runs on TVM, or computes nothing.
    """

    name: str
    op: str
    where: str
    shape: tuple[int, ...]
    dtype: str
    error: float
    bound: float
    accumulated: float
    kernel: str = ""
    layouts: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether rounding does not explain the error."""
        return self.error > self.bound


@dataclasses.dataclass(frozen=True)
class Verification:
    """The errors of the ops of a model, in its order.

    Parameters
    ----------
    framework : str
        What the model is compared with.
    precision : str
        The type that it computes float32 in.
    ops : list[OpError]
        Those whose results can be compared.
    undefined : list[str]
        The ops that the reference does not define, and that are not compared.
    """

    framework: str
    precision: str
    ops: list[OpError]
    undefined: list[str] = dataclasses.field(default_factory=list)

    @property
    def wrong(self) -> list[OpError]:
        """The ops with an error that rounding does not explain."""
        return [each for each in self.ops if each.is_wrong]

    def worst(self, count: int = MOST_ROWS) -> list[OpError]:
        """Return the ops with the largest errors; those that are wrong first."""
        order = sorted(self.ops, key=lambda each: (each.is_wrong, each.error), reverse=True)
        return order[:count]

    def page_rows(self) -> list[tuple[str, str, str]]:
        """Return the worst ops for the page of the report: numbers, name, and what it is."""
        return [
            (
                f"{each.error:.1e}",
                each.op,
                f"{each.name}: {'x'.join(map(str, each.shape)) or 'scalar'} {each.dtype}, bound "
                f"{each.bound:.1e}, accumulated {each.accumulated:.1e}"
                + (f", {each.kernel}, {each.layouts}" if each.kernel else "")
                + (", wrong" if each.is_wrong else ""),
            )
            for each in self.worst()
        ] + [("not compared", op, self._undefined(count)) for op, count in self._missing()]

    def _missing(self) -> list[tuple[str, int]]:
        return Counter(self.undefined).most_common()

    def _undefined(self, count: int) -> str:
        return f"{count} without a definition in {self.framework}"

    def to_json(self) -> str:
        """Return the numbers of all ops as JSON text."""
        fields = {**dataclasses.asdict(self), "ops": [dataclasses.asdict(op) for op in self.ops]}
        return json.dumps(fields, indent=1)

    def __str__(self) -> str:
        title = f"{len(self.ops)} ops in {self.precision}, compared with {self.framework}"
        missing = [f"{op}: {self._undefined(count)}" for op, count in self._missing()]
        if not self.ops:
            return "\n".join([title, *missing])
        names = ("result", "op", "shape", "error", "bound", "accumulated", "", "kernel", "layouts")
        rows: list[tuple[str, ...]] = [names]
        for each in self.worst():
            shape = "x".join(map(str, each.shape)) or "scalar"
            shape += "" if each.dtype == "float32" else f" {each.dtype}"
            numbers = (f"{x:.1e}" for x in (each.error, each.bound, each.accumulated))
            verdict = "wrong" if each.is_wrong else ""
            rows.append((each.name, each.op, shape, *numbers, verdict, each.kernel, each.layouts))
        width = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(map(str.ljust, row, width)).rstrip() for row in rows]
        rule = "-" * max(map(len, lines))
        last = [f"{len(self.ops) - len(rows) + 1} more"] if len(self.ops) >= len(rows) else []
        last.append(f"{len(self.wrong)} ops have an error that rounding does not explain")
        last += missing
        return "\n".join([title, rule, lines[0], rule, *lines[1:], rule, *last])


def errors(
    source: Source,
    precision: str,
    tell: Callable = lambda *args: None,
    kernels: Sequence[Kernel] = (),
) -> Verification:
    """Compare each op of a compiled model with its source.

    Parameters
    ----------
    source : Source
        The model in its framework.
    precision : str
        The type that it computes float32 in.
    tell : Callable
        Is called with what is done now, and how far it is.
    kernels : Sequence[Kernel]
        Those of the results of the latest call of `source.compiled`, if they are known.

    Raises
    ------
    CannotRun
        The source cannot be run.
    """
    source.results()  # raises if it cannot run
    dtype, steps = compare.coarsest(precision, source.dtype), source.steps()
    ops: list[OpError] = []
    undefined = [step.op for step in source.undefined]
    for batch, names in batches(steps):
        values = dict(zip(names, source.compiled(names, precision)))
        ran = dict(zip(names, kernels)) if len(kernels) == len(names) else {}
        reference = dict(zip(names, source.values(names)))
        for step in batch:
            tell("compare", len(ops), len(steps))
            try:
                one, want = difference(source, step, values, dtype), reference[step.name]
            except CannotRun:  # it runs in the model, but not alone
                undefined.append(step.op)
                continue
            largest = compare.largest_value(one.want) or 1.0
            accumulated = compare.largest_error(one.got, want) / largest
            relative = (one.error / largest, one.bound / largest, accumulated)
            type_ = one.want.shape, str(one.want.dtype)
            kernel = ran.get(step.name, Kernel())
            ops.append(OpError(step.name, step.op, step.where, *type_, *relative, *kernel))
    return Verification(source.framework, precision, ops, undefined)
