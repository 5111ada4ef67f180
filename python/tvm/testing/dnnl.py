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
"""Helpers for modules that run on oneDNN, shared by the tests, the demo and the benchmark.

The usual test is one call::

    from tvm.testing import dnnl as testing

    testing.check(mod, {"x": x}, params, composites={"dnnl.conv2d_bias_relu": 1}, partitions=1)

which partitions `mod`, asserts what was offloaded, runs it with and without DNNL, and compares.
"""

import atexit
import collections
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import cc, graph_executor
from tvm.relay.backend import Executor, te_compiler
from tvm.relay.backend.executor_factory import AOTExecutorFactoryModule
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib.dnnl import host_target
from tvm.runtime import vm as vm_runtime
from tvm.runtime.executor import AotModule

COMPILER = "dnnl"

# TVM asks for its table of build options once for each dimension of each operand that it lowers.
# Making the table took most of the time of compiling a small module.
te_compiler.libinfo = functools.cache(te_compiler.libinfo)


def build(mod, params=None, *, executor="graph", target=None, opt_level=3, codegen=None):
    """Compile a module for the host, with the instruments of the current PassContext.

    Parameters
    ----------
    mod : tvm.IRModule
        The module, partitioned for DNNL or not.
    params : dict of str to array, optional
        Values to bind to parameters of ``main``.
    executor : str
        ``"graph"``, ``"vm"`` or ``"aot"``.
    target : tvm.target.Target, optional
        Default: the result of ``host_target()``.
    opt_level : int
        Relay's optimisation level.
    codegen : str, optional
        ``"JSON"`` or ``"C_SRC"``. Default: the one that this TVM's DNNL was built with.

    Returns
    -------
    factory of the executor, or tvm.runtime.vm.Executable
        What :py:class:`Runner` takes.
    """
    target = target or host_target()
    config = {"relay.ext.dnnl.codegen": codegen} if codegen else {}
    instruments = tvm.transform.PassContext.current().instruments
    with tvm.transform.PassContext(opt_level=opt_level, config=config, instruments=instruments):
        if executor in ("graph", "aot"):
            return relay.build(mod, target=target, params=params, executor=Executor(executor))
        if executor == "vm":
            return relay.vm.compile(mod, target=target, params=params)
    raise ValueError(f"executor is {executor!r}; use 'graph', 'vm' or 'aot'")


class Runner:
    """Runs a compiled or loaded module on the CPU through one interface for all executors.

    Parameters
    ----------
    lib : factory of an executor, tvm.runtime.vm.Executable or tvm.runtime.Module
        The result of :py:func:`build`, or of ``tvm.runtime.load_module``. C source that is part
        of it is compiled first.
    executor : str, optional
        ``"graph"``, ``"vm"`` or ``"aot"``; needed for a loaded module only.
    """

    def __init__(self, lib, executor=None):
        if executor is None:
            executor = "vm" if isinstance(lib, vm_runtime.Executable) else "graph"
            executor = "aot" if isinstance(lib, AOTExecutorFactoryModule) else executor
        lib, self.path = compiled(lib)
        self.lib = lib
        self.executor = executor
        self._result = None
        device = tvm.cpu()
        if executor == "vm":
            self._vm = vm_runtime.VirtualMachine(lib, device)
        else:
            make = graph_executor.GraphModule if executor == "graph" else AotModule
            self._graph = make(lib["default"](device))

    def set_inputs(self, inputs):
        """Copy the inputs (dict of str to array) into the executor; a wrong name is an error."""
        if self.executor == "vm":
            self._vm.set_input("main", **{k: tvm.nd.array(v) for k, v in inputs.items()})
        else:
            for name, value in inputs.items():  # TVM ignores keywords that are no inputs.
                self._graph.set_input(name, value)

    def invoke(self):
        """Run once on the inputs set before. This is the part worth timing."""
        if self.executor == "vm":
            self._result = self._vm.invoke("main")
        else:
            self._graph.run()

    def outputs(self):
        """Return the outputs of the last run as a flat list of numpy arrays."""
        if self.executor == "vm":
            return _flatten(self._result)
        return [self._graph.get_output(i).numpy() for i in range(self._graph.get_num_outputs())]

    def __call__(self, inputs):
        """Set the inputs, run once, and return the outputs."""
        self.set_inputs(inputs)
        self.invoke()
        return self.outputs()


