# SPDX-License-Identifier: Apache-2.0
"""Runs the models of the demo and prints their results."""

import dataclasses

import tvm
from dnnl_tests.models import ocr, workloads
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from scripts import table
from scripts.bench import measure
from scripts.console import passes_noted
from scripts.demo import text_line
from scripts.errors import SetupError
from scripts.options import cpus

# Outputs of the models are probabilities; float32 sums in another order differ by far less.
TOLERANCE = 1e-4
# On a busy machine the timed runs could take minutes.
SECONDS = 10.0


@dataclasses.dataclass
class Result:
    """The results of running one model; `onnx` is None if the model is not an ONNX file."""

    workload: workloads.Workload
    report: dnnl.OffloadReport
    outputs: list
    reference: list
    onnx: list
    timing: measure.Timing

    def differences(self):
        """Return the differences from TVM without DNNL, and from onnxruntime or None."""
        from_onnx = testing.difference(self.outputs, self.onnx) if self.onnx else None
        return testing.difference(self.outputs, self.reference), from_onnx

    def problems(self):
        """Return what is wrong with the result as a list of sentences."""
        problems = []
        title = self.workload.title
        if not self.report.offloaded:
            problems.append(f"{title}: nothing ran on oneDNN")
        peers = ("TVM without DNNL", "onnxruntime")
        for peer, diff in zip(peers, self.differences()):
            if diff and not diff.relative <= TOLERANCE:
                problems.append(
                    f"{title}: differs from {peer} by {diff.relative:.1e} of the largest"
                )
        return problems


def compare(workload, inputs, repeat, console):
    """Compile a model with DNNL and without, run both, and time the first; return the Result."""
    name = workload.name
    with console.step(f"{name}: import"), passes_noted():
        mod, params = workload.load()
    with console.step(f"{name}: partition for oneDNN"), passes_noted():
        partitioned = dnnl.partition_for_dnnl(mod, params)
        report = dnnl.offload_report(partitioned)
    with console.step(f"{name}: compile with DNNL"), passes_noted():
        lib = testing.build(partitioned, params)
    with console.step(f"{name}: run {repeat} times"):
        runner = testing.Runner(lib)
        outputs = runner(inputs)
        timing = measure.Timing.of(measure.sample(runner.invoke, repeat, budget=SECONDS))
    with console.step(f"{name}: compile and run without DNNL"), passes_noted():
        # Level 1 fuses ops. More would take longer to compile; nobody times this one.
        reference = testing.run(mod, inputs, params, opt_level=1)
    onnx = None
    if workload.onnx_path:
        with console.step(f"{name}: run on onnxruntime"):
            session = workloads.onnx_session(workload.onnx_path())
            onnx = session.run(None, inputs)
    return Result(workload, report, outputs, reference, onnx, timing)


def check_models(names):
    """Raise SetupError if the file of an OCR model is missing."""
    try:
        for name in names:
            if name in ocr.MODEL_FILES:
                ocr.model_path(name)
    except FileNotFoundError as error:
        raise SetupError(str(error), "with dev.py: `./dev.py clean`, then run it again.") from error


def run_all(args, line, console):
    """Compile and run the models; return the results and the line as it was recognised."""
    results = []
    for name in args.models:
        if name == "mobilenet":
            workload = workloads.WORKLOADS[name]
            inputs = workload.inputs()
        else:
            width = line.width() if name == "rec" else ocr.CLS_WIDTH
            workload = workloads.ocr(name, width)
            inputs = {workload.input_name: ocr.to_input(line.image, width)}
        result = compare(workload, inputs, args.repeat, console)
        results.append(result)
        if name == "cls" and ocr.is_upside_down(result.outputs[0]):
            line = line.turned()
    return results, line


def print_results(results):
    """Print the table of models."""

    def difference(diff):
        return "-" if diff is None else f"{diff.absolute:.1e} ({diff.relative:.1e})"

    header = ["model", "ops", "folded", "on\noneDNN", "parti-\ntions", "median\nlatency"]
    header += ["difference from\nTVM without DNNL", "difference from\nonnxruntime"]
    rows = []
    for result in results:
        report = result.report
        cells = [result.workload.title, report.total, sum(report.folded.values())]
        cells += [report.offloaded, report.partitions, f"{result.timing.median:.2f} ms"]
        rows.append([*cells, *map(difference, result.differences())])
    print(table.render(header, rows))
    print("differences: the largest of all outputs, and in brackets relative to the largest output")


def print_reading(line, result):
    """Print what each runtime read from a line; return the texts."""
    classes = ocr.characters()
    outputs = {"oneDNN": result.outputs, "TVM without DNNL": result.reference}
    outputs["onnxruntime"] = result.onnx
    texts = {name: ocr.decode(own[0], classes) for name, own in outputs.items()}
    print(f"\ntext read from the line ({line.source}):")
    cells = [[name, text, f"{confidence:.1%}"] for name, (text, confidence) in texts.items()]
    print(table.render(["by", "text", "confidence"], cells, left=2))
    return {text for text, _ in texts.values()}


def main(args, console):
    """Run the models; return what is wrong with the results as a list of sentences."""
    line = text_line.read(args.image) if args.image is not None else text_line.draw(args.text)
    check_models(args.models)
    note = measure.busy_note()
    results, line = run_all(args, line, console)
    problems = [problem for result in results for problem in result.problems()]
    target = testing.host_target()
    print(f"\noneDNN {dnnl.dnnl_version()}, TVM {tvm.__version__}, {target}, {cpus()} CPUs")
    print(f"{note}\n" if note else "")
    print_results(results)
    for result in results:
        if result.workload.name == "rec" and len(print_reading(line, result)) > 1:
            problems.append("the texts differ")
    return problems
