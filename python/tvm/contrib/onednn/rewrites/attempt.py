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
"""Runs a rewrite so that an op at which it raises costs that op alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional

from ..ir.graph import Graph
from ..ir.node import CALL, Node
from ..ops.rules import Rules

# It edits a graph, and may return what it has folded into other ops.
Rewrite = Callable[[Graph, Rules], Optional[list[Node]]]

# A rewrite that raises at more ops is not tried again.
_MAX_FAILURES = 4
_HIDDEN = "hidden."


class Attempt(NamedTuple):
    """The outcome of a rewrite.

    Parameters
    ----------
    folded : list[Node]
        The ops that it folded into others.
    failures : list[tuple[str | None, Exception]]
        The op at which it raised and what it raised; None for the op if the rewrite was taken back
        as a whole.
    """

    folded: list[Node]
    failures: list[tuple[str | None, Exception]]


def attempt(rewrite: Rewrite, graph: Graph, rules: Rules) -> Attempt:
    """Run a rewrite; if it raises at an op, hide that op and run it again.

    The ops are found by bisection, in a number of runs that is logarithmic in the size of the
    graph. With the option `strict`, a rewrite that raises is taken back as a whole.
    """
    hidden: list[Node] = []
    failures: list[tuple[str | None, Exception]] = []
    while True:
        try:
            return Attempt(_run(rewrite, graph, rules, hidden), failures)
        # A model must not fail to compile because a part of it cannot be rewritten.
        except Exception as error:  # pylint: disable=broad-except
            is_last = rules.options.strict or len(hidden) == _MAX_FAILURES
            op = None if is_last else _failing_op(rewrite, graph, rules, hidden)
            if op is None:
                return Attempt([], [(None, error)])
            failures.append((op.name, error))
            hidden.append(op)


def _run(rewrite: Rewrite, graph: Graph, rules: Rules, hidden: Sequence[Node]) -> list[Node]:
    """Run a rewrite while some ops are hidden; roll back if it raises."""
    restore = graph.checkpoint()
    known = [(node, node.name, node.unsupported) for node in hidden]
    try:
        for node in hidden:
            node.name, node.unsupported = f"{_HIDDEN}{node.name}", "hidden"
            node.version += 1
        folded = rewrite(graph, rules) or []
        graph.sort()
        return folded
    except Exception:
        restore()
        raise
    finally:
        for node, name, unsupported in known:
            node.name, node.unsupported = name, unsupported
            node.version += 1


def _failing_op(
    rewrite: Rewrite, graph: Graph, rules: Rules, hidden: Sequence[Node]
) -> Node | None:
    """Return the last op at which a rewrite raises; None if it raises without any."""
    ops = [node for node in graph.nodes if node.kind == CALL and node not in hidden]

    def passes(count: int) -> bool:
        restore = graph.checkpoint()
        try:
            _run(rewrite, graph, rules, [*hidden, *ops[:count]])
        except Exception:  # pylint: disable=broad-except
            return False
        restore()
        return True

    if not passes(len(ops)):
        return None
    # The rewrite raises with `low` ops hidden, and passes with `high`.
    low, high = 0, len(ops)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return ops[high - 1]
