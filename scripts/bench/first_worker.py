# SPDX-License-Identifier: Apache-2.0
"""The first answer of one runtime, in a fresh process that prints the seconds of each stage.

Only the standard library is imported here: the rest is part of what is measured.
"""

import importlib
import json
import sys
import time

# What a process does until its first answer, in order.
STAGES = ("start", "import", "load", "first run")


def _opened_by(module, function, arguments):
    """Return a runtime whose model a function of the backend opens.

    Parameters
    ----------
    module, function : str
        The function, which is part of the import.
    arguments : callable
        Returns its arguments for paths, shapes and constants.
    """

    def runtime(paths, inputs, _, constants):
        open_model = getattr(importlib.import_module(module), function)
        yield "import"
        model = open_model(**arguments(paths, _shapes(inputs), constants))
        yield "load"
        model(**_variable(inputs, constants))
        yield "first run"

    return runtime


def _relay_library(paths, inputs, _, constants):
    # Not `dnnl.load_model`: importing tvm.relay takes longer than all of this.
    import tvm
    from tvm.contrib import graph_executor

    yield "import"
    library = tvm.runtime.load_module(paths["relay-library"])
    model = graph_executor.GraphModule(library["default"](tvm.cpu()))
    yield "load"
    model.run(**_variable(inputs, constants))
    for index in range(model.get_num_outputs()):
        model.get_output(index).numpy()
    yield "first run"


def _onnxruntime(paths, inputs, threads, _):
    import onnxruntime

    yield "import"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        paths["onnx"], options, providers=["CPUExecutionProvider"]
    )
    yield "load"
    session.run(None, inputs)
    yield "first run"


def _openvino(paths, inputs, threads, _, cache=None):
    import openvino

    yield "import"
    core = openvino.Core()
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        **({"CACHE_DIR": cache} if cache else {}),
    }
    model = core.read_model(paths["onnx"])
    model.reshape(_shapes(inputs))
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    yield "load"
    request.infer(inputs, share_inputs=True)
    yield "first run"


def _openvino_cache(paths, inputs, threads, constants):
    return _openvino(paths, inputs, threads, constants, paths["openvino-cache"])


_RELAX, _RELAY = "tvm_dnnl", "tvm.relay.op.contrib.dnnl"


def _file(paths, shapes, constants):
    return {"model": paths["onnx"], "shape": shapes, "constants": constants}


RUNTIMES = {
    "relax-library": _opened_by(
        _RELAX, "load_model", lambda paths, *_: {"path": paths["relax-library"]}
    ),
    "relax-cache": _opened_by(
        _RELAX,
        "cached_model",
        lambda paths, shapes, constants: {
            **dict(path=paths["onnx"], folder=paths["relax-cache"]),
            **dict(shape=shapes, constants=constants),
        },
    ),
    "relax-file": _opened_by(_RELAX, "compile", _file),
    "relay-library": _relay_library,
    "relay-file": _opened_by(_RELAY, "compile", _file),
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "openvino-cache": _openvino_cache,
}


def _shapes(inputs):
    return {name: value.shape for name, value in inputs.items()}


def _variable(inputs, constants):
    """Return the inputs that a model still has after some were made constants."""
    return {name: value for name, value in inputs.items() if name not in constants}


# The backend that writes the file which a runtime loads.
EXPORTS = {"relax-library": _RELAX, "relay-library": _RELAY}


def main(begin, name, paths, threads, constants):
    """Run a runtime once; return seconds and CPU time by stage, and the memory.

    Parameters
    ----------
    begin : float
        When the process was started, by the monotonic clock.
    name : str
        The runtime.
    paths : dict of str to str
        The files: "onnx", "inputs", and what `EXPORTS` writes by the runtime's name.
    threads : int
        Threads of a run.
    constants : dict of str to number
        Values of inputs that our runtimes compile as constants; the others are given them.
    """
    last = time.monotonic(), time.process_time()
    seconds, cpu = {"start": last[0] - begin}, {"start": last[1]}
    # All runtimes import it.
    import numpy as np

    before = time.monotonic(), time.process_time()
    with np.load(paths["inputs"]) as file:
        inputs = dict(file)
    now = time.monotonic(), time.process_time()
    last = [each + end - start for each, start, end in zip(last, before, now)]
    for stage in RUNTIMES[name](paths, inputs, threads, constants):
        now = time.monotonic(), time.process_time()
        seconds[stage], cpu[stage] = (end - start for end, start in zip(now, last))
        last = now
    # Here: what is measured must not find it imported.
    from scripts.bench.measure import peak_megabytes

    return {"seconds": seconds, "cpu": cpu, "peak_mb": peak_megabytes()}


def export(name, paths, constants):
    """Write the file that a runtime loads."""
    import numpy as np

    with np.load(paths["inputs"]) as file:
        shapes = _shapes(dict(file))
    backend = importlib.import_module(EXPORTS[name])
    backend.compile(**_file(paths, shapes, constants)).export_library(paths[name])


if __name__ == "__main__":
    what, *words = json.loads(sys.argv[1])
    print(json.dumps(export(*words) if what == "export" else main(*words)))
