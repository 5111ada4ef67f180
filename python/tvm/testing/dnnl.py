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

import collections
import os
import subprocess
import sys
import tempfile

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor
from tvm.relay.backend import Executor
from tvm.relay.backend.executor_factory import AOTExecutorFactoryModule
from tvm.relay.op.contrib.dnnl import host_target
from tvm.runtime import vm as vm_runtime
from tvm.runtime.executor import AotModule

# Some of these are for those who import this module.
from .dnnl_c_source import c_sources, compiled, export, imported_modules  # noqa: F401
from .dnnl_offload import Offload, offload  # noqa: F401
from .dnnl_plans import dnnl_modules, plans, primitives  # noqa: F401


def build(mod, params=None, *, executor="graph", target=None, opt_level=3, codegen=None):
    """Compile a module for the host.

    Parameters
    ----------
    mod : tvm.IRModule
        The module, partitioned for DNNL or not.
    params : dict of str to array, optional
        Values to bind to parameters of ``main``.
    executor : str
        ``"graph"``, ``"vm"`` or ``"aot"``. AOT runs no partition of the JSON codegen.
    target : tvm.target.Target, optional
        Default: :py:func:`tvm.relay.op.contrib.dnnl.host_target`.
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
    with tvm.transform.PassContext(opt_level=opt_level, config=config):
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
        """Copy the inputs (dict of str to array) into the executor."""
        if self.executor == "vm":
            self._vm.set_input("main", **{k: tvm.nd.array(v) for k, v in inputs.items()})
        else:
            self._graph.set_input(**inputs)

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
    options : dict, optional
        Options of ``partition_for_dnnl``.

    Returns
    -------
    tvm.IRModule
        The partitioned module.
    """
    # Imported here so that the helpers above also serve a TVM that has no DNNL policy.
    from tvm.relay.op.contrib import dnnl  # pylint: disable=import-outside-toplevel

    executors, reference = kw.pop("executors", ("graph",)), kw.pop("reference", None)
    partitioned = dnnl.partition_for_dnnl(mod, params, **kw.pop("options", {}))
    assert not kw, f"unknown arguments {sorted(kw)}"
    found = offload(partitioned)
    where = f"\n{found}\n{partitioned}"
    assert found.partitions > 0 or partitions == 0, f"nothing was offloaded{where}"
    assert partitions in (None, found.partitions), f"expected {partitions} partitions{where}"
    if composites is not None:
        assert found.composites == dict(composites), f"expected composites {composites}{where}"
    for name, count in (ops or {}).items():
        assert found.ops[name] >= count, f"expected {count} {name} on DNNL{where}"
    if reference is None:
        # Fusion is all that a reference needs; level 3 takes three times as long to compile.
        reference = run(mod, inputs, params, executor=executors[0], opt_level=1)
    for executor in executors:
        assert_close(run(partitioned, inputs, params, executor=executor), reference, rtol)
    return partitioned
