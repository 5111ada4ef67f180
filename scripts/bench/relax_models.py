# SPDX-License-Identifier: Apache-2.0
"""Models on Relax and the plug-in, in a worker process that keeps them by their keys."""

import json
import time

import tvm
import tvm_dnnl
from tvm import relax

from scripts import options
from scripts.bench import measure
from scripts.errors import SetupError
from scripts.onnx_model import OnnxModel, relax_module


class Model:
    """The model of a file, compiled for Relax's virtual machine.

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
    constants : dict of str to number
        Values of inputs that are constants of the compiled model.
    prune : bool or None
        As `partition_for_dnnl` has it.
    """

    def __init__(self, path, shapes, cpu, precision, constants=(), prune=None):
        seconds, self.facts = [time.perf_counter()], {}
        if options.is_onnx(path):
            model = OnnxModel(path, shapes, constants)
            self._names = [name for name in model.shapes if name not in model.constants]
            mod = model.to_relax()
        else:
            mod = _module(path, shapes)
            self._names = [param.name for param in mod["main"].params]
        seconds.append(time.perf_counter())
        if precision is None:
            mod = relax.get_pipeline("zero")(mod)
        else:
            mod = tvm_dnnl.partition_for_dnnl(mod, precision=precision, prune=prune)
            report = tvm_dnnl.offload_report(mod)
            for name in ("total", "offloaded", "partitions"):
                self.facts[name] = getattr(report, name)
            self.told = {"reasons": report.reasons, "report": str(report)}
            seconds.append(time.perf_counter())
            mod = relax.transform.RunCodegen()(mod)
        target = tvm.target.Target({"kind": "llvm", "mcpu": cpu})
        # Linked, as TVM does before it runs C: the partitions are others then.
        linked = tvm.compile(mod, target).jit()
        if precision is not None:
            self.facts["stages"] = measure.stages([*seconds, time.perf_counter()])
        self.partitions = list(_imported(linked, "dnnl_json"))
        measure.forget_primitives()
        begin = time.perf_counter()
        machine = relax.VirtualMachine(linked, tvm.cpu())
        self.load_seconds = time.perf_counter() - begin
        self._main, self._tensor = machine["main"], tvm.runtime.tensor

    def call(self, inputs):
        """Return a function that runs the model on inputs by name."""
        tensors = [self._tensor(inputs[name]) for name in self._names]
        return lambda: self._main(*tensors)


def _imported(module, kind):
    """Yield the modules of a kind that a module has."""
    if module.kind == kind:
        yield module
    for each in module.imports:
        yield from _imported(each, kind)


_MODELS: dict[str, Model] = {}


def versions():
    """Return the versions of TVM and oneDNN."""
    return {"tvm": tvm.__version__, "onednn": tvm_dnnl.dnnl_version()}


def inputs(path, shapes):
    """Return the shape and the type of each input of a TFLite model or a program of PyTorch."""
    types = {param.name: param.ty for param in _module(path, shapes)["main"].params}
    for name in shapes:
        if name not in types:
            known = ", ".join(types)
            raise SetupError(f"--shape: the model has no input {name}", f"its inputs are {known}.")
    return {
        name: (shapes.get(name) or _sizes(name, each), str(each.dtype))
        for name, each in types.items()
    }


def _module(path, shapes):
    """Import such a file; a program has its shapes, of which some sizes may be open."""
    return relax_module(path, shapes if path.endswith(".tflite") else ())


def _sizes(name, tensor):
    sizes = tensor.shape.values
    if not all(isinstance(size, tvm.tirx.IntImm) for size in sizes):
        known = ",".join(str(size.value if hasattr(size, "value") else size) for size in sizes)
        raise SetupError(
            f"input {name} has no fixed shape", f"give --shape {name}={known} with numbers."
        )
    return tuple(map(int, sizes))


def load(key, *words):
    """Make a Model; return its facts."""
    _MODELS[key] = Model(*words)
    return _MODELS[key].facts


def told(key):
    """Return why ops of a model stay on TVM, and its report."""
    return _MODELS[key].told


def run(key, inputs):
    """Run a model once; return the outputs."""
    result = _MODELS[key].call(inputs)()
    return [each.numpy() for each in (result if hasattr(result, "__len__") else [result])]


def first(key, inputs):
    """Return the seconds of each input's first run, that of the first with the loading."""
    seconds = [measure.sample(_MODELS[key].call(each), 1, warmup=0)[0] for each in inputs]
    return [seconds[0] + _MODELS[key].load_seconds, *seconds[1:]]


def primitives(key, function, repeat):
    """Time the primitives of a model that was run, as `tvm.testing.dnnl.primitives` does."""
    rows = (each[function](repeat) for each in _MODELS[key].partitions)
    return [row for text in rows for row in json.loads(text)]


def sample(runs, repeat, warmup):
    """Time rounds of runs, once the threads of other processes sleep.

    A run is the key of a model with inputs by name. Return the seconds of each run of each round.
    """
    calls = [_MODELS[key].call(inputs) for key, inputs in runs]
    time.sleep(measure.REST)
    seconds = measure.sample_rounds(calls, repeat, warmup)
    time.sleep(measure.REST)
    return seconds
