# SPDX-License-Identifier: Apache-2.0
"""The runtimes that the benchmark compares: one row of a table for each.

A backend prepares a case, which is a model in a precision, and tells how to measure it. To add a
peer, write such a function and add its row.
"""

import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import tvm
from dnnl_tests.models import accuracy, workloads
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from scripts.bench import measure
from scripts.console import passes_noted
from scripts.onnx_model import OnnxModel
from scripts.options import INT8

# So many seconds of a turn of a RestedCase: a runtime that emulates bfloat16 takes long.
BUDGET = 0.2
# By precision: what OpenVINO calls it, as a hint and as a capability of the CPU.
_OPENVINO = {"float32": ("f32", "FP32"), "bfloat16": ("bf16", "BF16"), "float16": ("f16", "FP16")}


class NotMeasured(Exception):
    """A backend does not run a case; the message says why."""


@dataclasses.dataclass
class Prepared:
    """A model that a backend is ready to run: either `sample` or `call` is there.

    `sample` accepts a number of runs and returns so many samples in seconds; `run` accepts inputs
    by name and returns outputs; `call` accepts them and runs the model, for the case to time it.
    `is_default`: whether the backend chooses this precision by itself on this CPU. `facts` are more
    figures of the row. `close` ends what runs the model, once all is measured.
    """

    sample: Callable = None
    run: Callable = None
    is_default: bool = False
    call: Callable = None
    facts: dict = dataclasses.field(default_factory=dict)
    close: Callable = lambda: None


@functools.lru_cache(maxsize=1)
def _expected(workload, threads):
    """Return inputs to compare outputs on, and a model's outputs in float32 by its reference."""
    inputs = accuracy.examples(workload)
    prepare = getattr(workload, "reference", None) or prepare_onnxruntime
    reference = prepare(Case(workload, threads))
    return inputs, [reference.run(each)[0] for each in inputs]


@dataclasses.dataclass(frozen=True)
class OwnFile(workloads.Workload):
    """A file of the user, with any number of inputs.

    `model` draws the inputs. A file that is no ONNX model has a `path`, and a `reference`, which
    prepares what the outputs are compared with.
    """

    model: object = None
    path: str = ""
    reference: Callable = None

    def inputs(self, seed=0):
        """Return random inputs."""
        return self.model.example(seed)


def own_workload(path, shapes):
    """Make a row of an ONNX file and shapes of inputs by name."""
    model = OnnxModel(path, shapes)
    (name, value), *_ = model.example().items()
    return OwnFile(
        name=str(path),
        title=Path(path).name,
        load=model.to_relay,
        input_name=name,
        shape=value.shape,
        onnx_path=lambda: path,
        has_classes=False,
        model=model,
    )


class Case:
    """A workload in a precision on its way through the backends; what they share is made once.

    `cache` is the folder of compiled models, as `dnnl.cached_library` has it. `prune` is an option
    of the plug-in's `partition_for_dnnl`.
    """

    is_open, prune = False, None

    def __init__(self, workload, threads, precision="float32", cache=None):
        self.original = workload
        self.threads = threads
        self.cache = cache
        self.precision = precision
        self.is_int8 = precision in INT8
        self.workload = workload
        if self.is_int8:
            self.workload = workloads.INT8.get(f"{workload.name}-{precision}")
        self.inputs = workload.inputs()

    def check(self):
        """Raise NotMeasured if the model is not to be had in this precision."""
        if self.workload is None:
            raise NotMeasured("there is no recipe for a QDQ model of it")

    def sampler(self, prepared):
        """Return a function that takes a number of runs and samples them."""
        if prepared.sample:
            return prepared.sample
        return functools.partial(measure.sample, lambda: prepared.call(self.inputs))

    def compared(self, prepared):
        """Return the accuracy of what is ready to run, None if it has no outputs."""
        if not prepared.run:
            return None
        inputs, expected = _expected(self.original, self.threads)
        outputs = [prepared.run(each)[0] for each in inputs]
        return accuracy.Accuracy.of(outputs, expected, self.original.has_classes)

    def results(self, result):
        """Return what was measured as one result, or more."""
        return [result]

    @property
    def own_precision(self):
        """The precision of what is not quantized: in a quantized model it stays in float32."""
        return "float32" if self.is_int8 else self.precision

    def compiled(self):
        """Return a library of the model partitioned for oneDNN, or what the cache has, anew."""
        mod, params = self.workload.load()
        precision = self.own_precision
        if not self.cache:
            return testing.build(dnnl.partition_for_dnnl(mod, params, precision=precision), params)
        target, folder = testing.host_target(), self.cache
        # As `testing.build` compiles.
        with tvm.transform.PassContext(opt_level=3):
            path = dnnl.cached_library(
                mod, params, folder=folder, target=target, precision=precision
            )
        return tvm.runtime.load_module(path)

    @functools.cached_property
    def runner(self):
        """The module compiled with DNNL, after its first run."""
        check_onednn(self)
        runner = testing.Runner(self.compiled())
        runner(self.inputs)
        return runner


