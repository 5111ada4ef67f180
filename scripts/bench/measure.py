# SPDX-License-Identifier: Apache-2.0
"""Timing on a shared machine: warm up, sample, report the median and the spread."""

import contextlib
import ctypes
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import time

from scripts.files import write_atomically
from scripts.options import cpus

# So many times each backend takes its turn: a slow spell of the machine then hits them all.
ROUNDS = 10
# Threads wait for more work in a loop before they sleep: oneDNN's for some 4 ms after a run.
REST = 0.05


@dataclasses.dataclass(frozen=True)
class Timing:
    """Summary of samples, in milliseconds: the 50th, 10th and 90th percentile, and how many."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, seconds):
        """Summarise a list of samples in seconds."""
        # One sample is all its own tenths, which `quantiles` does not say.
        samples = seconds if len(seconds) > 1 else 2 * list(seconds)
        tenths = statistics.quantiles(samples, n=10, method="inclusive")
        low, median, high = (1e3 * tenths[at] for at in (0, 4, 8))
        return cls(median, low, high, len(seconds))


def sample(call, repeat, warmup=3, budget=None):
    """Time `repeat` calls of a function, after `warmup` calls; return the seconds of each.

    After `budget` seconds no further call is timed, but one is in any case.
    """
    for _ in range(warmup):
        call()
    seconds = []
    end = None if budget is None else time.perf_counter() + budget
    while len(seconds) < repeat:
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        seconds.append(now - start)
        if end is not None and now > end:
            break
    return seconds


def sample_rounds(calls, repeat, warmup=1):
    """Time functions one after the other, in rounds; return a tuple of seconds for each round."""

    def timed(call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return [tuple(map(timed, calls)) for _ in range(warmup + repeat)][warmup:]


def take_turns(samplers, repeat, rounds=ROUNDS, note=None):
    """Sample each function in turn, there and back round by round.

    The order turns round after each round (ABBA), so that what is paid for the threads of the one
    before, which spin on for a while, is not always paid by the same.

    Parameters
    ----------
    samplers : dict of str to callable
        By backend: takes a number of runs, returns samples in seconds.
    repeat : int
        Runs of each in all rounds together.
    rounds : int
        How often each takes its turn.
    note : callable, optional
        Is called with a text, the rounds that are done, and all rounds.

    Returns
    -------
    dict of str to list of list of float
        By backend: the samples of each round.
    """
    rounds = min(rounds, repeat)
    samples = {name: [] for name in samplers}
    for turn in range(rounds):
        if note:
            note("rounds", turn, rounds)
        share = repeat * (turn + 1) // rounds - repeat * turn // rounds
        names = list(samplers)
        for name in names if turn % 2 == 0 else reversed(names):
            samples[name].append(samplers[name](share))
    return samples


def ratio(ours, theirs):
    """Return how many times as long ours takes: the median of the rounds' ratios of medians."""
    pairs = zip(ours, theirs)
    return statistics.median(statistics.median(a) / statistics.median(b) for a, b in pairs)


def busy_note():
    """Return a warning if other work keeps this machine busy, or an empty string."""
    load = os.getloadavg()[0]
    if load < 0.5 * cpus():
        return ""
    return (
        f"note: this machine is busy (load {load:.1f} on {cpus()} CPUs); "
        "times will be longer than they are on a quiet one"
    )


def host():
    """Describe the machine as a dict."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
            for line in cpuinfo:
                if line.startswith("model name"):
                    name = line.split(":", 1)[1].strip()
                    break
    except OSError:
        pass
    return {"cpu": name, "cpus": cpus(), "system": platform.platform()}


def stages(times):
    """Return the seconds of the import, the partitioning and the build between four times."""
    pairs = zip(("import", "partition", "build"), zip(times, times[1:]))
    return {stage: end - begin for stage, (begin, end) in pairs}


def save(args, kind, **figures):
    """Write figures to the file that --json names, if it does, with the format `kind`."""
    if args.json:
        content = {"format": kind, "host": host(), "threads": args.threads, **figures}
        write_atomically(args.json, json.dumps(content, indent=1) + "\n")


def resident_megabytes():
    """Return the memory that this process has now, files that are mapped included."""
    # Here: the plug-in's environment lacks it.
    import psutil

    return psutil.Process().memory_info().rss / 1e6


def peak_megabytes():
    """Return the most memory that this program has had, files that are mapped included.

    `getrusage` has that of the process which it was forked by, if that is more.
    """
    with open("/proc/self/status", encoding="utf-8") as status:
        (line,) = (line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6


def forget_primitives():
    """Empty oneDNN's cache, from which a library takes what others compiled before."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "libdnnl" in line}
    for path in paths:
        onednn, capacity = ctypes.CDLL(path), ctypes.c_int()
        onednn.dnnl_get_primitive_cache_capacity(ctypes.byref(capacity))
        for each in (0, capacity):
            onednn.dnnl_set_primitive_cache_capacity(each)


@contextlib.contextmanager
def busy(count):
    """Keep so many processes computing as long as the body runs.

    On a machine with other work a thread of a run may lose its CPU for milliseconds, and the run
    waits for it: the median is what a run usually takes, the 90th percentile what it takes then.
    """
    processes = []
    try:
        for _ in range(count):
            processes.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        # Until the scheduler has put them on the CPUs.
        time.sleep(0.2)
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
