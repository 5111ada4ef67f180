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
"""A language model that generates text, beside other runtimes: each in a process of its own.

All run the same float32 ONNX file, with open lengths; llama.cpp runs the quantized GGUF file that
its weights are of. Keys and values are inputs and results of each run. No length of a new token is
repeated in a run of the benchmark, nor is that of a first token: a runtime that prepares for each
length pays for that. The prompts of 128 and 512 tokens are repeated, and the first is not counted.
"""

import contextlib
import dataclasses
import json
import statistics

from scripts import options, table
from scripts.bench import measure, rows
from scripts.bench.worker import Worker
from scripts.console import Console
from scripts.errors import SetupError
from scripts.files import write_atomically
from scripts.layout import Layout, PluginLayout

OURS = "relax"
# By runtime: what people call it, and its weights.
RUNTIMES = {
    OURS: ("Relax", "float32"),
    "onnxruntime": ("onnxruntime", "float32"),
    "openvino": ("OpenVINO", "float32"),
    "llama.cpp": ("llama.cpp", "Q4_1"),
}
PROMPTS = (128, 512)
# The prompt of the first run.
WARM_UP = 8
# The first prompt whose length is new in each round.
FIRST = 48
MOST_ROUNDS = 5
FORMAT = "dnnl-bench-text-1"
_HEADER = ["", "runtime", "weights", "tokens\na second", "ms", "10%..90%", "time, ours /\ntheirs"]


@dataclasses.dataclass
class Metric:
    """One thing that is measured of each runtime.

    Attributes
    ----------
    title : str
        What the table calls it.
    tokens : int
        The tokens that one sample is the time of.
    rounds : dict of str to list of list of float
        By runtime, for each round the samples in seconds.
    """

    title: str
    tokens: int
    rounds: dict


def _start(name):
    """Start the process of a runtime."""
    layout = PluginLayout() if name == OURS else Layout()
    return Worker(layout, "scripts.bench.text_worker")


def _prompts(workers, ids, count, repeat, note):
    """Measure the runs of a prompt."""

    def sampler(worker):
        return lambda share: [worker.ask("measure", ids[:count], 1)[1][0] for _ in range(share)]

    samplers = {name: sampler(worker) for name, worker in workers.items()}
    for sample in samplers.values():
        sample(1)
    return Metric(f"prompt of {count}", count, measure.take_turns(samplers, repeat, note=note))


def _tokens(workers, ids, count, repeat, note):
    """Measure first tokens and further ones; return both metrics, and the tokens by runtime."""
    tokens_of = {name: [] for name in workers}
    first = {name: [] for name in workers}

    def sampler(name):
        def sample(_):
            # A round of each runtime has the lengths that others have in it, and nobody had before.
            begin = FIRST + len(first[name]) * (count + 1)
            tokens, (once, *others) = workers[name].ask("measure", ids[:begin], count + 1)
            tokens_of[name].append(tokens)
            first[name].append([once])
            return others

        return sample

    samplers = {name: sampler(name) for name in workers}
    others = measure.take_turns(samplers, repeat, note=note)
    last = FIRST + (repeat - 1) * (count + 1)
    metrics = [
        Metric(f"first token, prompts of {FIRST} to {last}", 1, first),
        Metric(f"each of {count} more tokens", 1, others),
    ]
    return metrics, tokens_of


def same_tokens(tokens_of, reference="onnxruntime"):
    """Return by runtime how many tokens are the reference's up to the first that differs.

    Parameters
    ----------
    tokens_of : dict of str to list of list of int
        By runtime, the tokens of each round, or None where they are not told.
    reference : str
        The runtime to compare with.

    Returns
    -------
    equal : dict of str to str
        The equal tokens of all tokens, empty without a reference.
    """
    equal = {}
    for name, turns in tokens_of.items():
        if reference not in tokens_of or None in turns:
            continue
        count = 0
        for tokens, expected in zip(turns, tokens_of[reference]):
            pairs = [one == other for one, other in zip(tokens, expected)]
            count += (pairs + [False]).index(False)
        equal[name] = f"{count}/{sum(map(len, turns))}"
    return equal


