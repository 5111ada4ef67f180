# SPDX-License-Identifier: Apache-2.0
"""Runs damaged artifacts in processes that sanitizers look after: `./dev.py fuzz --artifacts`.

The trials are those of tests/cpp-runtime/artifacts. The number of a trial is the seed of all in it,
and odd ones run on a smaller instruction set. The long run damages the graphs that the tests have
compiled on this machine; --gate runs the same trials everywhere.
"""

import collections
import dataclasses
import os
import re
import shlex
import subprocess
import threading

from scripts import options, table
from scripts.console import Console
from scripts.errors import SetupError
from scripts.layout import Layout
from scripts.runner import Runner
from scripts.setup.variables import tvm_home, variables
from scripts.test import corpus, quick
from scripts.test.sanitize import SanitizedBuild

TARGET = "dnnl_artifacts"
SMALL_ISA = "SSE41"
# The tests that make a corpus where none have run: a few minutes.
FOLDERS = [quick.STAGES + stage for stage in ("ops", "fusion")]
OUTCOMES = ("not loaded", "not initialised", "not run", "run", "too large")
# The trials of --gate, 14 of each graph; --count names another number. Two processes on any
# machine: each runs the same trials in the same order.
GATE_SEED, GATE_COUNT, GATE_PROCESSES = 1, 12000, 2
# So many failures of each kind are shown, and so many of all end the run.
SHOWN = 2
MOST_FAILURES = 200
_FRAME = re.compile(r"#\d+ 0x\w+ in ([^ (]+[^(]{,60})")
_SUMMARY = re.compile(r"SUMMARY: \w+: ([\w-]+)(?: ([^ (]\S+:\d+))?")
_RUNTIME_ERROR = re.compile(r"(\S+:\d+):\d+: runtime error:")


@dataclasses.dataclass
class Failure:
    """A damaged artifact that does what none must do."""

    why: str
    seed: int = 0
    of: str = ""
    what: str = ""
    saved: str = ""
    report: str = ""

    def kind(self):
        """Return what failures of the same mistake have in common."""
        error = _RUNTIME_ERROR.search(self.report)
        summary = _SUMMARY.search(self.report)
        frame = _FRAME.search(self.report)
        place = error or (summary if summary and summary.group(2) else frame)
        words = [summary.group(1) if summary else "", place.group(place.lastindex) if place else ""]
        return re.sub(r"[\d.]+", "N", self.why), " ".join(filter(None, words))