def _flatten(value):
    """Flatten nested tuples of a VM's result into a list of numpy arrays."""
    if isinstance(value, tvm.nd.NDArray):
        return [value.numpy()]
    return [array for field in value for array in _flatten(field)]


def run(mod, inputs, params=None, *, executor="graph", target=None, opt_level=3):
    """Compile a module, run it once, and return its outputs as a list of numpy arrays."""
    lib = build(mod, params, executor=executor, target=target, opt_level=opt_level)
    return Runner(lib)(inputs)


def run_in_new_process(path, inputs, *, executor="graph", timeout=600):
    """Load an exported library in a new Python process, run it once, and return its outputs.

    Parameters
    ----------
    path : str
        A library written by ``export_library``.
    inputs : dict of str to array
        The inputs of ``main``.
    executor : str
        ``"graph"``, ``"vm"`` or ``"aot"``.
    timeout : float
        Seconds to wait.

    Returns
    -------
    list of numpy.ndarray
        The outputs. A process that fails raises RuntimeError with what it wrote.
    """
    code = (
        "import sys, numpy as np, tvm\n"
        "from tvm.testing import dnnl\n"
        "path, source, result, executor = sys.argv[1:]\n"
        "runner = dnnl.Runner(tvm.runtime.load_module(path), executor)\n"
        "outputs = runner(dict(np.load(source)))\n"
        "np.savez(result, **{f'arr_{i}': x for i, x in enumerate(outputs)})\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        source, result = os.path.join(folder, "in.npz"), os.path.join(folder, "out.npz")
        np.savez(source, **{k: _to_numpy(v) for k, v in inputs.items()})
        done = subprocess.run(
            [sys.executable, "-c", code, str(path), source, result, executor],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"the process that loaded {path} ended with code {done.returncode}:\n"
                f"{done.stdout}{done.stderr}"
            )
        with np.load(result) as arrays:
            return [arrays[f"arr_{i}"] for i in range(len(arrays.files))]


def _to_numpy(value):
    return value.numpy() if isinstance(value, tvm.nd.NDArray) else np.asarray(value)


Difference = collections.namedtuple("Difference", ["absolute", "relative"])
Difference.__doc__ = "Largest difference of two lists of outputs; relative: to the largest value."


def difference(outputs, reference):
    """Return the largest :py:class:`Difference` over pairs of arrays.

    Parameters
    ----------
    outputs, reference : list of array
        Pairwise of the same shape, or ValueError. A value that is not finite on one side only
        counts as an infinite difference.
    """
    if len(outputs) != len(reference):
        raise ValueError(f"{len(outputs)} outputs, but the reference has {len(reference)}")
    absolute = relative = 0.0
    for i, pair in enumerate(zip(outputs, reference)):
        got, want = map(_to_numpy, pair)
        if got.shape != want.shape:
            raise ValueError(f"output {i} has shape {got.shape}, the reference {want.shape}")
        if got.size == 0:
            continue
        got, want = got.astype("float64"), want.astype("float64")
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        with np.errstate(invalid="ignore"):
            gap = np.where(same, 0.0, np.abs(got - want))
        largest = float(np.max(np.nan_to_num(gap, nan=np.inf)))
        finite = want[np.isfinite(want)]
        scale = float(np.max(np.abs(finite))) if finite.size else 0.0
        absolute = max(absolute, largest)
        relative = max(relative, largest / scale if scale else (0.0 if largest == 0.0 else np.inf))
    return Difference(absolute, relative)


def assert_close(outputs, reference, rtol=1e-5):
    """Assert that outputs differ by at most `rtol` of the reference's largest value."""
    diff = difference(outputs, reference)
    assert diff.relative <= rtol, (
        f"largest difference {diff.absolute:.3e}, {diff.relative:.3e} of the largest output, "
        f"exceeds {rtol:.1e}"
    )


def check(mod, inputs, params=None, *, composites=None, ops=None, partitions=None, rtol=1e-5, **kw):
    """Partition, assert the offload, run with DNNL and without, and compare.

    Parameters
    ----------
    mod : tvm.IRModule
        A module that is not partitioned yet.
    inputs : dict of str to array
        The inputs of ``main``.
    params : dict of str to array, optional
        Values of the other parameters.
    composites, ops : dict of str to int, optional
        Exactly the composites, and at least the Relay ops, that must be offloaded.
    partitions : int, optional
        The number of partitions. Default: any but none.
    rtol : float
        Largest difference allowed, relative to the largest output.
    reference : list of array, optional
        The outputs to compare with. Default: of the same module without DNNL.
    executors : sequence of str, optional
        The executors to run. Default: ``("graph",)``.
    run : callable, optional
        Runs a module, with the signature of :py:func:`run`, which is the default.
    options : dict, optional
        Options of ``partition_for_dnnl``.

    Returns
    -------
    tvm.IRModule
        The partitioned module.
    """
    executors, reference = kw.pop("executors", ("graph",)), kw.pop("reference", None)
    execute = kw.pop("run", run)
    partitioned = dnnl.partition_for_dnnl(mod, params, **kw.pop("options", {}))
    assert not kw, f"unknown arguments {sorted(kw)}"
    offloaded = offload(partitioned)
    where = f"\n{offloaded}\n{partitioned}"
    assert offloaded.partitions > 0 or partitions == 0, f"nothing was offloaded{where}"
    assert partitions in (None, offloaded.partitions), f"expected {partitions} partitions{where}"
    if composites is not None:
        assert offloaded.composites == dict(composites), f"expected composites {composites}{where}"
    for name, count in (ops or {}).items():
        assert offloaded.ops[name] >= count, f"expected {count} {name} on DNNL{where}"
    if reference is None:
        # Fusion is all that a reference needs; level 3 takes three times as long to compile.
        reference = execute(mod, inputs, params, executor=executors[0], opt_level=1)
    for executor in executors:
        assert_close(execute(partitioned, inputs, params, executor=executor), reference, rtol)
    return partitioned


Offload = collections.namedtuple("Offload", ["partitions", "composites", "ops", "host_ops"])
Offload.__doc__ = """The parts of a partitioned module that DNNL gets.

partitions: how many functions; composites: Counter of composite names in them; ops: Counter of
Relay op names in them, inside composites too; host_ops: Counter of the others."""


def offload(mod, compiler=COMPILER):
    """Count what a partitioned module gives to DNNL, independently of the offload report.

    Another compiler's name counts what goes to that one.
    """
    partitions, composites = 0, collections.Counter()
    ops, host_ops = collections.Counter(), collections.Counter()

    def discount(node):
        if _composite(node):
            composites[_composite(node)] -= 1

    for func in mod.functions.values():
        if not isinstance(func, relay.Function):
            continue
        inside = "Compiler" in (func.attrs or {}) and func.attrs["Compiler"] == compiler
        partitions += inside
        counter = ops if inside else host_ops

        def visit(node, counter=counter):
            if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op):
                counter[node.op.name] += 1
            elif _composite(node):
                composites[_composite(node)] += 1
                # One inside of another is a part of it, as a virtual op is.
                relay.analysis.post_order_visit(node.op.body, discount)

        relay.analysis.post_order_visit(func, visit)
    return Offload(partitions, +composites, ops, host_ops)


