# SPDX-License-Identifier: Apache-2.0
"""A language model that generates text, beside other runtimes: each in a process of its own.

In a precision all run the same ONNX file, with open lengths; llama.cpp and openvino-genai run a
GGUF file whose weights have as many bits. Keys and values are inputs and results of each run, but
those of these two. No length of a new token is repeated while the speed of new tokens is measured,
nor is that of a first token: a runtime that prepares for each length pays for that. What is
measured after a past, and the prompts of 128 and 512 tokens, is repeated, and the first such prompt
is not counted.
"""

import contextlib
import dataclasses
import itertools
import statistics
import tempfile
from pathlib import Path

from scripts import options, table
from scripts.bench import measure, rows
from scripts.bench.worker import Worker
from scripts.console import Console
from scripts.errors import SetupError
from scripts.layout import Layout, PluginLayout

OURS, REFERENCE = "relax", "onnxruntime"
# By runtime: what people call it.
RUNTIMES = {
    OURS: "Relax",
    REFERENCE: "onnxruntime",
    "openvino": "OpenVINO",
    "openvino-genai": "openvino-genai",
    "llama.cpp": "llama.cpp",
}
PROMPTS = (128, 512)
PASTS = (64, 512, 2048)
# New tokens after each of these pasts.
AFTER_PAST = 16
# The prompt of the first run.
WARM_UP = 8
# The first prompt whose length is new in each round, of new tokens and of first tokens.
START, FIRST = 64, 33
MOST_ROUNDS = 3
# Rounds of what takes seconds.
MOST_LONG_ROUNDS = 2
FORMAT = "dnnl-bench-text-2"
_HEADER = ["", "runtime", "tokens\na second", "ms", "10%..90%", "time, ours /\ntheirs"]
_PROCESSES = [
    "runtime",
    "load and\nfirst run s",
    "memory\nMB",
    "with long\nprompts MB",
    "tokens equal to\nfloat32's",
    "largest error\nof logits",
    "tokens equal to\nonnxruntime's",
]


@dataclasses.dataclass
class Metric:
    """One thing that is measured of each runtime.

    `tokens`: the tokens that one sample is the time of. `rounds`: the samples in seconds, by
    runtime and round.
    """

    title: str
    tokens: int
    rounds: dict


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured, and how often.

    Attributes
    ----------
    pasts : tuple of int
        The lengths of the pasts after which tokens are measured.
    tokens : int
        New tokens of each run that measures their speed.
    rounds, long_rounds : int
        Turns of each runtime, and those of runs that take seconds.
    """

    pasts: tuple
    tokens: int
    rounds: int
    long_rounds: int

    @classmethod
    def of(cls, args):
        """Return the plan that options of the command line ask for."""
        rounds, long_rounds = min(args.repeat, MOST_ROUNDS), min(args.repeat, MOST_LONG_ROUNDS)
        return cls(tuple(args.pasts or PASTS), args.tokens, rounds, long_rounds)

    @property
    def prompts(self):
        """The lengths of the prompts that are repeated: none is longer than the longest past."""
        return [length for length in PROMPTS if length <= max(*self.pasts, PROMPTS[0])]

    @property
    def positions(self):
        """The most positions of a run."""
        last = [past + self.long_rounds * (AFTER_PAST + 1) for past in self.pasts]
        return max(*self.prompts, *last, START + self.long_rounds * (self.tokens + 1))


def _start(name):
    """Start the process of a runtime."""
    layout = PluginLayout() if name == OURS else Layout()
    return Worker(layout, "scripts.bench.text_worker")


def _turns(workers, title, tokens, run, rounds, note):
    """Measure something of each runtime in turns; return the Metric.

    `run` accepts a runtime's name, its worker and the number of the round, and returns samples.
    """

    def sampler(name):
        numbers = itertools.count()
        return lambda _: run(name, workers[name], next(numbers))

    samplers = {name: sampler(name) for name in workers}
    return Metric(title, tokens, measure.take_turns(samplers, rounds, note=note))


def _new_tokens(workers, ids, follow, plan, note):
    """Measure new tokens; return the metric, and the tokens of each runtime's first round."""
    tokens_of = {}

    def run(name, worker, number):
        # A round of each runtime has the lengths that others have in it, and nobody had before.
        begin = START + number * (plan.tokens + 1)
        given = None if number else follow
        tokens, (_, *seconds) = worker.ask("measure", ids[:begin], plan.tokens + 1, given)
        if not number:
            tokens_of[name] = tokens
        return seconds

    title = f"each of {plan.tokens} new tokens"
    return _turns(workers, title, 1, run, plan.long_rounds, note), tokens_of


