# SPDX-License-Identifier: Apache-2.0
"""Runs small models as servers do, for minutes, and watches the results and the memory.

In turns: threads that share libraries, one in float32 and one in 8 bits; a library with an open
batch called with one size after the other; a library that is loaded, run and let go; and processes
forked from one that has run a model, alone and while threads run theirs. It fails if an output is
not, bit by bit, that of the first run, if a process does not end, or if the memory grows.
"""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import random
import statistics
import tempfile
import threading
import time
from typing import NamedTuple

from scripts import options, table
from scripts.bench import measure
from scripts.console import Console
from scripts.errors import SetupError

TITLES = ["what took turns", "turns", "runs", "ms a turn", "MB more in the last quarter"]
# The pages that may come on top from the second quarter to the last: the allocator's, in which
# pieces lie otherwise.
SLACK_MB = 4.0
CALLERS = 4
BATCHES = range(1, 9)
# A forked process takes milliseconds.
PATIENCE = 60.0


class SoakError(SetupError):
    """A result or a process that is not as it should be."""


def add_arguments(parser):
    """Add the command's options."""
    parser.add_argument(
        "--minutes", type=float, default=10.0, metavar="N", help="how long (default: 10)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of the inputs (default: 1)"
    )
    parser.add_argument(
        "--threads",
        type=options.count,
        default=1,
        metavar="N",
        help="threads of one run on oneDNN (default: 1)",
    )


