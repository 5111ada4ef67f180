# SPDX-License-Identifier: Apache-2.0
"""ONNX models of one recurrent layer on one runtime, in a worker process."""

import logging
import time
from pathlib import Path

import numpy as np

from scripts.bench import measure

# So many seconds of a turn: a runtime that emulates bfloat16 takes long.
BUDGET = 0.2
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def save(path, op, direction, inputs, hidden, layers=1):
    """Write a model of layers, time first with open steps and sequences, for one sequence.

    Parameters
    ----------
    path : str
        The file.
    op, direction : str
        ONNX's op and direction.
    inputs, hidden : int
        The inputs and hidden units.
    layers : int
        How many there are, each of the results of the one before; several of one direction.
    """
    import onnx
    from onnx import helper, numpy_helper

    count, rows, random = 1 + (direction == "bidirectional"), _GATES[op], np.random.default_rng(0)
    attrs = {"linear_before_reset": 1} if op == "GRU" else {}
    attrs.update(hidden_size=hidden, direction=direction)
    nodes, data = [], "X"
    weights = [numpy_helper.from_array(np.array([1]), "axes")] if layers > 1 else []
    for k in range(layers):
        columns = {"W": hidden if k else inputs, "R": hidden, "B": None}
        for name, size in columns.items():
            shape = (count, 2 * rows * hidden) if size is None else (count, rows * hidden, size)
            values = random.uniform(-1, 1, shape) / (size or 2 * rows * hidden) ** 0.5
            weights.append(numpy_helper.from_array(values.astype("float32"), f"{name}{k}"))
        if k:
            nodes.append(helper.make_node("Squeeze", [data, "axes"], [f"X{k}"]))
            data = f"X{k}"
        result = "Y" if k == layers - 1 else f"Y{k}"
        nodes.append(helper.make_node(op, [data, f"W{k}", f"R{k}", f"B{k}"], [result], **attrs))
        data = result
    x = helper.make_tensor_value_info("X", 1, ("steps", 1, inputs))
    y = helper.make_tensor_value_info("Y", 1, ("steps", count, 1, hidden))
    graph = helper.make_graph(nodes, "layer", [x], [y], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def quantize(path, target):
    """Write the model as onnxruntime's `quantize_dynamic` does."""
    from onnxruntime import quantization

    # Advice to run its pre-processing, of which one layer has no need.
    logging.getLogger().setLevel(logging.ERROR)
    quantization.quantize_dynamic(path, target)


def _relax(path, shape, precision, threads):
    import onnx
    import tvm
    import tvm_dnnl
    from tvm import relax

    seconds, model = [time.perf_counter()], onnx.load(path)
    mod = tvm_dnnl.from_onnx(model, shape={"X": list(shape)})
    seconds.append(time.perf_counter())
    mod = tvm_dnnl.partition_for_dnnl(mod, precision=precision)
    seconds.append(time.perf_counter())
    report = tvm_dnnl.offload_report(mod)
    mod = relax.transform.RunCodegen()(mod)
    machine = relax.VirtualMachine(tvm.compile(mod, tvm_dnnl.host_target()), tvm.cpu())
    seconds.append(time.perf_counter())
    facts, main, tensor = _facts(seconds, report), machine["main"], tvm.runtime.tensor

    def prepare(x):
        x = tensor(x)
        return lambda: main(x)

    return prepare, lambda result: result.numpy(), facts


def _relay(path, shape, precision, threads):
    import onnx
    import tvm
    from tvm import relay
    from tvm.contrib import graph_executor
    from tvm.relay.op.contrib import dnnl

    seconds, model = [time.perf_counter()], onnx.load(path)
    mod, params = dnnl.from_onnx(model, shape={"X": list(shape)})
    seconds.append(time.perf_counter())
    mod = dnnl.partition_for_dnnl(mod, params, precision=precision)
    seconds.append(time.perf_counter())
    report = dnnl.offload_report(mod)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, target=dnnl.host_target())
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    seconds.append(time.perf_counter())

    def prepare(x):
        module.set_input("X", x)
        return module.run

    return prepare, lambda _: module.get_output(0).numpy(), _facts(seconds, report)


def _facts(seconds, report):
    names = ("import_s", "partition_s", "build_s")
    facts = dict(zip(names, (float(each) for each in np.diff(seconds))))
    return {**facts, "ops": report.total, "offloaded": report.offloaded}


def _onnxruntime(path, shape, precision, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda x: lambda: session.run(None, {"X": x}), lambda result: result[0], {}


def _openvino(path, shape, precision, threads):
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    model.reshape({"X": list(shape)})
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[precision],
    }
    request = core.compile_model(model, "CPU", settings).create_infer_request()

    def prepare(x):
        return lambda: request.infer({"X": x}, share_inputs=True)

    return prepare, lambda result: np.array(next(iter(result.values()))), {}


_LOADERS = {"relax": _relax, "relay": _relay, "onnxruntime": _onnxruntime, "openvino": _openvino}
_RUNS: dict = {}


def load(key, runtime, path, shape, precision, threads):
    """Load a model for an input; return its output for that, and figures of the preparation."""
    prepare, output, facts = _LOADERS[runtime](path, shape, precision, threads)
    x = np.random.default_rng(1).uniform(-1, 1, shape).astype("float32")
    _RUNS[key] = prepare(x)
    return output(_RUNS[key]()), facts


def sample(key, repeat):
    """Time runs, once the threads of other processes sleep; return seconds."""
    time.sleep(measure.REST)
    return measure.sample(_RUNS[key], repeat, budget=BUDGET)


def folder():
    """Return where the models are."""
    from scripts.layout import ROOT

    path = Path(ROOT) / "build/recurrent"
    path.mkdir(parents=True, exist_ok=True)
    return str(path)