class RestedCase(Case):
    """A case that is short: it is measured once the threads of other runtimes sleep."""

    def sampler(self, prepared):
        """Return a function that takes a number of runs and samples them."""
        call = prepared.call and functools.partial(prepared.call, self.inputs)

        def rested(repeat):
            time.sleep(measure.REST)
            if not call:
                return prepared.sample(repeat)
            return measure.sample(call, repeat, budget=BUDGET)

        return rested


def check_onednn(case):
    """Raise NotMeasured if oneDNN has no kernels for a case."""
    if not cpu.computes(case.own_precision):
        raise NotMeasured(f"oneDNN has no {case.precision} kernels for this CPU")


def prepare_dnnl(case):
    """Run the whole model on TVM with DNNL."""
    return Prepared(functools.partial(measure.sample, case.runner.invoke), case.runner)


def prepare_limit(case):
    """Run each oneDNN primitive of the model alone and hot, and add up their medians.

    What TVM's own kernels add is not in it, nor what calling them and moving data between the
    primitives costs.
    """
    runner = case.runner

    def sample(repeat):
        primitives = testing.primitives(runner, "measure_primitives", repeat)
        return [sum(primitive["microseconds"] for primitive in primitives) * 1e-6]

    return Prepared(sample)


def onnx_path(case):
    """Return the path of the case's ONNX file."""
    if case.workload.onnx_path is None:
        raise NotMeasured("the model is not there as an ONNX file")
    return case.workload.onnx_path()


def file_path(case):
    """Return the path of the case's file, of whatever kind."""
    return getattr(case.workload, "path", "") or onnx_path(case)


def check_onnxruntime(case):
    """Raise NotMeasured if onnxruntime cannot run a case."""
    if case.precision in ("bfloat16", "float16"):
        raise NotMeasured(f"onnxruntime computes float32 models in {case.precision} on no x86 CPU")


def prepare_onnxruntime(case):
    """Run the same model from its ONNX file, if it has one."""
    check_onnxruntime(case)
    session = workloads.onnx_session(onnx_path(case), case.threads)
    run = functools.partial(session.run, None)
    return Prepared(run=run, call=run)


