# SPDX-License-Identifier: Apache-2.0
"""The partitions of a module one by one: what oneDNN was given, and what it computed."""

from typing import NamedTuple

import tvm
from tvm import relay
from tvm.contrib.onednn.ir.numpy_types import numpy_type
from tvm.relay.expr_functor import ExprMutator
from tvm.relay.op.contrib._dnnl.ir.dataflow_graph import is_partition
from tvm.testing import dnnl as testing

from .comparing import run
from .evaluate import evaluate


class Partition(NamedTuple):
    """What oneDNN computed in one partition.

    Attributes
    ----------
    name : str
        Of the function.
    mod : tvm.IRModule
        With main as the ops of the partition.
    inputs : dict of str to array
        What it was given, by the names of main's parameters.
    outputs : list of array
        What it computed.
    """

    name: str
    mod: tvm.IRModule
    inputs: dict
    outputs: list

    @property
    def depth(self):
        """The most calls, one after the other."""
        depth = {}

        def visit(expr):
            if isinstance(expr, relay.Call):
                before = max((depth[arg] for arg in expr.args), default=0)
            elif isinstance(expr, relay.Tuple):
                before = max((depth[field] for field in expr.fields), default=0)
            elif isinstance(expr, relay.TupleGetItem):
                before = depth[expr.tuple_value]
            else:
                before = 0
            depth[expr] = before + isinstance(expr, relay.Call)

        relay.analysis.post_order_visit(self.mod["main"].body, visit)
        return max(1, *depth.values())


class Seams:
    """What goes from TVM to oneDNN and back while a module runs.

    Parameters
    ----------
    mod : tvm.IRModule
        Not partitioned.
    partitioned : tvm.IRModule
        The same with partitions.
    inputs : dict of str to array
        The inputs of main.

    Attributes
    ----------
    partitions : list of Partition
        In the order in which they ran.
    """

    def __init__(self, mod, partitioned, inputs):
        main = partitioned["main"]
        self._mod, self._inputs = mod, inputs
        self._flat = flattened(partitioned)
        calls = _partition_calls(partitioned)
        # The module once more, with whatever goes in and out of partitions as further outputs.
        fields, ends = _fields(main.body), []
        for call in calls:
            fields += call.args
            ends.append((len(fields), len(fields) + len(_fields(call))))
            fields += _fields(call)
        watched = _module(main.params, relay.Tuple(fields), partitioned)
        outputs = run(watched, inputs)
        self._outputs = outputs[: len(_fields(main.body))]
        self.partitions = [
            _partition(
                partitioned, call, outputs[start - len(call.args) : start], outputs[start:end]
            )
            for call, (start, end) in zip(calls, ends)
        ]

    def why_unlike(self, outputs, rtol):
        """Say why the partitions do not tell about outputs: None if all else is as it must be.

        Parameters
        ----------
        outputs : list of array
            Those of a run of the partitioned module as it is.
        rtol : float
            What is left of a difference that the order of arithmetic makes.
        """
        plain = evaluate(self._mod, self._inputs, rounding=None)
        flat = evaluate(self._flat, self._inputs, rounding=None)
        alone = [evaluate(part.mod, part.inputs) for part in self.partitions]
        if any(each is None for each in (plain, flat, *alone)):
            return "numpy cannot tell what the partitions compute"
        if not testing.difference(flat, plain).relative <= rtol:
            return "the partitioned graph, in float64, computes something else"
        if not testing.difference(self._outputs, outputs).relative <= rtol:
            return "the outputs are others when the partitions are watched"
        return None


class _Flatten(ExprMutator):
    """Replaces calls of functions, of a module and of an expression, by their bodies."""

    def __init__(self, mod):
        super().__init__()
        self._functions = mod

    def visit_call(self, call):
        callee = call.op
        if isinstance(callee, relay.GlobalVar):
            callee = self._functions[callee]
        if not isinstance(callee, relay.Function):
            return super().visit_call(call)
        args = [self.visit(arg) for arg in call.args]
        return relay.bind(self.visit(callee.body), dict(zip(callee.params, args)))

    def visit_tuple_getitem(self, op):
        field = super().visit_tuple_getitem(op)
        producer = field.tuple_value
        return producer.fields[field.index] if isinstance(producer, relay.Tuple) else field


def flattened(mod):
    """Return a partitioned module with the bodies of partitions and composites in main."""
    return _module(mod["main"].params, _Flatten(mod).visit(mod["main"].body))


def _module(params, body, others=None):
    """Return a typed module of a function main and the other functions of a module."""
    functions = {} if others is None else dict(others.functions.items())
    functions = {var: func for var, func in functions.items() if var.name_hint != "main"}
    functions[relay.GlobalVar("main")] = relay.Function(list(params), body)
    return relay.transform.InferType()(tvm.IRModule(functions))


def _partition_calls(mod):
    """Return the calls of partitions in main, in the order in which they run."""
    calls = []

    def visit(expr):
        if isinstance(expr, relay.Call) and isinstance(expr.op, relay.GlobalVar):
            if is_partition(mod[expr.op]):
                calls.append(expr)

    relay.analysis.post_order_visit(mod["main"].body, visit)
    return calls


def _partition(mod, call, inputs, outputs):
    func = mod[call.op]
    given = {
        param.name_hint: value.astype(numpy_type(param.checked_type.dtype))
        for param, value in zip(func.params, inputs)
    }
    body = _Flatten(mod).visit(func.body)
    return Partition(call.op.name_hint, _module(func.params, body), given, outputs)


def _fields(expr):
    """Return the tensors that are the operands of an expression."""
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    if isinstance(expr.checked_type, relay.TupleType):
        return [relay.TupleGetItem(expr, i) for i in range(len(expr.checked_type.fields))]
    return [expr]