def _composite(node):
    """Return the name of the composite that `node` calls, or None."""
    attrs = getattr(node.op, "attrs", None) if isinstance(node, relay.Call) else None
    return str(attrs["Composite"]) if attrs is not None and "Composite" in attrs else None


def dnnl_modules(lib):
    """Return the ``dnnl_json`` runtime modules of a compiled or loaded library.

    Parameters
    ----------
    lib : Runner, GraphExecutorFactoryModule, tvm.runtime.vm.Executable or tvm.runtime.Module
        Plans exist only after the first run, in the instance that ran.

    Returns
    -------
    list of tvm.runtime.Module
        In order of the imports, each once.
    """
    return [module for module in imported_modules(lib) if module.type_key == "dnnl_json"]


def primitives(runner, function, repeat):
    """Time the oneDNN primitives of a model, those of all its partitions in their order.

    Parameters
    ----------
    runner : Runner
        A model that was run.
    function : str
        ``"measure_primitives"`` for each alone and hot, ``"profile_primitives"`` for each in its
        turn.
    repeat : int
        How many times each is run.

    Returns
    -------
    list of dict
    """
    return [
        row
        for module in dnnl_modules(runner)
        for row in json.loads(module.get_function(function)(repeat))
    ]


def _plans_of_c_source(path):
    """Return a plan for each partition of a library of C source: its ops' plans in one."""
    plans_ = {}
    for op in json.loads(tvm.get_global_func("runtime.contrib.dnnl.get_op_plans")(path)):
        plan = plans_.setdefault(op["symbol"], {"symbol": op["symbol"], "primitives": []})
        plan["primitives"] += op["primitives"]
    return list(plans_.values())


