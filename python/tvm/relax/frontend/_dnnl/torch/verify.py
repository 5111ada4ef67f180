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
"""A program of `torch.export` as the source that a compiled model is verified against."""

from __future__ import annotations

import functools
import operator

import ml_dtypes
import numpy as np
import torch
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._pytree import tree_leaves

from ..backend import EPSILON, Step, bfloat16_array, coarsest, rounded_at_random
from . import program as programs
from .graphs import argument, aten, constants, shape

_USER = OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT
#: Ops whose result is whatever is in memory.
_UNDEFINED = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
_SORTS = aten.sort.default, aten.sort.stable
_PUTS = aten.index_put.default, aten.index_put_.default
_FILLS = aten.copy_.default, aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default
#: Arguments with which an op that may be random is not, by name.
_FIXED = {"train": (False,), "dropout_p": (0, 0.0), "p": (0, 0.0), "dropout": (0, 0.0)}


class ProgramSource:
    """A program with its example inputs; see `tvm.contrib.onednn.verify.check.Source`.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program. It is not modified.
    run : callable
        Compiles a module with a precision, or without oneDNN if that is None, and runs it on
        arrays; returns arrays.
    args : Sequence | None
        The arguments, tensors or arrays; by default the example inputs.
    """

    framework, undefined = "PyTorch", ()

    def __init__(self, program, run, args=None):
        self._program, self._run = program, run
        leaves = tree_leaves(program.example_inputs if args is None else (tuple(args), {}))
        leaves = [to_torch(each) if isinstance(each, np.ndarray) else each for each in leaves]
        self._tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
        self._leaves = leaves
        self.inputs = [*map(to_numpy, self._tensors)]
        dtypes = {node: _dtype(node) for node in program.graph.nodes}
        self.dtype = coarsest(*filter(None, dtypes.values()))
        self.is_discrete = any(
            dtypes[node] not in (None, *EPSILON) and dtypes[each] in EPSILON
            for node in program.graph.nodes
            for each in node.all_input_nodes
        )

    def results(self):
        """See `Source`."""
        return self._values(self._program, iter(self._leaves), _Rounding())

    def rounded(self, epsilon, seed):
        """See `Source`."""
        program, _ = self._prepared
        return self._values(program, iter(self._tensors), _Rounding(epsilon, seed))

    def steps(self):
        """See `Source`."""
        steps = []
        for node in self._nodes.values():
            val = node.meta["val"]
            parent = _op_node(node)
            size = int(np.prod([int(_hint(dim)) for dim in val.shape])) * val.element_size()
            operands = tuple(dict.fromkeys(self._operands(node)))
            steps.append(Step(node.name, str(parent.target), _where(parent), operands, size))
        return steps

    def compiled(self, names, precision):
        """See `Source`."""
        program, values = self._prepared
        nodes = [self._nodes[name] for name in names]
        output = program.graph.output_node()
        old = output.args, program.graph_signature.output_specs[:]
        output.args = (tuple(nodes),)
        specs = [OutputSpec(_USER[0], TensorArgument(node.name), None) for node in nodes]
        program.graph_signature.output_specs[:] = specs
        try:
            mod = programs.translated(program, values)
        finally:
            output.args, program.graph_signature.output_specs[:] = old
        return self._run(mod, precision, self.inputs)

    def values(self, names):
        """See `Source`."""
        program, _ = self._prepared
        run = _Run(program, iter(self._tensors), _Rounding(), {self._nodes[each] for each in names})
        run.results()
        return [to_numpy(run.kept[self._nodes[name]]) for name in names]

    def evaluate(self, step, values, epsilon=0, seed=0):
        """See `Source`."""
        rounding = _Rounding(epsilon, seed)
        known = {name: rounding.of(to_torch(values[name])) for name in step.operands}
        with torch.no_grad():
            return to_numpy(self._value(self._nodes[step.name], known, rounding))

    def opinions(self, step, values):
        """See `Source`."""
        return ()

    def other_results(self):
        """See `Source`."""
        return ()

    @functools.cached_property
    def _prepared(self):
        return programs.prepared(self._program)

    @functools.cached_property
    def _placeholders(self):
        program, _ = self._prepared
        known, inputs = constants(program), iter(self._tensors)
        nodes = program.graph.find_nodes(op="placeholder")
        return {
            node.name: (known[node], True) if node in known else (next(inputs), False)
            for node in nodes
        }

    @functools.cached_property
    def _nodes(self):
        """The nodes that are steps, by name: those with a tensor that is read and not random."""
        program, _ = self._prepared
        random = _random(program)
        return {
            node.name: node
            for node in program.graph.nodes
            if node.op == "call_function"
            and isinstance(node.meta.get("val"), torch.Tensor)
            and node.users
            and node not in random
        }

    def _operands(self, node):
        """Yield the names of the steps that a step reads."""
        for each in node.all_input_nodes:
            if each.name in self._nodes:
                yield each.name
            else:
                yield from self._operands(each)

    def _value(self, node, known, rounding):
        """Return the value of a node for those that are known, and add it to them."""
        if node.name in known:
            return known[node.name]
        if node.op == "placeholder":
            value, is_constant = self._placeholders[node.name]
            value = rounding.of(value, is_constant)
        elif node.op == "get_attr":
            value = getattr(self._prepared[0].graph_module, node.target)
        else:
            args = (node.args, node.kwargs)
            args = torch.fx.map_arg(args, lambda each: self._value(each, known, rounding))
            value = node.target(*args[0], **args[1])
        known[node.name] = value
        return value

    def _values(self, program, inputs, rounding):
        """Run a program; return the results for the user, None for those that are random."""
        random, values = _random(program), []
        results = _Run(program, inputs, rounding).results()
        nodes = program.graph.output_node().args[0]
        for node, value, spec in zip(nodes, results, program.graph_signature.output_specs):
            if spec.kind in _USER and isinstance(value, torch.Tensor):
                values.append(None if node in random else to_numpy(value))
        return values