def rows_of(metrics):
    """Return a row of figures for each metric and runtime."""
    result = []
    for metric in metrics:
        for name, rounds in metric.rounds.items():
            timing = measure.Timing.of(sum(rounds, []))
            row = {"metric": metric.title, "runtime": name, **dataclasses.asdict(timing)}
            # Of all samples, as a slow token is waited for, too.
            mean = statistics.mean(sum(rounds, []))
            row["tokens_per_second"] = metric.tokens / mean
            if name != OURS and OURS in metric.rounds:
                row["ratio"] = measure.ratio(metric.rounds[OURS], rounds)
            result.append(row)
    return result


def render(figures, facts):
    """Return the two tables: of times, and of each process."""
    cells, last = [], None
    for row in figures:
        title, weights = RUNTIMES[row["runtime"]]
        times = [rows.digits(row[key]) for key in ("tokens_per_second", "median")]
        times.append(f"{rows.digits(row['low'])}..{rows.digits(row['high'])}")
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else ""
        cells.append(
            ["" if row["metric"] == last else row["metric"], title, weights, *times, ratio]
        )
        last = row["metric"]
    header = [
        "runtime",
        "load and\nfirst run s",
        "peak memory\nMB",
        "tokens equal to\nonnxruntime's",
    ]
    processes = [
        [RUNTIMES[name][0], f"{row['load_s']:.1f}", rows.digits(row["peak_mb"]), row["equal"]]
        for name, row in facts.items()
    ]
    return f"{table.render(_HEADER, cells, left=3)}\n\n{table.render(header, processes)}"


def main(args):
    """Run the benchmark; return the exit code."""
    console, note = Console(), measure.busy_note()
    chosen = options.choose("backends", args.backends, {name: name for name in RUNTIMES})
    names = list(dict.fromkeys([OURS, *chosen]))
    rounds = min(args.repeat, MOST_ROUNDS)
    count = max(*PROMPTS, FIRST + rounds * (args.tokens + 1))
    with _start(OURS) as worker:
        paths, config, ids, versions = worker.ask("files", count)
    if len(ids) < count:
        raise SetupError(f"--tokens: the text has {len(ids)} tokens", "generate fewer.")
    facts, workers, metrics = {}, {}, []
    with contextlib.ExitStack() as stack:
        for name in names:
            with console.step(f"load {name}"):
                worker = stack.enter_context(_start(name))
                seconds = worker.ask("prepare", name, paths, args.threads, config)
                # Some pack the weights in their first run.
                seconds += worker.ask("measure", ids[:WARM_UP], 1)[1][0]
            workers[name], facts[name] = worker, {"load_s": seconds}
        with console.step("new tokens"):
            metrics, tokens_of = _tokens(workers, ids, args.tokens, rounds, console.note)
        for length in PROMPTS:
            with console.step(f"prompts of {length}"):
                metrics.append(_prompts(workers, ids, length, rounds, console.note))
        equal = same_tokens(tokens_of)
        for name, worker in workers.items():
            facts[name]["peak_mb"] = worker.ask("peak_megabytes")
            facts[name]["equal"] = equal.get(name, "")
    figures, host = rows_of(metrics), measure.host()
    print(
        f"\nSmolLM2-135M-Instruct, oneDNN {versions['onednn']}, TVM {versions['tvm']}, "
        f"{host['cpu']}, {args.threads} threads"
    )
    print(f"{note}\n" if note else "")
    print(render(figures, facts))
    if args.json:
        content = {"format": FORMAT, "host": host, "versions": versions, "threads": args.threads}
        content.update(rounds=rounds, note=note, rows=figures, processes=facts)
        write_atomically(args.json, json.dumps(content, indent=1) + "\n")
    return 0
