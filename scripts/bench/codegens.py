# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the two code generators, each in processes of its own.

One process compiles and exports the model, another one loads and runs it, so that the memory of
neither hides in the other's. Those that run take turns.
"""

import contextlib
import functools
import tempfile
import time
from pathlib import Path

from scripts.bench import measure, peers
from scripts.bench.worker import Worker
from scripts.layout import Layout

MODEL = "mobilenet"
CODEGENS = ("JSON", "C_SRC")


def megabytes_of_constants(mod):
    """Return the size of the constants in the functions of a module."""
    from tvm import relay
    from tvm.relay.analysis import post_order_visit

    sizes = []

    def visit(expr):
        if isinstance(expr, relay.Constant):
            sizes.append(expr.data.numpy().nbytes)

    for func in mod.functions.values():
        post_order_visit(func.body, visit)
    return sum(sizes) / 1e6


def build(name, codegen, path):
    """Compile and export a model; return the figures."""
    from dnnl_tests.models import workloads
    from tvm.relay.op.contrib import dnnl
    from tvm.testing import dnnl as testing

    mod, params = workloads.WORKLOADS[name].load()
    begin = time.perf_counter()
    mod = dnnl.partition_for_dnnl(mod, params)
    start = time.perf_counter()
    lib = testing.build(mod, params, codegen=codegen)
    built = time.perf_counter()
    # Libraries without C source are not compiled, and take no options.
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


def load(name, path):
    """Load a model and run it once, for `sample` to run it again; return the figures."""
    import tvm
    from dnnl_tests.models import workloads
    from tvm.testing import dnnl as testing

    inputs = workloads.WORKLOADS[name].inputs()
    resident, before = measure.resident_megabytes(), measure.peak_megabytes()
    start = time.perf_counter()
    runner = testing.Runner(tvm.runtime.load_module(path), "graph")
    loaded = time.perf_counter()
    runner.set_inputs(inputs)
    begin = time.perf_counter()
    runner.invoke()
    end = time.perf_counter()
    _LOADED.append(runner)
    return {
        "load_ms": (loaded - start) * 1e3,
        "first_ms": (end - begin) * 1e3,
        "peak_mb": measure.peak_megabytes() - before,
        "resident_mb": measure.resident_megabytes() - resident,
    }


# The model of a process that has called `load`.
_LOADED = []


def sample(repeat):
    """Run the model that was loaded; return the samples."""
    return measure.sample(_LOADED[0].invoke, repeat)


def process():
    """Start a process that calls the functions above, without what this one has imported."""
    return Worker(Layout(), __name__)


def prepare(codegen, case):
    """Compile a case with a code generator in one process, and load it in another one."""
    name = case.original.name
    with contextlib.ExitStack() as stack:
        path = str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model.so")
        with process() as child:
            facts = child.ask("build", name, codegen, path)
        child = stack.enter_context(process())
        facts.update(child.ask("load", name, path))
        sample = functools.partial(child.ask, "sample")
        return peers.Prepared(sample, facts=facts, close=stack.pop_all().close)


OURS, *_ = CODEGENS
BACKENDS = {
    codegen: peers.Backend(codegen, codegen, functools.partial(prepare, codegen))
    for codegen in CODEGENS
}
