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
"""A process with Relax and the plug-in, which runs models for one that has TVM with Relay.

Two TVMs cannot be in one process. The other one asks over a pipe: load a model, run it, give me so
many samples. While it does not ask, this process waits for it, and its threads sleep.
"""

import json
import multiprocessing.connection
import signal
import subprocess
import sys
import time
import traceback

from scripts.bench import measure
from scripts.errors import SetupError
from scripts.onnx_model import OnnxModel

# Threads wait for more work in a loop before they sleep: oneDNN's for some 4 ms behind a run.
REST = 0.05


class Model:
    """An ONNX model, compiled for Relax's virtual machine.

    Parameters
    ----------
    path : str
        The file.
    shapes : dict of str to tuple of int
        Shapes of inputs; those of others, and what is open, are as in the file.
    cpu : str
        The CPU that LLVM compiles for.
    precision : str or None
        What oneDNN computes in; None for TVM without oneDNN.

    Attributes
    ----------
    facts : dict of str to int
        The ops, those on oneDNN, and the partitions.
    load_seconds : float
        What it took to load the compiled model, with no primitive of oneDNN in its cache.
    """

    def __init__(self, path, shapes, cpu, precision):
        import tvm
        import tvm_dnnl
        from tvm import relax

        model = OnnxModel(path, shapes)
        self._names = list(model.shapes)
        self.facts = {}
        mod = model.to_relax()
        if precision is None:
            mod = relax.get_pipeline("zero")(mod)
        else:
            mod = tvm_dnnl.partition_for_dnnl(mod, precision=precision)
            report = tvm_dnnl.offload_report(mod)
            for name in ("total", "offloaded", "partitions"):
                self.facts[name] = getattr(report, name)
            mod = relax.transform.RunCodegen()(mod)
        target = tvm.target.Target({"kind": "llvm", "mcpu": cpu})
        # Linked, as TVM does before it runs C: the partitions are others then.
        linked = tvm.compile(mod, target).jit()
        self._partitions = list(_imported(linked, "dnnl_json"))
        measure.forget_primitives()
        begin = time.perf_counter()
        machine = relax.VirtualMachine(linked, tvm.cpu())
        self.load_seconds = time.perf_counter() - begin
        self._main, self._tensor = machine["main"], tvm.runtime.tensor

    def call(self, inputs):
        """Return a function that runs the model on inputs by name."""
        tensors = [self._tensor(inputs[name]) for name in self._names]
        return lambda: self._main(*tensors)

    def run(self, inputs):
        """Run the model once; return the outputs."""
        result = self.call(inputs)()
        return [each.numpy() for each in (result if hasattr(result, "__len__") else [result])]

    def first(self, inputs):
        """Return the seconds of each input's first run, that of the first with the loading."""
        seconds = [measure.sample(self.call(each), 1, warmup=0)[0] for each in inputs]
        return [seconds[0] + self.load_seconds, *seconds[1:]]

    def primitives(self, function, repeat):
        """Time the primitives of a model that was run, as `tvm.testing.dnnl.primitives` does."""
        return [row for each in self._partitions for row in json.loads(each[function](repeat))]


def _imported(module, kind):
    """Yield the modules of a kind that a module has."""
    if module.kind == kind:
        yield module
    for each in module.imports:
        yield from _imported(each, kind)


class Answers:
    """The requests that the process answers; others are methods of a model that was loaded."""

    def __init__(self):
        self._models = {}

    def versions(self):
        """Return the versions of TVM and oneDNN."""
        import tvm
        import tvm_dnnl

        return {"tvm": tvm.__version__, "onednn": tvm_dnnl.dnnl_version()}

    def load(self, key, *words):
        """Make a Model; return its facts."""
        self._models[key] = Model(*words)
        return self._models[key].facts

    def sample(self, runs, repeat, warmup):
        """Time rounds of runs, once the threads of other processes sleep.

        Parameters
        ----------
        runs : list of (str, dict)
            The runs of a round: the key of a model and inputs by name.
        repeat, warmup : int
            The rounds that are timed, and those before them.

        Returns
        -------
        list of tuple of float
            The seconds of each run of each round.
        """
        calls = [self._models[key].call(inputs) for key, inputs in runs]
        time.sleep(REST)
        seconds = measure.sample_rounds(calls, repeat, warmup)
        time.sleep(REST)
        return seconds

    def answer(self, what, *words):
        """Answer a request."""
        if hasattr(self, what):
            return getattr(self, what)(*words)
        key, *rest = words
        return getattr(self._models[key], what)(*rest)


class Worker:
    """The process, seen from the one that asks. It ends with the context.

    Parameters
    ----------
    layout : PluginLayout
        Where its environment is.
    """

    def __init__(self, layout):
        # After the set-up: what it imports runs on any Python.
        from scripts.setup.variables import variables

        self._pipe, theirs = multiprocessing.Pipe()
        command = [str(layout.python), "-m", __name__, str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, env=variables(layout), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._pipe.close()
        self._process.wait()

    def ask(self, what, *words):
        """Return what `Answers.answer` returns; raise SetupError with what it raised."""
        try:
            self._pipe.send((what, words))
            failure, answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            code = self._process.wait()
            raise SetupError(f"the process of the plug-in ended with code {code}") from error
        if failure:
            raise SetupError(f"the process of the plug-in failed: {what}", "", failure)
        return answer


def main(descriptor):
    """Answer until the other process closes the pipe."""
    # Ctrl-C is for the process that asks; this one then ends with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers, pipe = Answers(), multiprocessing.connection.Connection(descriptor)
    while True:
        try:
            what, words = pipe.recv()
        except EOFError:
            return
        try:
            answer = None, answers.answer(what, *words)
        except Exception as error:
            last = traceback.format_exception_only(error)
            answer = "".join(last).strip(), None
        pipe.send(answer)


if __name__ == "__main__":
    main(int(sys.argv[1]))
