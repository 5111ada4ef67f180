# SPDX-License-Identifier: Apache-2.0
"""Drawing graph after graph, running each on oneDNN and on TVM alone, and counting."""

import collections
import dataclasses
import time

from dnnl_tests.isolated import Crashed, Raised, isolated_each

from .draw import random_graph
from .graph import Graph
from .judging import (
    APART,
    FAILURES,
    ILL,
    NO_REFERENCE,
    RAISED,
    Verdict,
    judge,
    module_of,
    options,
)
from .quantized import draw, judge_quantized
from .rows import ROWS
from .shrinking import shrink

CRASHED = "crashed"
TIMEOUT = 300.0
# So many graphs are handed out at a time.
ROUND = 200


@dataclasses.dataclass
class Failure:
    """A graph that fails.

    Attributes
    ----------
    seed : int
        Draws the graph.
    verdict : Verdict
        Of the graph as it was drawn.
    text : str
        The graph made smaller, as Relay text.
    smallest : Verdict
        Of the smaller graph.
    """

    seed: int
    verdict: Verdict
    text: str
    smallest: Verdict


@dataclasses.dataclass
class Statistics:
    """What a run has seen.

    Attributes
    ----------
    verdicts : Counter
        The graphs, by kind of verdict.
    calls, offloaded : Counter
        The calls of each op, and those of them that oneDNN ran.
    composites : Counter
        Those that oneDNN ran.
    partitions : int
        Their number.
    failures : list of Failure
        What is to be looked into.
    notes : Counter
        Why TVM cannot run a graph.
    explained : dict of int to Verdict
        Differences that are no fault of oneDNN, by seed.
    elements, other_steps : int
        The elements in 8 bits that were computed, and those that are a step beside the nearest.
    """

    verdicts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    calls: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    offloaded: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    composites: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    partitions: int = 0
    failures: list = dataclasses.field(default_factory=list)
    notes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    explained: dict = dataclasses.field(default_factory=dict)
    elements: int = 0
    other_steps: int = 0

    @property
    def graphs(self):
        """The number of graphs."""
        return sum(self.verdicts.values())

    def add(self, seed, verdict):
        """Count the graph of a seed."""
        self.verdicts[verdict.kind] += 1
        if verdict.kind in (APART, ILL):
            self.explained[seed] = verdict
        if verdict.kind == NO_REFERENCE:
            self.notes[verdict.text.splitlines()[-1] if verdict.text else ""] += 1
        report = verdict.report
        for name, numbers in report.get("ops", {}).items():
            self.calls[name] += numbers["ops"]
            self.offloaded[name] += numbers["offloaded"]
        self.composites.update(report.get("composites", {}))
        self.partitions += report.get("partitions", 0)
        self.elements += report.get("elements", 0)
        self.other_steps += report.get("other_steps", 0)

    def __str__(self):
        calls, offloaded = sum(self.calls.values()), sum(self.offloaded.values())
        lines = [
            f"{self.graphs} graphs: "
            + ", ".join(f"{count} {kind}" for kind, count in self.verdicts.most_common()),
            f"{offloaded} of {calls} calls offloaded in {self.partitions} partitions, "
            f"{sum(map(bool, self.offloaded.values()))} ops and {len(self.composites)} composites",
        ]
        if self.elements:
            share = self.other_steps / self.elements
            lines.append(
                f"{share:.3%} of {self.elements} elements in 8 bits are not the nearest step"
            )
        return "\n".join(lines)


def _verdict(outcome):
    """Return the verdict that stands for the result of a process."""
    if isinstance(outcome, Crashed):
        return Verdict(CRASHED, str(outcome))
    return Verdict(RAISED, str(outcome)) if isinstance(outcome, Raised) else outcome


def _judge_seed(seed, max_ops):
    return judge(_draw_seed(seed, max_ops), **options(seed))


def _draw_seed(seed, max_ops):
    return random_graph(seed, ROWS, max_ops)


def _text(graph, real):
    return module_of(graph, real).astext()


def attempt(graph, seed, timeout=TIMEOUT):
    """Judge a graph, in a process of its own, as its seed demands."""
    (outcome,) = isolated_each(judge, [(graph, *options(seed).values())], timeout)
    return _verdict(outcome)


def is_failure(verdict):
    """Whether a verdict is one to look into."""
    return verdict.kind in (*FAILURES, CRASHED)


def look_into(seed, max_ops, verdict, seconds):
    """Make a graph that fails smaller; whatever TVM does with it is done in other processes."""
    (graph,) = isolated_each(_draw_seed, [(seed, max_ops)], TIMEOUT)
    if not isinstance(graph, Graph):
        return Failure(seed, verdict, f"it cannot be drawn again: {graph}", verdict)
    smallest = shrink(graph, lambda other: attempt(other, seed).kind == verdict.kind, seconds)
    (text,) = isolated_each(_text, [(smallest, options(seed)["real"])], TIMEOUT)
    if not isinstance(text, str):
        text = "\n".join([f"no module: {text}", *map(str, smallest.steps.items())])
    return Failure(seed, verdict, text, attempt(smallest, seed))


def _judge_quantized_seed(seed, max_ops):
    return judge_quantized(seed)


def look_into_quantized(seed, max_ops, verdict, seconds):
    """Show a quantized graph that fails: it is small as it is."""
    return Failure(seed, verdict, str(draw(seed).mod), verdict)


# How graphs are drawn and judged, and how one that fails is looked into.
KINDS = {
    "real": (_judge_seed, look_into),
    "quantized": (_judge_quantized_seed, look_into_quantized),
}


def fuzz(
    seed,
    count=None,
    seconds=None,
    max_ops=20,
    shrink_seconds=120.0,
    progress=None,
    kind="real",
):
    """Draw and run graphs.

    Parameters
    ----------
    seed : int
        Of the first graph; the next ones count up.
    count : int, optional
        So many graphs.
    seconds : float, optional
        No new graph after so many seconds.
    max_ops : int
        The most ops in a graph.
    shrink_seconds : float
        How long a failure is made smaller.
    progress : callable, optional
        Called with the seed and the Statistics after each graph.
    kind : str
        "real", or "quantized" for graphs of 8-bit tensors, to which `max_ops` does not apply.

    Returns
    -------
    Statistics
        With the failures.
    """
    statistics, start = Statistics(), time.monotonic()
    judge_seed, look = KINDS[kind]
    end = None if count is None else seed + count
    while end is None or seed < end:
        seeds = range(seed, seed + ROUND if end is None else min(seed + ROUND, end))
        calls = [(number, max_ops) for number in seeds]
        for seed, outcome in zip(seeds, isolated_each(judge_seed, calls, TIMEOUT)):
            verdict = _verdict(outcome)
            statistics.add(seed, verdict)
            if is_failure(verdict):
                statistics.failures.append(look(seed, max_ops, verdict, shrink_seconds))
            if progress:
                progress(seed, statistics)
            if seconds is not None and time.monotonic() - start > seconds:
                return statistics
        seed += 1
    return statistics
