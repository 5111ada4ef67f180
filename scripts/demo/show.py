# SPDX-License-Identifier: Apache-2.0
"""Runs the demo: models are run and their results printed, or those that it saved."""

import dataclasses

import tvm
from dnnl_tests.models import ocr, workloads
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from scripts import table
from scripts.bench import measure
from scripts.demo import saved, text_line
from scripts.errors import SetupError
from scripts.options import cpus
from scripts.passes import shown

# Outputs of the models are probabilities; float32 sums in another order differ by far less.
TOLERANCE = 1e-4
# On a busy machine the timed runs could take minutes.
SECONDS = 10.0


@dataclasses.dataclass
class Result:
    """The results of running one model.

    Attributes
    ----------
    workload : dnnl_tests.models.workloads.Workload
        The model.
    inputs : dict of str to numpy.ndarray
        What it ran on.
    report : tvm.relay.op.contrib.dnnl.OffloadReport
        What runs on oneDNN.
    lib : GraphExecutorFactoryModule
        The compiled library.
    outputs, reference, onnx : list of numpy.ndarray
        Of oneDNN, of TVM without DNNL, of onnxruntime (None if the model is not an ONNX file).
    timing : scripts.bench.measure.Timing
        Of one run on oneDNN.
    """

    workload: workloads.Workload
    inputs: dict
    report: dnnl.OffloadReport
    lib: object
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
    """Compile a model with DNNL and without, run both, and time the first.

    Parameters
    ----------
    workload : dnnl_tests.models.workloads.Workload
        The model.
    inputs : dict of str to numpy.ndarray
        Its inputs.
    repeat : int
        How many runs are timed.
    console : scripts.console.Console
        Shows the steps.

    Returns
    -------
    Result
        All that was seen.
    """
    name = workload.name
    with console.step(f"{name}: import"), shown(console):
        mod, params = workload.load()
    with console.step(f"{name}: partition for oneDNN"), shown(console):
        partitioned = dnnl.partition_for_dnnl(mod, params)
        report = dnnl.offload_report(partitioned)
    with console.step(f"{name}: compile with DNNL"), shown(console):
        lib = testing.build(partitioned, params)
    with console.step(f"{name}: run {repeat} times"):
        runner = testing.Runner(lib)
        outputs = runner(inputs)
        timing = measure.Timing.of(measure.sample(runner.invoke, repeat, budget=SECONDS))
    with console.step(f"{name}: compile and run without DNNL"), shown(console):
        # Level 1 fuses ops. More would take longer to compile; nobody times this one.
        reference = testing.run(mod, inputs, params, opt_level=1)
    onnx = None
    if workload.onnx_path:
        with console.step(f"{name}: run on onnxruntime"):
            session = workloads.onnx_session(workload.onnx_path())
            onnx = session.run(None, inputs)
    return Result(workload, inputs, report, lib, outputs, reference, onnx, timing)


def get_line(args):
    """Return the line of text that the command line names, or None."""
    if args.image is not None:
        return text_line.read(args.image)
    if args.text is not None:
        return text_line.draw(args.text, args.font)
    return None


def print_heading(note):
    """Describe the versions and the machine; `note` tells if it was busy."""
    print(
        f"\noneDNN {dnnl.dnnl_version()}, TVM {tvm.__version__}, {testing.host_target()}, "
        f"{cpus()} CPUs"
    )
    print(f"{note}\n" if note else "")


def difference(diff):
    """Format a difference, which may be None."""
    return "-" if diff is None else f"{diff.absolute:.1e} ({diff.relative:.1e})"


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
    header = ["model", "ops", "folded", "on\noneDNN", "parti-\ntions", "median\nlatency"]
    header += ["difference from\nTVM without DNNL", "difference from\nonnxruntime"]
    rows = []
    for result in results:
        report = result.report
        rows.append(
            [
                result.workload.title,
                report.total,
                sum(report.folded.values()),
                report.offloaded,
                report.partitions,
                f"{result.timing.median:.2f} ms",
                *map(difference, result.differences()),
            ]
        )
    print(table.render(header, rows))
    print("differences: the largest of all outputs, and in brackets relative to the largest output")


def print_reading(line, readers):
    """Print what each reader, a dict of name to outputs, read from a line; return the texts."""
    print(f"\ntext read from the line ({line.source}):")
    texts = {name: text_line.reading(*args) for name, args in readers.items()}
    print(table.render(["by", "text", "confidence"], [[n, *t] for n, t in texts.items()], left=2))
    return {text for text, _ in texts.values()}


def compile_and_run(args, console):
    """Do the main job; return what is wrong with the results as a list of sentences."""
    line = get_line(args)
    check_models(args.models)
    if args.save:
        saved.check_target(args.save)
    note = measure.busy_note()
    results, line = run_all(args, line, console)
    problems = [problem for result in results for problem in result.problems()]
    if args.save:
        with console.step("export the libraries"):
            saved.save(args.save, results, line.image)
    print_heading(note)
    print_results(results)
    for result in results:
        if result.workload.name == "rec":
            classes = ocr.characters()
            outputs = {
                "oneDNN": result.outputs,
                "TVM without DNNL": result.reference,
                "onnxruntime": result.onnx,
            }
            texts = print_reading(line, {name: (x, classes) for name, x in outputs.items()})
            if len(texts) > 1:
                problems.append("the texts differ")
    if args.report:
        for result in results:
            print(f"\n{result.workload.title}\n{result.report}")
    if args.save:
        print(f"\nsaved; run it again with: ./dev.py demo --load {args.save}")
    return problems


def load_and_run(args, console):
    """Run saved libraries; return what is wrong with the results as a list of sentences."""
    index = saved.read_index(args.load)
    wanted = args.models
    entries = [model for model in index["models"] if model["name"] in wanted]
    if not entries:
        raise SetupError(
            f"--load: {args.load} has none of {', '.join(wanted)}",
            f"it has {', '.join(model['name'] for model in index['models'])}.",
        )
    line = get_line(args)
    if index["target"] != str(testing.host_target()):
        console.say(
            f"note: compiled for {index['target']}, this host is {testing.host_target()}; "
            "if it stops at an illegal instruction, save it again here"
        )
    note = measure.busy_note()
    rows, problems, read = [], [], None
    for entry in entries:
        with console.step(f"{entry['name']}: load and run {args.repeat} times"):
            model = saved.Saved(args.load, entry)
            outputs, diff = model.check()
            if line is not None and model.name != "mobilenet":
                inputs = ocr.to_input(line.image, model.shape[3])
                outputs = model.runner({model.input_name: inputs})
            samples = measure.sample(model.runner.invoke, args.repeat, budget=SECONDS)
            timing = measure.Timing.of(samples)
        if line is not None and model.name == "cls" and ocr.is_upside_down(outputs[0]):
            line = line.turned()
        if model.name == "rec":
            read = outputs
        if not diff.relative <= TOLERANCE or model.partitions != entry["partitions"]:
            problems.append(f"{model.title}: not the same as when it was saved")
        rows.append([model.title, model.partitions, f"{timing.median:.2f} ms", difference(diff)])
    print_heading(note)
    header = ["model", "partitions", "median\nlatency", "difference from\nthe saved outputs"]
    print(table.render(header, rows))
    if read is not None:
        if line is None:
            line = text_line.read(f"{args.load}/line.png")
        print_reading(line, {"oneDNN": (read, index["classes"])})
    return problems
