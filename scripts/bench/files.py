# SPDX-License-Identifier: Apache-2.0
"""TFLite models and programs of PyTorch as files: their inputs, and the runtimes beside ours.

Outputs are compared with those of the runtime that the file was written for, if it is installed.
"""

import dataclasses
from pathlib import Path

from scripts.bench import peers, relax
from scripts.bench.worker import Worker
from scripts.layout import PluginLayout
from scripts.onnx_model import random_inputs

# By suffix: the rows that are measured beside ours when none is named, the reference first.
PEERS = {".tflite": ("litert", "openvino"), ".pt2": ("pytorch",)}
TITLES = {"litert": "LiteRT", "pytorch": "PyTorch, eager"}


@dataclasses.dataclass(eq=False)
class Inputs:
    """The inputs of a file, as Relax imports it: shapes and types by name."""

    types: dict

    def example(self, seed=0):
        """Return random inputs by name: floats in [-1, 1], and integers of 0 and 1."""
        return random_inputs(self.types, seed)


def workload(path, shapes, runtime=None):
    """Return a file as a row of the benchmark; the plug-in tells its inputs."""
    with relax.worker() as worker:
        types = worker.ask("inputs", str(path), dict(shapes))
    name, (shape, _) = next(iter(types.items()), ("", ((), None)))
    return peers.OwnFile(
        name=str(path),
        title=Path(path).name,
        load=_not_by_relay,
        input_name=name,
        shape=shape,
        has_classes=False,
        model=Inputs(types),
        path=str(path),
        reference=runtime and runtime.reference,
    )


def _not_by_relay():
    raise peers.NotMeasured("Relay imports ONNX models only")


class Runtime:
    """The runtime that a file was written for, in a process of its own."""

    def __init__(self, worker):
        self.worker = worker

    def prepare(self, case):
        """Load the file of a case."""
        if case.precision != "float32":
            raise peers.NotMeasured("this runtime computes in the precision of the file")
        words = peers.file_path(case), case.threads, case.inputs
        reason = self.worker.ask("load", *words)
        if reason:
            raise peers.NotMeasured(reason)
        return peers.Prepared(
            lambda repeat: self.worker.ask("sample", case.inputs, repeat),
            lambda inputs: self.worker.ask("run", inputs),
        )

    def reference(self, case):
        """Load what outputs are compared with: OpenVINO where the runtime is not installed."""
        try:
            return self.prepare(case)
        except peers.NotMeasured:
            return peers.prepare_openvino(case)

    def backends(self):
        """Return the runtimes as rows of `peers`."""
        return {name: peers.Backend(name, title, self.prepare) for name, title in TITLES.items()}


def worker():
    """Start the process of the runtimes."""
    return Worker(PluginLayout(), "scripts.bench.file_runtimes")