def _others(workers, ids, plan, console):
    """Measure first tokens, new tokens after pasts, and prompts; return the metrics."""

    def turns(step, title, lengths, count=1, tokens=1):
        def run(_, worker, number):
            return worker.ask("measure", ids[: lengths[number]], count)[1][count > 1 :]

        with console.step(step):
            for worker in workers.values() if tokens > 1 else ():
                run(None, worker, 0)
            return _turns(workers, title, tokens, run, len(lengths), console.note)

    firsts = range(FIRST, FIRST + 2 * plan.rounds, 2)
    metrics = [turns("first tokens", f"first token, new prompts of up to {firsts[-1]}", firsts)]
    size = AFTER_PAST + 1
    for past in plan.pasts:
        lengths = range(past, past + size * plan.long_rounds, size)
        metrics.append(turns(f"tokens after {past}", f"new token, past of {past}", lengths, size))
    for length in plan.prompts:
        lengths, title = [length] * plan.rounds, f"prompt of {length}"
        metrics.append(turns(f"prompts of {length}", title, lengths, tokens=length))
    return metrics


def equal_tokens(tokens, expected):
    """Return how many tokens are equal to those of another runtime, empty without such."""
    if tokens is None or expected is None:
        return ""
    return f"{sum(map(int.__eq__, tokens, expected))}/{len(tokens)}"


def rows_of(metrics, precision):
    """Return a row of figures for each metric and runtime."""
    result = []
    for metric in metrics:
        for name, rounds in metric.rounds.items():
            timing = measure.Timing.of(sum(rounds, []))
            row = {"precision": precision, "metric": metric.title, "runtime": name}
            row.update(dataclasses.asdict(timing))
            # Of all samples, as a slow token is waited for, too.
            mean = statistics.mean(sum(rounds, []))
            row["tokens_per_second"] = metric.tokens / mean
            if name != OURS and OURS in metric.rounds:
                row["ratio"] = measure.ratio(metric.rounds[OURS], rounds)
            result.append(row)
    return result


def render(figures, facts):
    """Return the two tables of a precision: of times, and of each process."""
    cells, last = [], None
    for row in figures:
        times = [rows.digits(row[key]) for key in ("tokens_per_second", "median")]
        times.append(f"{rows.digits(row['low'])}..{rows.digits(row['high'])}")
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else ""
        title = "" if row["metric"] == last else row["metric"]
        cells.append([title, RUNTIMES[row["runtime"]], *times, ratio])
        last = row["metric"]
    processes = [
        [
            RUNTIMES[name],
            f"{row['load_s']:.1f}",
            rows.digits(row["memory_mb"]),
            rows.digits(row["peak_mb"]),
            row["equal_to_float32"],
            f"{row['largest_error']:.2g}" if "largest_error" in row else "",
            row["equal_to_onnxruntime"],
        ]
        for name, row in facts.items()
    ]
    return f"{table.render(_HEADER, cells, left=2)}\n\n{table.render(_PROCESSES, processes)}"