class _Rounding:
    """Gives tensors a random relative error, as rounding to a type with this spacing."""

    def __init__(self, epsilon=0.0, seed=0):
        self._epsilon, self._rng = epsilon, np.random.default_rng(seed)

    def of(self, value, is_constant=False):
        """Return a value; constants are exact in float32."""
        is_exact = not self._epsilon or (is_constant and self._epsilon <= EPSILON["float32"])
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.of, value))
        if is_exact or not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return to_torch(rounded_at_random(to_numpy(value), self._epsilon, self._rng))


class _Run(torch.fx.Interpreter):
    """Runs the graph of a program."""

    def __init__(self, program, inputs, rounding, keep=()):
        super().__init__(program.graph_module)
        self._keep, self.kept = keep, {}
        self._known, self._inputs, self._rounding = constants(program), inputs, rounding

    def run_node(self, n):
        if n.op == "placeholder":
            if n in self._known:
                return self._rounding.of(self._known[n], is_constant=True)
            return self._rounding.of(_copied(next(self._inputs)))
        value = super().run_node(n)
        if n in self._keep:
            self.kept[n] = value
        return self._rounding.of(value) if n.op == "call_function" else value

    def results(self):
        """Return the results of the graph."""
        with torch.no_grad():
            return self.run(enable_io_processing=False)


def _random(program) -> set:
    """Return the nodes whose values depend on random numbers, or on uninitialized memory."""
    random: set = set()
    for node in program.graph.nodes:
        operands = node.all_input_nodes[_is_overwritten(node) :]
        is_random = any(each in random for each in operands)
        if is_random or (node.op == "call_function" and _is_random(node)):
            random.add(node)
    return random


def _is_overwritten(node) -> bool:
    """Whether an op replaces all elements of its first operand, as one at the places of a sort."""
    if node.target not in _PUTS or argument(node, "accumulate") or len(node.args[1]) != 1:
        return False
    places = node.args[1][0]
    is_permutation = places.target is operator.getitem and places.args[0].target in _SORTS
    return is_permutation and places.args[1] == 1 and shape(places) == shape(node.args[0])


def _is_filled(node) -> bool:
    """Whether all elements of uninitialized memory are assigned before something reads them.

    DeepSeek's keys are so: the parts with and without positions are copied to slices of them.
    """
    ends: dict[int, int] = {}
    for user in node.users:
        if user.target in _FILLS and user.args[0] is node:
            return True
        if user.target is not aten.slice.Tensor or argument(user, "step") != 1:
            return False
        if not any(each.target in _FILLS and each.args[0] is user for each in user.users):
            return False
        dim = argument(user, "dim") % len(shape(node))
        if (argument(user, "start") or 0) != ends.get(dim, 0):
            return False
        ends[dim] = ends.get(dim, 0) + shape(user)[dim]
        if statically_known_true(ends[dim] == shape(node)[dim]):
            return True
    return False


def _is_random(node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return False
    if schema.name.split("::")[-1] in _UNDEFINED:
        return not _is_filled(node)
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    given = {each.name: each.default_value for each in schema.arguments}
    given.update(zip(given, node.args), **node.kwargs)
    return not any(name in given and given[name] in fixed for name, fixed in _FIXED.items())


def _op_node(node):
    """Return the node of the op that computes a node, which may be a field of its results."""
    return node.args[0] if not hasattr(node.target, "_schema") else node


def _where(node) -> str:
    """Return the line of the user's code that a node is from."""
    lines = (node.meta.get("stack_trace") or "").strip().splitlines()
    return "\n".join(line.strip() for line in lines[-2:])


def _hint(dim):
    """Return the size of a dimension in the example."""
    return dim.node.hint if isinstance(dim, torch.SymInt) else dim


def _dtype(node) -> str | None:
    val = node.meta.get("val")
    return str(val.dtype).removeprefix("torch.") if isinstance(val, torch.Tensor) else None


def _copied(value):
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return bfloat16_array(tensor)
    return tensor.resolve_conj().resolve_neg().numpy()


def to_torch(array: np.ndarray) -> torch.Tensor:
    """Return an array as a tensor."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
