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
"""The benchmark of throughput, in runs a second: what serves many callers best.

Ours is one compiled library, and so one plan with one copy of the weights, with an executor for
each caller: callers with one thread each, beside one caller with all threads. onnxruntime gets as
many sessions with one thread as there are callers, OpenVINO its hint THROUGHPUT, with which it
chooses by itself how many requests it runs at once.
"""

import statistics
import threading
import time

from scripts.bench import common, measure

TITLES = [
    "runs per second",
    "precision",
    "1 caller,\n{threads} threads",
    "{threads} callers,\n1 thread each",
    "\nratio",
    "onnxruntime,\n{threads} sessions",
    "ours /\ntheirs",
    "OpenVINO\nTHROUGHPUT",
    "ours /\ntheirs",
]


def runners(case, callers, threads):
    """Compile a model, prepare it for a number of threads, and return a call for each caller."""
    from tvm.relay.op.contrib import dnnl
    from tvm.testing import dnnl as testing

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
    from tvm.contrib.onednn.policy import cpu

    from scripts.bench import peers

    if not case.is_int8 and not cpu.computes(case.precision):
        raise peers.NotMeasured(f"oneDNN has no {case.precision} kernels for this CPU")
    calls = runners(case, callers, threads)
    return lambda runs: runs_per_second(calls, runs)


def onnxruntime_sessions(case):
    """Return a function that measures as many sessions of onnxruntime as there are threads."""
    from dnnl_tests.models import workloads

    from scripts.bench import peers

    peers.check_onnxruntime(case)
    path = peers.onnx_path(case)
    sessions = [workloads.onnx_session(path, 1) for _ in range(case.threads)]
    calls = [lambda session=session: session.run(None, case.inputs) for session in sessions]
    for call in calls:
        call()
    return lambda runs: runs_per_second(calls, runs)


def openvino_throughput(case):
    """Return a function that measures OpenVINO with the hint THROUGHPUT."""
    import openvino

    from scripts.bench import peers

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


def measure_case(case, repeat, console):
    """Return by way the median rate, or a text that says why it was not measured."""
    from scripts.bench import peers
    from scripts.passes import shown

    name = f"{case.original.name}, {case.precision}"
    ways = {
        "one_caller": lambda: ours(case, 1, case.threads),
        "many_callers": lambda: ours(case, case.threads, 1),
        "onnxruntime": lambda: onnxruntime_sessions(case),
        "openvino": lambda: openvino_throughput(case),
    }
    figures, rates = {}, {}
    for way, prepare in ways.items():
        with console.step(f"{name}: prepare {way}"), shown(console):
            try:
                case.check()
                rates[way] = prepare()
            except peers.NotMeasured as error:
                figures[way] = str(error)
    samplers = {way: lambda runs, rate=rate: [rate(runs)] for way, rate in rates.items()}
    with console.step(f"{name}: measure"):
        turns = measure.take_turns(samplers, repeat, note=console.note)
    figures.update((way, statistics.median(sum(rounds, []))) for way, rounds in turns.items())
    return {way: figures[way] for way in ways}


def _over(rates, way, other):
    pair = (rates[way], rates[other])
    return "" if any(isinstance(rate, str) for rate in pair) else f"{pair[0] / pair[1]:.2f}"


def compare(cases, repeat, console):
    """Measure cases; return the titles and rows of a table, and rows for JSON."""
    cells, rows, last = [], [], None
    for case in cases:
        rates = measure_case(case, repeat, console)
        one, many, onnxruntime, openvino = (
            "-" if isinstance(rate, str) else common.digits(rate) for rate in rates.values()
        )
        title = "" if case.original is last else case.original.title
        last = case.original
        cells.append(
            [
                title,
                case.precision,
                one,
                many,
                _over(rates, "many_callers", "one_caller"),
                onnxruntime,
                _over(rates, "many_callers", "onnxruntime"),
                openvino,
                _over(rates, "many_callers", "openvino"),
            ]
        )
        row = {"model": case.original.name, "precision": case.precision, "callers": case.threads}
        texts = {way: rate for way, rate in rates.items() if isinstance(rate, str)}
        numbers = {way: rate for way, rate in rates.items() if way not in texts}
        rows.append({**row, **numbers, **({"reasons": texts} if texts else {})})
    return [title.format(threads=cases[0].threads) for title in TITLES], cells, rows
