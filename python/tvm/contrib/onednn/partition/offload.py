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
"""Offloads a function again without the ops that could not be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..failures import message_of, note_failure
from ..ir.graph import Graph
from ..ir.node import Node
from ..ops.rules import Rules
from ..rewrites.attempt import Rewrite
from ..rewrites.fold_scale import fold_scale
from ..rewrites.pipeline import Outcome, rewrite
from .elementwise_first import move_elementwise_first
from .fuse import move_dequantize_first
from .units import OffloadDecision, Units

# They prepare a graph for the fusion. A factor may follow a matmul only once it has moved.
_LAST = (move_dequantize_first, move_elementwise_first, fold_scale)

# Each attempt leaves all ops to TVM that the one before could not write.
_MAX_ATTEMPTS = 8


class UnwritableOps(Exception):
    """Ops that a writer cannot express in its IR.

    Parameters
    ----------
    errors : Mapping[Node, Exception]
        What was raised, by op.
    """

    def __init__(self, errors: Mapping[Node, Exception]):
        super().__init__(", ".join(str(node.name) for node in errors))
        self.errors = dict(errors)


class Offloaded(NamedTuple):
    """A function as it was offloaded.

    Parameters
    ----------
    graph : Graph
        The function, rewritten.
    outcome : Outcome
        What the rewrites did.
    units : Units
        What is fused.
    decision : OffloadDecision
        What is in partitions.
    written : Any
        What the writer returned.
    """

    graph: Graph
    outcome: Outcome
    units: Units
    decision: OffloadDecision
    written: Any


def offload(
    read: Callable[[], Graph],
    write: Callable[[Units, OffloadDecision], Any],
    rules: Rules,
    function: str,
    failures: dict[str, str],
    first: Sequence[Rewrite] = (),
) -> Offloaded:
    """Rewrite, partition and write a function.

    An op that cannot be written in a partition stays on TVM; one that stands for several is
    replaced with these. If it cannot be written there either, the rewrite that made it is skipped.
    Each has a warning and a line of the report.

    Parameters
    ----------
    read : Callable[[], Graph]
        Reads the function.
    write : Callable[[Units, OffloadDecision], Any]
        Writes it; raises UnwritableOps.
    rules : Rules
        The rules.
    function : str
        What messages call the function.
    failures : dict[str, str]
        By function: what failed.
    first : Sequence[Rewrite]
        Rewrites of this IR, which precede the others.

    Raises
    ------
    PartitionError
        With the option `strict`: an op could not be rewritten or written, or its rule raised.
    """
    graph: Graph | None = None
    outcome: Outcome | None = None
    skipped: set[str] = set()
    known = -1
    strict = rules.options.strict
    for attempts_left in reversed(range(_MAX_ATTEMPTS)):
        if graph is None or outcome is None or len(skipped) != known:
            known = len(skipped)
            graph = read()
            outcome = rewrite(graph, rules, function, failures, first, skipped, _LAST)
        units = Units(graph, rules)
        decision = OffloadDecision(units)
        for call, error in rules.failed:
            note_failure(failures, function, f"the rule of {call.name}", error, stacklevel=5)
        rules.failed.clear()
        try:
            return Offloaded(graph, outcome, units, decision, write(units, decision))
        except UnwritableOps as unwritable:
            for node, error in unwritable.errors.items():
                what = f"writing {graph.title(node)}"
                note_failure(failures, function, what, error, stacklevel=5, strict=strict)
                if not attempts_left:
                    raise error from None
                is_accepted = rules.refusal(node) is None
                if not node.is_live or is_accepted and graph.unfuse(node):
                    continue
                if is_accepted:
                    rules.refuse(node, f"{what} failed: {message_of(error)}")
                elif node.made_by is not None:
                    skipped.add(node.made_by)
                else:
                    raise error from None
    raise AssertionError("the last attempt returns or raises")