class Worker(threading.Thread):
    """One process that runs each `step`-th trial from a seed on."""

    def __init__(self, command, environ, on_failure):
        super().__init__(daemon=True)
        self.command = command
        self.environ = environ
        self.on_failure = on_failure
        self.counts = collections.Counter()
        self.odd = collections.defaultdict(list)
        self.trials, self.corpus, self.most, self.slowest = 0, 0, (0.0, 0), (0.0, 0)
        self.process = None

    def run(self):
        """Read what the process prints."""
        self.process = subprocess.Popen(
            self.command,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        noise, failure = collections.deque(maxlen=400), None
        for line in self.process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "@failed":
                failure = Failure(rest, report="".join(noise))
                noise.clear()
            elif word == "@seed":
                seed, _, failure.of = rest.partition(" of ")
                failure.seed = int(seed)
            elif word == "@what":
                failure.what = rest
            elif word == "@saved":
                failure.saved = rest
                self.on_failure(failure)
            elif word == "@count":
                part, *counts = rest.split(" ")
                for outcome, count in zip(OUTCOMES, counts):
                    self.counts[part.replace("_", " "), outcome] += int(count)
            elif word == "@total":
                self.trials = int(rest.split(" ")[0])
            elif word in ("@most", "@slowest"):
                value, seed = rest.split(" ")
                setattr(self, word[1:], (float(value), int(seed)))
            elif word == "@odd":
                self.odd[re.sub(r"\d+", "N", rest)[:200]].append(rest)
            elif word == "@corpus":
                self.corpus = int(rest)
            else:
                noise.append(line)
        self.process.wait()


class Campaign:
    """Some workers, the graphs that they damage, and what they find."""

    def __init__(self, layout, build, console, graphs):
        self.layout = layout
        self.graphs = graphs
        self.build = build
        self.console = console
        self.failures = collections.defaultdict(list)
        self.lock = threading.Lock()
        self.workers = []

    def show(self, failure):
        """Print a failure if it is of a new kind."""
        with self.lock:
            known = self.failures[failure.kind()]
            known.append(failure)
            if len(known) <= SHOWN:
                print(f"\nFAILED with seed {failure.seed} ({failure.of}): {failure.why}")
                print(f"{failure.what}\n{failure.report}".rstrip())
                print(f"again: ./dev.py fuzz --artifacts --replay {shlex.quote(failure.saved)}")
                print("", flush=True)
            if sum(map(len, self.failures.values())) >= MOST_FAILURES:
                for worker in self.workers:
                    worker.process.terminate()

    def environment(self, seed):
        """Return the variables of a process whose seeds are odd or even, as this one is."""
        environ = self.build.variables(variables(self.layout))
        # More threads would only make it depend on chance.
        environ.update(OMP_NUM_THREADS="1", TVM_NUM_THREADS="1")
        if seed % 2:
            environ.setdefault("ONEDNN_MAX_CPU_ISA", SMALL_ISA)
        return environ

    def start(self, seed, words):
        """Start a worker."""
        command = [self.build.folder / TARGET, self.graphs, *words]
        command += ["--save", self.layout.artifacts]
        worker = Worker([str(word) for word in command], self.environment(seed), self.show)
        worker.start()
        self.workers.append(worker)

    def run(self, seed, count, seconds, number=None):
        """Run trials from a seed on, in `number` processes (default: one for each CPU)."""
        # An even number, so that the seeds of a process are all odd or all even.
        number = number or (1 if count == 1 else max(2, options.cpus() // 2 * 2))
        for k in range(number):
            words = ["--seed", seed + k, "--step", number]
            if seconds:
                words += ["--seconds", seconds]
            if count:
                words += ["--count", (count - k + number - 1) // number]
            self.start(seed + k, words)
        self.join()

    def replay_failures(self, paths):
        """Run artifacts that failed once, and are to fail no more."""
        seeds = {path: seed_of(path) for path in paths}
        for is_odd in (0, 1):
            chosen = [path for path, seed in seeds.items() if seed % 2 == is_odd]
            if chosen:
                self.start(is_odd, ["--replay", *chosen])
        self.join()

    def join(self):
        """Wait for all workers."""
        for worker in self.workers:
            worker.join()

    def report(self):
        """Print what was found; return the exit code."""
        total = sum((worker.counts for worker in self.workers), collections.Counter())
        parts = sorted({part for part, _ in total})
        rows = [[part, *(str(total[part, outcome]) for outcome in OUTCOMES)] for part in parts]
        print(table.render(["damaged", *OUTCOMES], rows))
        most = max(worker.most for worker in self.workers)
        slowest = max(worker.slowest for worker in self.workers)
        print(f"most memory: {most[0]:.2f} x the valid artifact's (seed {most[1]})")
        print(f"slowest: {slowest[0]:.2f} s (seed {slowest[1]})")
        for worker in self.workers:
            for lines in worker.odd.values():
                print(f"odd, {len(lines)} x: {lines[0][:200]}")
        for (why, place), failures in sorted(self.failures.items(), key=lambda kind: str(kind[0])):
            seeds = ", ".join(str(failure.seed) for failure in failures[:5])
            print(f"FAILED {len(failures)} x {why} {place}: seeds {seeds}")
        trials = sum(worker.trials for worker in self.workers)
        failed = sum(map(len, self.failures.values()))
        print(f"{trials} damaged artifacts of {self.workers[0].corpus} graphs, {failed} failed")
        bad = any(worker.process.returncode not in (0, 1) for worker in self.workers)
        return 1 if failed or bad or not trials else 0


def make_corpus(runner, layout, environ):
    """Run tests that compile graphs, if there are none of an earlier run."""
    if any(layout.corpus.glob("*.json")):
        return
    command = [layout.python, "-m", "pytest", "-q", "-n", str(options.cpus()), *FOLDERS]
    command += ["-p", "scripts.test.corpus", "-m", "not slow"]
    with runner.console.step("compile the graphs of the tests"):
        subprocess.run(command, env=environ, cwd=layout.root, stdout=subprocess.DEVNULL, check=True)


def main(args):
    """Run trials; return 1 if one failed."""
    if tvm_home():
        raise SetupError(
            "fuzz --artifacts compiles our C++ beside the prebuilt tree, but TVM_HOME is set",
            "unset it, and leave --tvm away.",
        )
    layout, console = Layout(), Console()
    runner = Runner(console, layout.logs)
    build = SanitizedBuild(runner, layout, "address")
    if not args.gate and not args.replay:
        make_corpus(runner, layout, dict(os.environ))
    with console.step("compile with sanitizers", after=1.0):
        build.build(TARGET)
    layout.artifacts.mkdir(parents=True, exist_ok=True)
    if args.replay:
        return replay(Campaign(layout, build, console, corpus_of(layout, args.replay)), args.replay)
    if args.gate:
        campaign = Campaign(layout, build, console, corpus.unpack(layout))
        return gate(campaign, layout.gate_failures, args.count or GATE_COUNT)
    campaign = Campaign(layout, build, console, layout.corpus)
    with console.step(f"damaged artifacts from seed {args.seed}"):
        campaign.run(args.seed, args.count, args.seconds)
    return campaign.report()


def gate(campaign, failures, count):
    """Run the trials that are the same on every machine; return the exit code."""
    paths = sorted(failures.glob("*.artifact"))
    with campaign.console.step(f"{count} damaged artifacts, {len(paths)} that failed once"):
        campaign.replay_failures(paths)
        campaign.run(GATE_SEED, count, None, GATE_PROCESSES)
    code = campaign.report()
    read, fixed = campaign.workers[-1].corpus, len(corpus.read_fixed(campaign.layout))
    if read != fixed:
        print(f"FAILED: {fixed - read} of {fixed} graphs cannot be read")
        code = 1
    return code


def _first_line(path):
    with open(path, "rb") as file:
        return file.readline().decode().split()


def seed_of(path):
    """Return the seed of an artifact that was saved."""
    return int(_first_line(path)[-1])


def corpus_of(layout, path):
    """Return the folder that holds the graph of an artifact that was saved."""
    name = f"{_first_line(path)[0]}.json"
    fixed = corpus.unpack(layout)
    return fixed if (fixed / name).is_file() else layout.corpus


def replay(campaign, path):
    """Run one damaged artifact that was saved, on this terminal."""
    command = [campaign.build.folder / TARGET, campaign.graphs, "--replay", path]
    environ = campaign.environment(seed_of(path))
    return subprocess.call([str(word) for word in command], env=environ)
