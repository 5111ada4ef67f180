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
"""The benchmark of the two code generators, each in processes of its own.

One process compiles and exports the model, another one loads and runs it, so that the memory of
neither hides in the other's. Those that run take turns.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.bench import bench, measure

MODEL = "mobilenet"
CODEGENS = ("JSON", "C_SRC")
# The titles of the columns by the figure that they show.
_COLUMNS = {
    "partition_s": "partition\ns",
    "compile_s": "compile\ns",
    "export_s": "export\ns",
    "library_mb": "library\nMB",
    "load_ms": "load\nms",
    "first_ms": "first run\nms",
    "median_ms": "median run\nms",
    "peak_mb": "peak memory\nMB",
    "resident_mb": "after the\nfirst run MB",
    "weights_mb": "weights\nMB",
}


def megabytes_of_constants(mod):
    """Return the size of the constants in the functions of a module."""
    from tvm import relay  # pylint: disable=import-outside-toplevel
    from tvm.relay.analysis import post_order_visit  # pylint: disable=import-outside-toplevel

    sizes = []

    def visit(expr):
        if isinstance(expr, relay.Constant):
            sizes.append(expr.data.numpy().nbytes)

    for func in mod.functions.values():
        post_order_visit(func.body, visit)
    return sum(sizes) / 1e6


def build(workload, codegen, path):
    """Compile and export a model; return the figures."""
    from tvm.relay.op.contrib import dnnl  # pylint: disable=import-outside-toplevel
    from tvm.testing import dnnl as testing  # pylint: disable=import-outside-toplevel

    mod, params = workload.load()
    begin = time.perf_counter()
    mod = dnnl.partition_for_dnnl(mod, params)
    start = time.perf_counter()
    lib = testing.build(mod, params, codegen=codegen)
    built = time.perf_counter()
    # What has no C source is not compiled, and takes no options.
    options = {"options": ["-O2", *dnnl.c_source_options()]} if codegen == "C_SRC" else {}
    testing.export(lib, path, **options)
    exported = time.perf_counter()
    return {
        "partition_s": start - begin,
        "compile_s": built - start,
        "export_s": exported - built,
        "weights_mb": megabytes_of_constants(mod),
        "library_mb": Path(path).stat().st_size / 1e6,
    }


def peak_megabytes():
    """Return the most memory that this process has had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def resident_megabytes():
    """Return the memory that this process has now, files that are mapped included."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[1])
    return pages * resource.getpagesize() / 1e6


def run(workload, path):
    """Load and run a model, then answer each number on stdin with so many samples."""
    import tvm  # pylint: disable=import-outside-toplevel
    from tvm.testing import dnnl as testing  # pylint: disable=import-outside-toplevel

    inputs = workload.inputs()
    before, resident = peak_megabytes(), resident_megabytes()
    start = time.perf_counter()
    runner = testing.Runner(tvm.runtime.load_module(path), "graph")
    loaded = time.perf_counter()
    runner.set_inputs(inputs)
    begin = time.perf_counter()
    runner.invoke()
    end = time.perf_counter()
    figures = {"load_ms": (loaded - start) * 1e3, "first_ms": (end - begin) * 1e3}
    figures["peak_mb"] = peak_megabytes() - before
    figures["resident_mb"] = resident_megabytes() - resident
    print(json.dumps(figures), flush=True)
    for line in sys.stdin:
        print(json.dumps(measure.sample(runner.invoke, int(line))), flush=True)


class Child:
    """A process of this module.

    Parameters
    ----------
    words : list of str
        Its arguments.
    """

    def __init__(self, *words):
        command = [sys.executable, "-m", "scripts.bench.codegens", *map(str, words)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self):
        """Return the next thing that it prints."""
        line = self.process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError(f"{self.process.args} ended with code {self.process.returncode}")
        return json.loads(line)

    def sample(self, repeat):
        """Ask for samples and return them."""
        print(repeat, file=self.process.stdin, flush=True)
        return self.read()

    def close(self):
        """Let the process end, and wait for it."""
        self.process.stdin.close()
        self.process.wait()


def measure_workload(workload, repeat, console):
    """Return the figures of each code generator for a model, as a list of dict."""
    rows, children = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for codegen in CODEGENS:
            path = Path(folder) / f"{codegen}.so"
            with console.step(f"{workload.name}: compile with {codegen}"):
                child = Child("build", workload.name, codegen, path)
                rows[codegen] = {"model": workload.name, "codegen": codegen, **child.read()}
                child.close()
        with console.step(f"{workload.name}: load"):
            for codegen in CODEGENS:
                children[codegen] = Child("run", workload.name, Path(folder) / f"{codegen}.so")
                rows[codegen].update(children[codegen].read())
    with console.step(f"{workload.name}: measure"):
        samplers = {codegen: child.sample for codegen, child in children.items()}
        for codegen, rounds in bench.take_turns(samplers, repeat).items():
            timing = measure.Timing.of(sum(rounds, []))
            figures = {"median_ms": timing.median, "low_ms": timing.low, "high_ms": timing.high}
            rows[codegen].update(figures, samples=timing.count)
            children[codegen].close()
    return list(rows.values())


def compare(workloads, repeat, console):
    """Measure workloads; return the titles and rows of a table, and rows for JSON."""
    rows = [row for w in workloads for row in measure_workload(w, repeat, console)]
    cells = []
    for row in rows:
        figures = [bench.digits(row[name]) for name in _COLUMNS]
        cells.append([f"{row['model']}, {row['codegen']}", *figures])
    return ["batch 1, float32", *_COLUMNS.values()], cells, rows


def main(argv):
    """Be one of the processes."""
    from dnnl_tests.models import workloads  # pylint: disable=import-outside-toplevel

    task, name, *rest = argv
    workload = workloads.WORKLOADS[name]
    if task == "build":
        print(json.dumps(build(workload, *rest)))
    else:
        run(workload, *rest)


if __name__ == "__main__":
    main(sys.argv[1:])
