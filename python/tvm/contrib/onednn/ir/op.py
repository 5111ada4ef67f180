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
"""What a graph asks of an op: its attributes, and the types of its results.

The graph itself is op-agnostic. The table of the ops registers its rows here when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class Op(Protocol):
    """The row of an op, as far as a graph reads it; see `OpSchema` in `ops/schema.py`."""

    @property
    def heavy(self) -> bool:
        """Whether the op is worth a partition of its own."""

    @property
    def moves(self) -> str | None:
        """How it moves elements, if it does nothing else."""

    def attributes(self, given: object) -> object:
        """Return the attributes of a call as the row declares them."""

    @property
    def infer(self) -> Callable[[Sequence[Any], Any], Any]:
        """What a call with some operands and declared attributes computes."""


_OPS: dict[str, Op] = {}


def register(ops: Mapping[str, Op]) -> None:
    """Register the rows of ops by name."""
    _OPS.update(ops)


def row_of(name: str | None) -> Op | None:
    """Return the row of an op, None if it has none."""
    if not _OPS:
        raise RuntimeError("no op is registered: import tvm.contrib.onednn.ops.table")
    return None if name is None else _OPS.get(name)


def has_row(name: str | None) -> bool:
    """Whether an op has a row."""
    return row_of(name) is not None


def attributes_of(name: str | None, given: object) -> object:
    """Return the attributes of a call as its op declares them.

    Parameters
    ----------
    name : str | None
        The op. Those of one without a row are returned as they are given.
    given : object
        By the table's names. What is not declared, such as an attribute of a later version of TVM,
        is kept.

    Raises
    ------
    TypeError
        An attribute without a default is not given, or a value is not of the attribute's type.
    """
    row = row_of(name)
    return given if row is None else row.attributes(given)


def infer(name: str, args: Sequence[Any], attrs: object) -> Any:
    """Return what an op computes.

    What a rule would refuse may raise any exception: rewrites ask for what they make, and the rules
    judge the result.

    Parameters
    ----------
    name : str
        The op in the table.
    args : Sequence[Value]
        The operands, in the table's order.
    attrs : object
        The attributes; those that have a default may be missing.

    Returns
    -------
    type_ : Tensor | tuple[Tensor, ...]
        A tuple for an op that returns one. A dimension is None where nothing is known of it.

    Raises
    ------
    KeyError
        The op is none of the table.
    """
    row = row_of(name)
    if row is None:
        raise KeyError(name)
    return row.infer(args, row.attributes(attrs))
