# SPDX-License-Identifier: Apache-2.0
"""Draws valid nodes of the JSON graph from the rows of the table, for C++ tests to damage.

  python -m scripts.test.drawn_nodes PATH

writes one on each line: some of each op, and each op that can be fused, with roots in float32 and
in 8 bits. tests/cpp-runtime/dnnl/tvm/drawn_ops.h reads the file.
"""

import itertools
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from tvm.contrib.onednn.ir.graph import Graph
from tvm.contrib.onednn.ir.node import CALL, INPUT, TUPLE, Node, constant
from tvm.contrib.onednn.ir.op import attributes_of, infer
from tvm.contrib.onednn.ir.op_view import Tensor
from tvm.contrib.onednn.ops.draw import Draw
from tvm.contrib.onednn.ops.quantize import DEQUANTIZE, QUANTIZE
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.partition.kernel import kernel_of
from tvm.contrib.onednn.partition.units import Units

from scripts.files import write_atomically

# Of each op, and the seeds that are tried for them.
COUNT, TRIES = 1, 200
# The tests run each node some hundred times, damaged.
MOST_ELEMENTS = 4096
# The post-ops of a kernel.
CHAIN = 3
RULES = Rules(TABLE)


class DrawnGraph(Graph):
    """A graph of one kernel, whose operands are drawn.

    Parameters
    ----------
    seed : int
        The seed of all choices; an odd one makes constants of what may be a weight.
    is_int8 : bool
        Whether the operands in float32 are dequantized.
    """

    def __init__(self, seed, is_int8=False):
        super().__init__()
        self.draw, self.seed, self.is_int8 = Draw(seed), seed, is_int8

    def operand(self, value, is_first=False):
        """Add an operand that was drawn: a tensor, or a list of them."""
        if isinstance(value, list):
            fields = [self.operand(each, not k and is_first) for k, each in enumerate(value)]
            return self.append(Node(TUPLE, None, fields, tuple(each.type for each in fields)))
        if self.is_int8 and value.dtype == "float32" and (is_first or value.ndim > 1):
            eight_bits = self.operand((64 * value).astype("int8"), is_first)
            scales = self.scales(3 if is_first else 0)
            return self.add(DEQUANTIZE, [eight_bits, *scales], axis=-1, out_dtype="float32")
        if is_first or (value.shape and self.seed % 2 == 0):
            return self.append(Node(INPUT, "x", [], Tensor(value.shape, str(value.dtype))))
        return self.append(constant(value))

    def scales(self, zero):
        """Add a scale and a zero point."""
        return [self.append(constant(np.float32(0.05))), self.append(constant(np.int32(zero)))]

    def add(self, name, operands, **attrs):
        """Add a call."""
        declared = attributes_of(name, SimpleNamespace(**attrs))
        type_ = infer(name, [each.type for each in operands], declared)
        return self.append(Node(CALL, name, operands, type_, declared))

    def root(self, name):
        """Add a call that the row of an op draws."""
        call = TABLE[name].draw(self.draw)
        operands = [self.operand(value, k == 0) for k, value in enumerate(call.values)]
        return self.add(name, operands, **call.attrs)

    def post_op(self, name, node):
        """Add a call that reads a result and what the row of an op draws for its other operands."""
        dims, (_, *values), attrs = node.type.dims, *TABLE[name].draw(self.draw)
        if name == QUANTIZE:
            return self.add(name, [node, *self.scales(-2)], **{**attrs, "axis": -1})
        if "axis" in attrs:
            attrs["axis"] = self.draw.axis(dims)
        shape = [dims[attrs["axis"]]] if "axis" in attrs else self.draw.broadcast(dims)
        values = [np.ones(shape, "float32") for _ in values]
        return self.add(name, [node, *map(self.operand, values)], **attrs)

    def kernel(self, last):
        """Return the kernel that ends in a node; None if that is not all of the graph."""
        units = Units(self, RULES)
        calls = {each for each in self.nodes if each.is_call}
        is_one = calls <= set(units.members(last)) and not any(map(RULES.refusal, calls))
        return described(kernel_of(units, last), last) if is_one else None


def types_of(types):
    """Return types as the JSON graph has them; None if there are too many elements."""
    shapes = [list(each.dims) for each in types]
    if any(math.prod(shape) > MOST_ELEMENTS for shape in shapes):
        return None
    return {"shape": shapes, "dtype": [each.dtype for each in types]}


def described(kernel, last):
    """Return a kernel and its types."""
    results = last.type if isinstance(last.type, tuple) else (last.type,)
    inputs, outputs = types_of([node.type for node in kernel.inputs]), types_of(results)
    constants = [k for k, node in enumerate(kernel.inputs) if node.is_constant]
    node = json.loads(kernel.node([]).to_json())
    types = {"inputs": inputs, "constants": constants, "outputs": outputs}
    return {**node, **types} if inputs and outputs else None


def first(count, make):
    """Return the first valid nodes that are made from a seed."""
    nodes = (make(seed) for seed in range(TRIES))
    return list(itertools.islice(filter(None, nodes), count))


def single_nodes():
    """Return nodes by name of the op."""

    def make(name, seed):
        graph = DrawnGraph(seed)
        return graph.kernel(graph.root(name))

    return {name: first(COUNT, lambda seed, name=name: make(name, seed)) for name in TABLE}


def fused_nodes():
    """Return nodes by what is fused: each root with the next few of the ops that it fuses."""

    def make(names, is_int8, seed):
        graph = DrawnGraph(seed, is_int8)
        node = graph.root(names[0])
        for name in names[1:]:
            node = graph.post_op(name, node)
        return graph.kernel(node)

    chains, number = {}, 0
    for root in TABLE.values():
        fused = [row.name for row in TABLE.values() if row.post and row.post in root.fuses]
        fused = [name for name in fused if name not in (QUANTIZE, DEQUANTIZE)]
        if not fused or root.post:
            continue
        for is_int8 in (False, True) if root.reads_int8 else (False,):
            names = [fused[(number + k) % len(fused)] for k in range(CHAIN)]
            number += CHAIN
            names = (root.name, *names, *((QUANTIZE,) if is_int8 else ()))
            chains[names] = first(1, lambda seed, a=names, b=is_int8: make(a, b, seed))
    return chains


def main(path):
    """Write the file."""
    nodes = itertools.chain(*single_nodes().values(), *fused_nodes().values())
    lines = dict.fromkeys(json.dumps(node, separators=(",", ":")) for node in nodes)
    write_atomically(Path(path), "".join(f"{line}\n" for line in lines), parents=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
