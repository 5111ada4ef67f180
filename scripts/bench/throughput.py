# SPDX-License-Identifier: Apache-2.0
"""The benchmark of throughput, in runs a second: what serves many callers best.

Ours is one compiled library, and so one plan with one copy of the weights, with an executor for
each caller: callers with one thread each, beside one caller with all threads. onnxruntime gets as
many sessions with one thread as there are callers, OpenVINO its hint THROUGHPUT, with which it
chooses by itself how many requests it runs at once.
"""

import functools
import threading
import time

from dnnl_tests.models import workloads
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from scripts.bench import peers


def runners(case, callers, threads):
    """Compile a model, prepare it for a number of threads, and return a call for each caller."""
    lib = case.compiled()
    # A library keeps the number of threads that there is at its first run.
    dnnl.set_num_threads(threads)
    try:
        executors = [testing.Runner(lib) for _ in range(callers)]
        for runner in executors:
            runner(case.inputs)
    finally:
        dnnl.set_num_threads(0)
    return [runner.invoke for runner in executors]


def runs_per_second(calls, runs):
    """Have every caller run so many times, all at once; return the rate of all together.

    One of them runs on this thread, where it ran before. For a further thread GNU OpenMP would
    start a second team, find more threads than CPUs and no longer have them spin.
    """
    barrier = threading.Barrier(len(calls))

    def work(call):
        barrier.wait()
        for _ in range(runs):
            call()

    threads = [threading.Thread(target=work, args=(call,)) for call in calls[1:]]
    for thread in threads:
        thread.start()
    start = time.perf_counter()
    work(calls[0])
    for thread in threads:
        thread.join()
    return runs * len(calls) / (time.perf_counter() - start)


def ours(case, callers, threads):
    """Return a function that measures the rate of our callers."""
    peers.check_onednn(case)
    calls = runners(case, callers, threads)
    return lambda runs: runs_per_second(calls, runs)


def onnxruntime_sessions(case):
    """Return a function that measures as many sessions of onnxruntime as there are threads."""
    peers.check_onnxruntime(case)
    path = peers.onnx_path(case)
    sessions = [workloads.onnx_session(path, 1) for _ in range(case.threads)]
    calls = [functools.partial(session.run, None, case.inputs) for session in sessions]
    for call in calls:
        call()
    return lambda runs: runs_per_second(calls, runs)


def openvino_throughput(case):
    """Return a function that measures OpenVINO with the hint THROUGHPUT."""
    import openvino

    model, _ = peers.compile_openvino(case, "THROUGHPUT")
    queue = openvino.AsyncInferQueue(model)

    def rate(runs):
        total = runs * len(queue)
        start = time.perf_counter()
        for _ in range(total):
            queue.start_async(case.inputs, share_inputs=True)
        queue.wait_all()
        return total / (time.perf_counter() - start)

    rate(1)
    return rate


def _backend(name, title, prepare):
    """Return a backend whose samples are the seconds between the ends of runs of all callers."""

    def prepared(case):
        rate = prepare(case)
        return peers.Prepared(lambda runs: [1 / rate(runs)])

    return peers.Backend(name, title, prepared)


OURS = "many_callers"


def backends(threads):
    """Return the rows of the table by name."""
    rows = (
        (OURS, f"DNNL, {threads} callers", lambda case: ours(case, threads, 1)),
        ("one_caller", f"DNNL, 1 caller, {threads} threads", lambda case: ours(case, 1, threads)),
        ("onnxruntime", f"onnxruntime, {threads} sessions", onnxruntime_sessions),
        ("openvino", "OpenVINO THROUGHPUT", openvino_throughput),
    )
    return {row[0]: _backend(*row) for row in rows}


def as_rates(rows):
    """Turn the times of rows into rates."""
    for row in rows:
        if "median_ms" in row:
            row["runs_per_second"] = 1e3 / row.pop("median_ms")
            del row["low_ms"], row["high_ms"]