def _load(names, paths, config, precision, plan, threads, stack, console):
    """Start the runtimes; return their workers, facts of each, and why others are not measured."""
    workers, facts, reasons = {}, {}, {}
    for name in names:
        with console.step(f"{precision}: load {RUNTIMES[name]}"):
            worker = _start(name)
            with contextlib.ExitStack() as own:
                own.enter_context(worker)
                try:
                    words = (paths, threads, config, precision, plan.positions)
                    seconds = worker.ask("prepare", name, *words)
                    # Some pack the weights in their first run.
                    seconds += worker.ask("measure", list(range(1, WARM_UP + 1)), 1)[1][0]
                except SetupError as error:
                    if name == OURS:
                        raise
                    # The last line of an exception, after its name.
                    said = (error.details or error.problem).strip().splitlines()[-1]
                    reasons[name] = said.rpartition("Error: ")[2].removeprefix("error: ")
                    continue
                stack.enter_context(own.pop_all())
        workers[name], facts[name] = worker, {"load_s": seconds}
    return workers, facts, reasons


class _Reference:
    """The tokens and logits of onnxruntime in float32; `path` is where the logits go."""

    def __init__(self, path):
        self.path, self.tokens = str(path), None

    def run(self, paths, config, ids, plan, threads):
        """Generate the tokens, the first time."""
        if self.tokens is None:
            with _start(REFERENCE) as worker:
                given = {"onnx": paths["reference"]}
                words = (given, threads, config, "float32", plan.positions)
                worker.ask("prepare", REFERENCE, *words)
                words = (ids[:START], plan.tokens + 1, self.path)
                self.tokens = worker.ask("save_reference", *words)


def _measure(precision, names, reference, plan, args, console):
    """Measure a precision; return the rows, facts of each process, reasons, and versions."""
    count = plan.positions
    with _start(OURS) as worker:
        paths, config, ids, versions = worker.ask("files", count, precision, names)
    if len(ids) < count:
        raise SetupError(f"--tokens: the text has {len(ids)} tokens", "generate fewer.")
    with console.step("reference in float32", after=1.0):
        reference.run(paths, config, ids, plan, args.threads)
    with contextlib.ExitStack() as stack:
        loaded = _load(names, paths, config, precision, plan, args.threads, stack, console)
        workers, facts, reasons = loaded
        with console.step("new tokens"):
            metric, tokens = _new_tokens(workers, ids, reference.tokens, plan, console.note)
        for name, worker in workers.items():
            row = facts[name]
            row["memory_mb"] = worker.ask("peak_megabytes")
            row["equal_to_float32"] = equal_tokens(tokens[name], reference.tokens)
            others = tokens.get(REFERENCE) if name != REFERENCE else None
            row["equal_to_onnxruntime"] = equal_tokens(tokens[name], others)
            if tokens[name] is not None:
                row["largest_error"], row["range"] = worker.ask("largest_error", reference.path)
        metrics = [metric, *_others(workers, ids, plan, console)]
        for name, worker in workers.items():
            facts[name]["peak_mb"] = worker.ask("peak_megabytes")
    return rows_of(metrics, precision), facts, reasons, versions


def main(args):
    """Run the benchmark; return the exit code."""
    console, note, plan = Console(), measure.busy_note(), Plan.of(args)
    chosen = options.choose("backends", args.backends, {name: name for name in RUNTIMES})
    names, host = list(dict.fromkeys([OURS, *chosen])), measure.host()
    figures, processes, why = [], {}, {}
    with tempfile.TemporaryDirectory() as folder:
        reference = _Reference(Path(folder) / "logits.npy")
        for precision in args.precision or options.TEXT_PRECISIONS:
            measured = _measure(precision, names, reference, plan, args, console)
            own, facts, reasons, versions = measured
            if not figures:
                print(
                    f"\nSmolLM2-135M-Instruct, oneDNN {versions['onednn']}, TVM "
                    f"{versions['tvm']}, {host['cpu']}, {args.threads} threads\n{note}"
                )
            print(f"\n{precision}\n\n{render(own, facts)}", flush=True)
            for name, reason in reasons.items():
                print(f"{RUNTIMES[name]}, not measured: {reason}")
            figures += own
            processes[precision], why[precision] = facts, reasons
    facts = {"versions": versions, "plan": dataclasses.asdict(plan), "note": note}
    more = {"rows": figures, "processes": processes, "not_measured": why}
    measure.save(args, FORMAT, **facts, **more)
    return 0
