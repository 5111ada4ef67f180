# SPDX-License-Identifier: Apache-2.0
"""The plug-in for Relax as a runtime of the benchmark, beside Relay and others.

Relax runs in a process of its own, see `relax_models`; the others in this one. All take turns.
"""

import functools

from tvm.testing import dnnl as testing

from scripts.bench import peers
from scripts.bench.worker import Worker
from scripts.layout import PluginLayout

MODELS = ("mobilenet_v2", "resnet50", "bert", "vit")
OURS, ALONE, STATIC = "relax", "relax-tvm", "relax-static"
# The other runtimes that are measured when none is named.
PEERS = ("dnnl", "openvino", "onnxruntime")


def worker():
    """Start the plug-in's process."""
    return Worker(PluginLayout(), "scripts.bench.relax_models")


def host_cpu():
    """Return the name of this CPU that Relay's LLVM compiles for, and Relax's knows, too."""
    return str(testing.host_target().attrs["mcpu"])


class Relax:
    """Models in the plug-in's process."""

    def __init__(self, worker):
        self.worker = worker

    def _load(self, key, case, inputs, precision):
        """Compile a case for the shapes of inputs; without inputs, for those of its file."""
        shapes = {name: value.shape for name, value in inputs.items()}
        words = peers.file_path(case), shapes, host_cpu(), precision, (), case.prune
        return self.worker.ask("load", key, *words)

    def prepare(self, case):
        """Compile a case with oneDNN."""
        if case.is_open:
            return self.prepare_open(case)
        peers.check_onednn(case)
        key = case.precision
        facts = self._load(key, case, case.inputs, case.own_precision)

        def sample(repeat):
            return [seconds for (seconds,) in self.worker.ask("sample", [run], repeat, 3)]

        run = (key, case.inputs)
        return peers.Prepared(sample, lambda x: self.worker.ask("run", key, x), facts=facts)

    def prepare_alone(self, case):
        """Compile a case with TVM's Relax alone, which is slow: it is run once in each turn."""
        peers.check_tvm(case)
        key = f"{case.precision} alone"
        self._load(key, case, case.inputs, None)

        def sample(repeat):
            return list(self.worker.ask("sample", [(key, case.inputs)], 1, 0)[0])

        return peers.Prepared(sample)

    def prepare_open(self, case, is_static=False):
        """Compile a case with open dimensions, or for one shape after the other."""
        peers.check_onednn(case)
        keys, rows = {}, []
        for number, inputs in enumerate(case.inputs):
            shape = inputs[case.name].shape
            if is_static or number == 0:
                key = f"{case.precision} {number if is_static else 'open'}"
                facts = self._load(key, case, inputs if is_static else {}, case.own_precision)
                seconds = self.worker.ask("first", key, [inputs] if is_static else case.inputs)
                rows += [{"first_ms": 1e3 * first, **facts} for first in seconds]
            keys[shape] = key

        def run(inputs):
            return self.worker.ask("run", keys[inputs[case.name].shape], inputs)

        def sample(repeat):
            return self.worker.ask("sample", list(zip(keys.values(), case.inputs)), repeat, 1)

        return peers.Prepared(
            sample, run, facts={name: [row[name] for row in rows] for name in rows[0]}
        )

    def backends(self):
        """Return Relax as rows of `peers`."""
        static = functools.partial(self.prepare_open, is_static=True)
        rows = (
            peers.Backend(OURS, "Relax", self.prepare),
            peers.Backend(ALONE, "TVM's Relax alone", self.prepare_alone),
            peers.Backend(STATIC, "Relax, one shape", static),
        )
        return {row.name: row for row in rows}
