# SPDX-License-Identifier: Apache-2.0
"""Shows on the console how far TVM's importers and passes are, in steps that take minutes."""

import contextlib
import importlib.util
from unittest import mock

import tvm


@tvm.instrument.pass_instrument
class _Passes:
    """Counts passes as they begin."""

    def __init__(self, console):
        self.console, self.count = console, 0

    def run_before_pass(self, mod, info):  # pylint: disable=unused-argument
        """Show the pass that begins."""
        self.count += 1
        self.console.note(f"{self.count} passes, now {info.name}")


def _onnx_importer():
    """Return TVM's class that converts the nodes of an ONNX file."""
    if importlib.util.find_spec("tvm.relay"):
        from tvm.relay.frontend.onnx import GraphProto

        return GraphProto
    from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

    return ONNXGraphImporter


def _nodes_shown(console):
    """Return a context in which nodes of an ONNX file are noted as TVM converts them."""
    importer = _onnx_importer()
    begin, convert = importer.from_onnx, importer._convert_operator
    count = total = 0

    def from_onnx(self, graph, *args, **kwargs):
        nonlocal count, total
        count, total = 0, len(graph.node)
        return begin(self, graph, *args, **kwargs)

    def convert_operator(self, op_name, *args, **kwargs):
        nonlocal count
        count += 1  # also for the second part of a node, and those of subgraphs
        console.note(f"import {op_name}", min(count, total), total)
        return convert(self, op_name, *args, **kwargs)

    return mock.patch.multiple(importer, from_onnx=from_onnx, _convert_operator=convert_operator)


@contextlib.contextmanager
def shown(console):
    """Note what TVM imports, and the passes that it runs, in this context.

    It is otherwise as the current PassContext.
    """
    now = tvm.transform.PassContext.current()
    with (
        tvm.transform.PassContext(
            opt_level=now.opt_level,
            required_pass=list(now.required_pass),
            disabled_pass=list(now.disabled_pass),
            instruments=[*(now.instruments or []), _Passes(console)],
            config=dict(now.config),
        ),
        _nodes_shown(console),
    ):
        yield
