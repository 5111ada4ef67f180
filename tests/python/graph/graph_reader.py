# SPDX-License-Identifier: Apache-2.0
"""Builds graphs by hand, as a reader would."""

from types import SimpleNamespace

import numpy as np
from tvm.contrib.onednn.ir.graph import Graph
from tvm.contrib.onednn.ir.node import CALL, FIELD, INPUT, NATIVE, TUPLE, Node, constant
from tvm.contrib.onednn.ir.op import infer
from tvm.contrib.onednn.ir.op_view import NoTensor, Tensor


class Reader:
    """Appends nodes to a graph.

    Attributes
    ----------
    graph : Graph
        The graph so far.
    """

    def __init__(self):
        self.graph = Graph()

    def input(self, *dims, dtype="float32"):
        return self._append(INPUT, (), Tensor(dims, dtype))

    def constant(self, values, dtype="float32"):
        return self.graph.append(constant(np.asarray(values), dtype))

    def call(self, op, *operands, origin=None, type_=None, **attrs):
        namespace = SimpleNamespace(**attrs)
        type_ = type_ or infer(op, [operand.type for operand in operands], namespace)
        return self.graph.append(Node(CALL, op, operands, type_, namespace), origin)

    def tuple(self, *operands):
        return self._append(TUPLE, operands, tuple(operand.type for operand in operands))

    def field(self, operand, index):
        attrs = SimpleNamespace(index=index)
        return self.graph.append(Node(FIELD, None, [operand], operand.type[index], attrs))

    def native(self, *operands):
        return self._append(NATIVE, operands, NoTensor("native"))

    def returns(self, *operands):
        """Append the node that returns values; it returns the graph."""
        self._append(NATIVE, operands, NoTensor("return"))
        self.graph.verify()
        return self.graph

    def _append(self, kind, operands, type_):
        return self.graph.append(Node(kind, None, operands, type_))


def ops(graph):
    """Return the ops of the calls in order."""
    return [node.name for node in graph.nodes if node.kind == CALL]


def rewritten(rewrite, graph, rules):
    """Rewrite a graph, and return the ops of its calls."""
    rewrite(graph, rules)
    graph.sort()
    graph.verify()
    return ops(graph)


def text(graph):
    """Write a graph on lines."""
    return [str(node) for node in graph.nodes]