def plans(runner):
    """Return the plan of each partition that a Runner has run, as a list of dict.

    Those of C source have the symbol and the primitives only.
    """
    plans_ = [json.loads(module.get_function("get_plan")()) for module in dnnl_modules(runner)]
    path = getattr(runner, "path", None)
    return plans_ + (_plans_of_c_source(path) if path else [])


def imported_modules(lib):
    """Return the modules that a compiled or loaded library consists of, each once.

    Parameters
    ----------
    lib : Runner, factory of an executor, tvm.runtime.vm.Executable or tvm.runtime.Module
        The library.
    """
    for attribute in ("lib", "module", "mod"):
        while not isinstance(lib, tvm.runtime.Module) and hasattr(lib, attribute):
            lib = getattr(lib, attribute)
    modules, stack = [], [lib]
    while stack:
        module = stack.pop()
        if module not in modules:
            modules.append(module)
            stack.extend(reversed(module.imported_modules))
    return modules


def c_sources(lib):
    """Return the texts of the C source that is to be compiled before a library can run."""
    modules = [module for module in imported_modules(lib) if module.type_key == "c"]
    # A model of which nothing is left to TVM may have a C module of an empty statement.
    return [text for text in (module.get_source() for module in modules) if text.strip() != ";"]


def export(lib, path, **options):
    """Write a library of either executor to a file, with the options that its C source needs.

    Parameters
    ----------
    lib : factory of an executor, or tvm.runtime.vm.Executable
        The library.
    path : str or Path
        The file.
    options : dict
        What ``export_library`` takes.
    """
    if c_sources(lib):
        options.setdefault("options", dnnl.c_source_options())
    getattr(lib, "mod", lib).export_library(str(path), **options)


def compiled(lib):
    """Make a library that can run: one with C source is exported and loaded again.

    The compiler is told to be quick. The object file of a text is kept until the process ends, but
    each library has its own file: two models may have the same code and other constants.

    Parameters
    ----------
    lib : factory of an executor, tvm.runtime.vm.Executable or tvm.runtime.Module
        The library. One that was loaded from a file has no C source.

    Returns
    -------
    lib : the same, or tvm.runtime.Module
        What can run.
    path : str or None
        From where it was loaded, if it was; nothing is there any more.
    """
    if not c_sources(lib):
        return lib, None
    with tempfile.TemporaryDirectory(prefix="dnnl_c_source_") as folder:
        path = os.path.join(folder, "lib.so")
        export(lib, path, fcompile=_compile_quickly)
        loaded = tvm.runtime.load_module(path)
    return loaded, path


@functools.cache
def _object_folder():
    folder = tempfile.mkdtemp(prefix="dnnl_objects_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _object_of(source, options):
    """Compile a C file, or take what came out for the same text before."""
    command = [cc.get_cc(), "-O0", "-fPIC", "-c", *[o for o in options if o.startswith("-I")]]
    with open(source, "rb") as file:
        text = file.read()
    key = hashlib.sha256(repr(command).encode() + text).hexdigest()
    path = os.path.join(_object_folder(), f"{key}.o")
    if not os.path.exists(path):
        subprocess.run([*command, source, "-o", path], check=True)
    return path


def _compile_quickly(output, files, options):
    files = [_object_of(name, options) if name.endswith(".c") else name for name in files]
    cc.create_shared(output, files, options)
