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
"""The benchmark of throughput: callers with one thread each, beside one caller with all threads.

All callers share one compiled library, and so one plan with one copy of the weights; each has an
executor of its own.
"""

import statistics
import threading
import time

from scripts.bench import bench


def runners(case, callers, threads):
    """Compile a model, prepare it for a number of threads, and return an executor per caller."""
    from tvm.relay.op.contrib import dnnl
    from tvm.testing import dnnl as testing

    # A model keeps the number of threads that there is at its first run.
    dnnl.set_num_threads(threads)
    try:
        lib = testing.build(*case.partitioned)
        executors = [testing.Runner(lib) for _ in range(callers)]
        for runner in executors:
            runner(case.inputs)
    finally:
        dnnl.set_num_threads(0)
    return executors


def runs_per_second(executors, runs):
    """Have every executor run so many times, all at once; return the rate of all together.

    One executor runs on the thread of the caller, where it ran before. For a further thread GNU
    OpenMP would start a second team, find more threads than CPUs and no longer have them spin.
    """
    barrier = threading.Barrier(len(executors))

    def work(runner):
        barrier.wait()
        for _ in range(runs):
            runner.invoke()

    threads = [threading.Thread(target=work, args=(runner,)) for runner in executors[1:]]
    for thread in threads:
        thread.start()
    start = time.perf_counter()
    work(executors[0])
    for thread in threads:
        thread.join()
    return runs * len(executors) / (time.perf_counter() - start)


def measure_case(case, repeat, console):
    """Return the median rates of one caller with all threads, and of as many callers as threads."""
    name = case.workload.name
    with console.step(f"{name}: compile"):
        ways = {
            "one_caller": runners(case, 1, case.threads),
            "many_callers": runners(case, case.threads, 1),
        }
    rounds = min(bench.ROUNDS, repeat)
    rates = {way: [] for way in ways}
    with console.step(f"{name}: measure"):
        for _ in range(rounds):
            for way, executors in ways.items():
                rates[way].append(runs_per_second(executors, -(-repeat // rounds)))
    return {way: statistics.median(seen) for way, seen in rates.items()}


def compare(cases, repeat, console):
    """Measure workloads; return the titles and rows of a table, and rows for JSON."""
    cells, rows = [], []
    for case in cases:
        rates = measure_case(case, repeat, console)
        gain = rates["many_callers"] / rates["one_caller"]
        cells.append([case.workload.title, *map(bench.digits, rates.values()), f"{gain:.2f}"])
        rows.append({"model": case.workload.name, "callers": case.threads, **rates})
    threads = cases[0].threads
    titles = [
        "runs per second",
        f"1 caller,\n{threads} threads",
        f"{threads} callers,\n1 thread each",
        "ratio",
    ]
    return titles, cells, rows
