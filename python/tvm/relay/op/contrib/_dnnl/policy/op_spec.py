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
"""OpSpec, the row of the policy table, and what is derived from the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import tvm.ir
from tvm import relay
from tvm.relay.dataflow_pattern import DFPattern

from ..options import Options
from ..partition.chain import Chain, bias_reason, residual_reason
from .refused import REFUSED
from .tensors import COMPILER, op_name

EXCLUDED = "excluded by option"

# The cost weight where oneDNN has vector code and TVM calls a function of the C library.
FUNCTION = 64


@dataclass(frozen=True)
class OpSpec:
    """All that the partitioner knows about one op or one composite.

    Parameters
    ----------
    name : str
        The Relay op, or the name of a composite or a virtual op, which starts with "dnnl.".
    chain : Chain | None
        What the composite is made of; None for an op, virtual or not. Its root must be an op
        with a row.
    reason : Callable | None
        The rule of an op: returns None for a call that oneDNN can run, else why it cannot.
        A composite has the rule of its root.
    channel_axis : Callable | None
        For an op that takes a bias: the channel axis of a call's result.
    heavy : bool
        Whether the op computes enough to be worth a partition of its own.
    cost_weight : int
        For an op that is not heavy: what an element of its result counts when a partition is
        weighed against TVM.
    moves : str | None
        For an op that computes nothing: "view" if it names elements in another way, "copy" if it
        may have to move them. A partition may reach through it, but not be made of it.
    post : str | None
        "eltwise" or "binary" for an op that can be fused to the result of another.
    fuses : tuple[str, ...]
        What can be fused to the result of this op: kinds as in `post`, or ops by name.
    """

    name: str
    chain: Chain | None = None
    reason: Callable[[relay.Call], str | None] | None = None
    channel_axis: Callable[[relay.Call], int] | None = None
    heavy: bool = False
    cost_weight: int = 1
    moves: str | None = None
    post: str | None = None
    fuses: tuple[str, ...] = ()


def root(name: str, reason, channel_axis=None, fuses=("eltwise", "binary")) -> OpSpec:
    """Make the row of an op that computes much, to which others are fused."""
    return OpSpec(name, reason=reason, channel_axis=channel_axis, heavy=True, fuses=fuses)


def light(name: str, reason, channel_axis=None, fuses=("eltwise", "binary")) -> OpSpec:
    """Make the row of an op that alone gains nothing, to which others are fused."""
    return OpSpec(name, reason=reason, channel_axis=channel_axis, cost_weight=0, fuses=fuses)


def function(name: str, reason) -> OpSpec:
    """Make the row of an op that computes functions such as exp, and to which nothing is fused."""
    return OpSpec(name, reason=reason, cost_weight=FUNCTION)


def view(name: str, reason) -> OpSpec:
    """Make the row of an op that names or orders elements in another way."""
    return OpSpec(name, reason=reason, moves="view")


def copy(name: str, reason) -> OpSpec:
    """Make the row of an op that puts elements together in another way."""
    return OpSpec(name, reason=reason, moves="copy")


def eltwise(name: str, reason, cost_weight: int = 1) -> OpSpec:
    """Make the row of a function of one element."""
    return OpSpec(name, reason=reason, cost_weight=cost_weight, post="eltwise", fuses=("binary",))


def binary(name: str, reason) -> OpSpec:
    """Make the row of a function of two elements, the second of which may be broadcast."""
    return OpSpec(name, reason=reason, post="binary", fuses=("eltwise", "binary"))


class SpecTable:
    """The rows by name, the pattern table and the op attributes that come of them."""

    def __init__(self, rows: Iterable[OpSpec]):
        rows = tuple(rows)
        self.ops: dict[str, OpSpec] = {row.name: row for row in rows if row.chain is None}
        # Longer composites first, since what one has taken the next cannot.
        self.composites: list[OpSpec] = sorted(
            (row for row in rows if row.chain is not None),
            key=lambda row: -(row.chain.bias + row.chain.sum + len(row.chain.post)),
        )

    def names(self) -> list[str]:
        """Return the names of all rows."""
        return [*self.ops, *(row.name for row in self.composites)]

    def pattern_table(self) -> list[tuple[str, DFPattern, Callable[[relay.Call], bool]]]:
        """Return (name, pattern, check) of each composite, as MergeComposite takes them."""

        def check(spec):
            return lambda call: Rules(self).composite_refusal(spec, call) is None

        return [(row.name, row.chain.pattern(), check(row)) for row in self.composites]

    def register(self) -> None:
        """Tell AnnotateTarget which ops oneDNN runs. Can be called again.

        Views are left out. TVM's passes do not prune, so wherever nothing else surrounds a view it
        would become a partition that computes nothing.
        """
        attr = f"target.{COMPILER}"
        for name, spec in self.ops.items():
            if name.startswith(f"{COMPILER}.") or spec.moves == "view":
                continue
            # Registering twice is an error in TVM, and a reload of the module would do that.
            tvm.ir.Op.get(name).reset_attr(attr)
            tvm.ir.register_op_attr(name, attr, self._accepts)

    def _accepts(self, call: relay.Call) -> bool:
        return Rules(self).refusal(call) is None


class Rules:
    """What oneDNN runs, by the rows and by the options of one run.

    Parameters
    ----------
    table : SpecTable
        The rows.
    options : Options | None
        What the caller asked for; None for nothing.

    Attributes
    ----------
    ops : dict[str, OpSpec]
        The rows of ops by name.
    """

    def __init__(self, table: SpecTable, options: Options | None = None):
        self.ops, self.options = table.ops, options or Options()
        # What the rules of ops said: several passes ask about one call.
        self._reasons: dict[relay.Call, str | None] = {}

    def is_heavy(self, name: str | None) -> bool:
        """Whether the Relay op `name` is worth a partition of its own."""
        return name in self.ops and self.ops[name].heavy

    def cost_weight(self, name: str | None) -> int:
        """Return the cost weight of the Relay op `name`; without a row, it is part of a formula."""
        return self.ops[name].cost_weight if name in self.ops else FUNCTION

    def moves(self, name: str | None) -> str | None:
        """Say how the Relay op `name` moves elements, if it does nothing else."""
        return self.ops[name].moves if name in self.ops else None

    def excludes(self, *names: str) -> bool:
        """Whether one of these ops or composites is to stay on TVM."""
        return not self.options.exclude.isdisjoint(names)

    def reason(self, call: relay.Call) -> str | None:
        """Ask the rule of an op that has a row; once for each call in a run."""
        if call not in self._reasons:
            self._reasons[call] = self.ops[op_name(call)].reason(call)
        return self._reasons[call]

    def refusal(self, call: relay.Call) -> str | None:
        """Say why a call of a Relay op stays on TVM; None if oneDNN can run it."""
        name = op_name(call)
        if self.excludes(name):
            return EXCLUDED
        if name in self.ops:
            return self.reason(call)
        return REFUSED.get(name, "no rule for this op")

    def composite_refusal(self, spec: OpSpec, call: relay.Call) -> str | None:
        """Say why a call cannot end the composite `spec`; None if it can."""
        parsed = spec.chain.parse(call)
        if parsed is None:
            return f"not of the form of {spec.name}"
        reason = self.reason(parsed.root)
        if reason is None and parsed.bias is not None:
            reason = bias_reason(parsed, self.ops[spec.chain.root].channel_axis)
        if reason is None and parsed.residual is not None:
            reason = residual_reason(parsed)
        return reason