def compile_openvino(case, hint):
    """Compile a case with OpenVINO, for the shapes of its inputs unless those stay open.

    Return the model, and whether the precision is OpenVINO's own choice. In that it computes what
    is not quantized of a quantized model.
    """
    # Imported here: importing it takes a second, and only this backend needs it.
    import openvino

    core = openvino.Core()
    model = _read_by_openvino(core, file_path(case))
    if not case.is_open:
        model.reshape({name: value.shape for name, value in case.inputs.items()})
    settings = {"PERFORMANCE_HINT": hint, "INFERENCE_NUM_THREADS": case.threads}
    default = core.get_property("CPU", "INFERENCE_PRECISION_HINT").get_type_name()
    is_default = case.is_int8
    if not case.is_int8:
        precision, capability = _OPENVINO[case.precision]
        if capability not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise NotMeasured(f"OpenVINO has no {case.precision} kernels for this CPU")
        is_default = precision == default
        settings["INFERENCE_PRECISION_HINT"] = precision
    try:
        return core.compile_model(model, "CPU", settings), is_default
    except RuntimeError as error:
        # OpenVINO 2026.4 finds no kernel for some signed 8-bit models on a CPU with AMX.
        message = str(error).strip().splitlines()[-1]
        raise NotMeasured(f"OpenVINO does not compile it: {message}") from error


def _read_by_openvino(core, path):
    try:
        return core.read_model(path)
    except RuntimeError as error:
        raise NotMeasured("OpenVINO does not read this kind of file") from error


def prepare_openvino(case):
    """Run the same model from its ONNX file with OpenVINO, one request at a time."""
    model, is_default = compile_openvino(case, "LATENCY")
    request = model.create_infer_request()

    def run(inputs):
        return list(request.infer(inputs).values())

    call = functools.partial(request.infer, share_inputs=True)
    return Prepared(run=run, call=call, is_default=is_default)


def check_tvm(case):
    """Raise NotMeasured if TVM alone does not run a case."""
    if case.precision in ("bfloat16", "float16"):
        raise NotMeasured("TVM alone runs the model as it is")


def prepare_tvm(case):
    """Run the whole model on TVM without DNNL."""
    check_tvm(case)
    runner = testing.Runner(testing.build(*case.workload.load()))
    runner(case.inputs)
    return Prepared(functools.partial(measure.sample, runner.invoke), runner)


@dataclasses.dataclass(frozen=True)
class Backend:
    """A row of the table: what the command line and people call it, and what prepares a Case.

    `prepare` returns a Prepared, or raises NotMeasured.
    """

    name: str
    title: str
    prepare: Callable
    by_default: bool = True


OURS = "dnnl"
_ROWS = (
    Backend(OURS, "DNNL", prepare_dnnl),
    Backend("limit", "primitives alone", prepare_limit),
    Backend("onnxruntime", "onnxruntime", prepare_onnxruntime),
    Backend("openvino", "OpenVINO", prepare_openvino),
    Backend("tvm", "TVM without DNNL", prepare_tvm, by_default=False),
)
BACKENDS = {row.name: row for row in _ROWS}


def measure_cases(cases, backends, repeat, console, beside=contextlib.nullcontext):
    """Measure a model in several precisions, all in turns.

    Parameters
    ----------
    cases : list of Case
        The model in each precision.
    backends : list of Backend
        What runs it.
    repeat : int
        Runs of each.
    console : Console
        Where progress goes.
    beside : callable, optional
        Returns a context to measure in.

    Returns
    -------
    list of dict
        For each precision and backend: the case, the backend, and either "reason" or "rounds" of
        samples, "accuracy", "is_default" and "facts".
    """
    name, results, samplers = cases[0].original.title, [], {}
    with contextlib.ExitStack() as stack:
        for case, backend in itertools.product(cases, backends):
            result = {"case": case, "backend": backend}
            results.append(result)
            with console.step(f"{name}, {case.precision}: prepare {backend.name}"), passes_noted():
                try:
                    case.check()
                    prepared = backend.prepare(case)
                    stack.callback(prepared.close)
                    result["accuracy"] = case.compared(prepared)
                except NotMeasured as error:
                    result["reason"] = str(error)
                    continue
            result.update(is_default=prepared.is_default, facts=prepared.facts)
            samplers[len(results) - 1] = case.sampler(prepared)
        with console.step(f"{name}: measure"), beside():
            for number, rounds in measure.take_turns(samplers, repeat, note=console.note).items():
                results[number]["rounds"] = rounds
    return [each for result in results for each in result["case"].results(result)]