def resident_mb():
    """Return the memory of this process, without what could be given back.

    TVM's Python leaves a cycle of references, some 400 bytes, with each array that it copies, which
    the garbage collector takes for permanent until there are a hundred thousand.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return measure.resident_megabytes()


def network(batch):
    """Return a module with convolutions, a residual and a dense, for a batch or any."""
    import numpy as np
    import tvm
    from tvm import relay

    rng = np.random.default_rng(0)

    def const(*shape):
        return relay.const(rng.standard_normal(shape, "float32") / 8)

    x = relay.var("x", shape=(batch, 8, 16, 16))
    y = relay.nn.relu(relay.nn.bias_add(relay.nn.conv2d(x, const(8, 8, 3, 3), padding=1), const(8)))
    y = relay.nn.conv2d(y, const(8, 1, 3, 3), padding=1, groups=8) + x
    # A part for TVM between two partitions.
    y = relay.cumsum(relay.nn.global_avg_pool2d(relay.nn.relu(y)), axis=1)
    y = relay.nn.dense(relay.squeeze(y, [2, 3]), const(10, 8))
    return tvm.IRModule.from_expr(relay.nn.softmax(y))


def network_in_8_bits():
    """Return a module of two convolutions whose inputs and weights have 8 bits."""
    import tvm
    from dnnl_tests.quantized import Quantization
    from tvm import relay

    values, weights = Quantization(0.05, 128), Quantization(0.01, 0, "int8")
    y = values.dequantize(values.quantize(relay.var("x", shape=(1, 8, 16, 16))))
    for seed in range(2):
        weight = weights.dequantize(weights.values(8, 8, 3, 3, seed=seed))
        y = relay.nn.relu(relay.nn.conv2d(y, weight, padding=1))
        y = values.dequantize(values.quantize(y))
    return tvm.IRModule.from_expr(y)


class Model(NamedTuple):
    """A library that was exported and loaded, and what it gave first of each input."""

    path: str
    library: object
    expected: list


class Soak:
    """The libraries, inputs and expected outputs, and what takes turns with them.

    Parameters
    ----------
    folder : str
        For the libraries.
    seed : int
        Of the inputs and of the order in which they come.
    """

    def __init__(self, folder, seed):
        import numpy as np
        import tvm
        from tvm import relay
        from tvm.relay.op.contrib import dnnl
        from tvm.testing import dnnl as testing

        self.testing, self.load = testing, tvm.runtime.load_module
        self.random = random.Random(seed)
        rng = np.random.default_rng(seed)
        self.inputs = [rng.standard_normal((1, 8, 16, 16), "float32") for _ in range(8)]
        self.models = []
        for name, mod in (("float32", network(1)), ("int8", network_in_8_bits())):
            path = os.path.join(folder, f"{name}.so")
            testing.build(dnnl.partition_for_dnnl(mod)).export_library(path)
            library = self.load(path)
            runner = testing.Runner(library, "graph")
            self.models.append(Model(path, library, [runner({"x": x})[0] for x in self.inputs]))
        any_batch = dnnl.partition_for_dnnl(network(relay.Any()))
        self.any_batch = testing.Runner(testing.build(any_batch, executor="vm"))
        self.batches = {n: rng.standard_normal((n, 8, 16, 16), "float32") for n in BATCHES}
        self.of_batches = {n: self.any_batch({"x": x})[0] for n, x in self.batches.items()}

    def check(self, runner, model):
        """Run an input and compare."""
        i = self.random.randrange(len(self.inputs))
        compare(runner({"x": self.inputs[i]})[0], model.expected[i])

    @contextlib.contextmanager
    def calling(self):
        """Run the libraries in new threads, each with an executor, at least until the body ends.

        The body gets a list with an element for each run.
        """
        errors, runs, over = [], [], threading.Event()

        def work(model):
            try:
                runner = self.testing.Runner(model.library, "graph")
                while len(errors) == 0:
                    for _ in range(8):
                        self.check(runner, model)
                        runs.append(1)
                    if over.is_set():
                        return
            except Exception as error:  # of whatever kind: it is raised below
                errors.append(error)

        models = [self.models[i % len(self.models)] for i in range(CALLERS)]
        callers = [threading.Thread(target=work, args=(model,)) for model in models]
        for caller in callers:
            caller.start()
        try:
            yield runs
        finally:
            over.set()
            for caller in callers:
                caller.join()
        for error in errors:
            raise error

    def threads(self):
        """Run the libraries in new threads."""
        with self.calling() as runs:
            pass
        return len(runs)

    def sizes(self):
        """Run the library with an open batch, with batches in any order."""
        order = self.random.choices(BATCHES, k=16)
        for n in order:
            compare(self.any_batch({"x": self.batches[n]})[0], self.of_batches[n])
        return len(order)

    def reload(self):
        """Load a library, run it, and let it go."""
        model = self.random.choice(self.models)
        self.check(self.testing.Runner(self.load(model.path), "graph"), model)
        return 1

    def fork_amid_calls(self):
        """Fork a process while threads run the libraries."""
        with self.calling() as runs:
            forked = self.fork()
        return forked + len(runs)

    def fork(self):
        """Run a library in a process forked from this one."""
        model = self.random.choice(self.models)
        runner = self.testing.Runner(model.library, "graph")
        self.check(runner, model)
        child = multiprocessing.get_context("fork").Process(target=self.check, args=(runner, model))
        child.start()
        child.join(PATIENCE)
        if child.is_alive():
            child.kill()
            child.join()
            raise SoakError(f"a forked process did not end within {PATIENCE:.0f} s")
        if child.exitcode:
            raise SoakError(f"a forked process ended with status {child.exitcode}")
        child.close()
        return 2


def compare(got, expected):
    """Raise an error if an output is not the expected one, bit by bit."""
    if got.shape != expected.shape or got.tobytes() != expected.tobytes():
        raise SoakError("an output is not the one of the first run")


def take_turns(parts, seconds):
    """Let functions run in turn for some seconds, each at least four times.

    Returns
    -------
    list of (str, int, float, float)
        For each turn: the part, its runs, its seconds, and the memory after it in MB.
    """
    turns, end = [], time.monotonic() + seconds
    while time.monotonic() < end or len(turns) < 4 * len(parts):
        for name, part in parts.items():
            start = time.monotonic()
            runs = part()
            turns.append((name, runs, time.monotonic() - start, resident_mb()))
    return turns


def grown(turns):
    """Return how many MB the last quarter of turns has more than the second."""
    quarter = len(turns) // 4
    before, after = (
        statistics.median(turn[3] for turn in part)
        for part in (turns[quarter : 2 * quarter], turns[-quarter:])
    )
    return after - before


def main(args):
    """Soak; print a table; return the exit code."""
    options.limit_threads(args.threads)
    # A process that was forked has one thread of TVM's pool: it would wait for the others.
    os.environ["TVM_NUM_THREADS"] = "1"
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        with console.step("soak: compile the models"):
            soak = Soak(folder, args.seed)
        parts = {
            f"{CALLERS} threads with two libraries": soak.threads,
            "batches of 1 to 8": soak.sizes,
            "load, run, unload": soak.reload,
            "fork": soak.fork,
            "fork while threads run": soak.fork_amid_calls,
        }
        # What is there now stays: the collector need not look at it after each turn.
        gc.collect()
        gc.freeze()
        with console.step(f"soak: {args.minutes:g} minutes"):
            turns = take_turns(parts, 60 * args.minutes)
    rows = []
    for name in parts:
        mine = [turn for turn in turns if turn[0] == name]
        milliseconds = 1e3 * statistics.median(turn[2] for turn in mine)
        rows.append([name, len(mine), sum(turn[1] for turn in mine), f"{milliseconds:.1f}"])
        rows[-1].append(f"{grown(mine):.2f}")
    print(table.render(TITLES, rows))
    more = grown(turns)
    is_flat = more <= SLACK_MB
    print(
        f"memory: {turns[-1][3]:.0f} MB at the end, {more:+.2f} MB from the second quarter to "
        f"the last; up to {SLACK_MB:g} are fine" + ("" if is_flat else ": IT GROWS")
    )
    return 0 if is_flat else 1
