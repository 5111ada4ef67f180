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
"""The way from a Relay module to one with partitions for oneDNN."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relay
from tvm.contrib.onednn import cpu, interrupts
from tvm.contrib.onednn.failures import note_failure
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.tensors import EIGHT_BITS, tensor_reason
from tvm.contrib.onednn.partition.offload import offload as offloaded
from tvm.contrib.onednn.report.record import ATTR, Record
from tvm.contrib.onednn.rewrites.decompose import DECOMPOSITIONS
from tvm.contrib.onednn.rewrites.formulas import ROOTS
from tvm.contrib.onednn.rewrites.pipeline import rewrite_quantized
from tvm.relay import transform

from .ir.dataflow_graph import OPAQUE, Rewritten, TypedFunction, has_attr, op_calls
from .ir.relay_view import op_name, value_of, view_of
from .params import bind_params
from .partition.for_patterns import write_for_patterns
from .partition.single_calls import keep_calls_single
from .reader import RelayGraph
from .recurrent import layer_name
from .relay_report import RelayDescription
from .rewrites.broadcast_fusion import stop_broadcast_fusion
from .rewrites.dynamic_again import HAS_STATIC_RESHAPES, dynamic_again
from .rewrites.fold_other_constants import fold_other_constants
from .writer import check_codegen, check_types, partitioned
from .writer import write as write_graph

Step = Callable[[TypedFunction, Rules], Rewritten]

# Functions that TVM's own passes leave alone.
_SKIP = "SkipOptimization"


def partition(mod: tvm.IRModule, params: dict | None, rules: Rules) -> tvm.IRModule:
    """Partition every function of a module that has something for oneDNN.

    See :py:func:`tvm.relay.op.contrib.dnnl.partition_for_dnnl`.
    """
    return _rewritten(mod, params, rules, _steps())


def legalize_qnn(mod: tvm.IRModule, rules: Rules) -> tvm.IRModule:
    """Rewrite what is quantized in every function for the patterns of the table.

    See :py:func:`tvm.relay.op.contrib.dnnl.legalize_qnn_for_dnnl`.
    """
    steps = [fold_other_constants, read_in_8_bits, write_for_patterns]
    return _rewritten(mod, None, rules, steps)


def _rewritten(
    mod: tvm.IRModule, params: dict | None, rules: Rules, steps: list[Step]
) -> tvm.IRModule:
    """Take the functions of a module that are ours to change through some steps."""
    record = Record.of(mod)
    record.excluded = sorted(rules.options.exclude)
    # The first change of an attribute makes the copy.
    mod = bind_params(_recorded(mod, record), params)
    with interrupts.deferred():
        mod = transform.InferType()(mod)
        for name in _candidates(mod, rules, record):
            mod, decided = _run(steps, TypedFunction(mod, name), rules)
            record.update(decided)
    return _recorded(mod, record)


def _recorded(mod: tvm.IRModule, record: Record) -> tvm.IRModule:
    """Return a copy of a module, with a record."""
    return mod.with_attr(ATTR, tvm.runtime.String(record.to_json()))


def _run(steps: list[Step], given: TypedFunction, rules: Rules) -> tuple[tvm.IRModule, Record]:
    """Run the steps on a function; return the module with it, and the record of it.

    The function stays as it was given where a step fails that the steps before it rely on.
    """
    function, record = given, Record()
    for step in steps:
        interrupts.deliver()
        changed = _attempt(function, step, rules, record)
        # Without these TVM cannot compile what the steps before them have written.
        if changed is None and step is dynamic_again:
            return given.mod, Record(failures=record.failures)
        function = changed or function
    return function.mod, record


def _steps() -> list[Step]:
    """Return what a function goes through, in order."""
    return [
        fold_other_constants,
        offload,
        dynamic_again,
        keep_calls_single,
        stop_broadcast_fusion,
    ]


def offload(function: TypedFunction, rules: Rules) -> Rewritten:
    """Rewrite a function into what oneDNN runs well, and move that into functions of its own."""
    has_dynamic_shapes, record = False, Record()

    def read():
        nonlocal has_dynamic_shapes
        graph = RelayGraph(function.func, rules.options.exclude, function.graph)
        has_dynamic_shapes = any(str(node.name).startswith("dyn.") for node in graph.nodes)
        return graph

    def write(units, decision):
        rewritten = partitioned(function, units, decision)
        if has_dynamic_shapes:
            func = rewritten.func.with_attr(HAS_STATIC_RESHAPES, 1)
            if function.name == "main":
                # Nobody calls it, so its result may be of the type that is known now.
                func = relay.Function(func.params, func.body, None, func.type_params, func.attrs)
            rewritten = rewritten._replace(func=func)
        try:
            typed = _replaced(function, rewritten)
        except tvm.TVMError:
            check_types(rewritten.partitions, units, decision)
            raise
        check_codegen([typed.mod[var] for var in rewritten.partitions], units, decision)
        return rewritten._replace(typed=typed)

    graph, outcome, units, decision, rewritten = offloaded(
        read, write, rules, function.name, record.failures
    )
    record.folded, record.in_float32 = outcome
    names = [var.name_hint for var in rewritten.partitions]
    args = function.mod, function.func, graph, rules, function.name, units, decision, names
    record.describe(RelayDescription(*args))
    return rewritten._replace(record=record)


def read_in_8_bits(function: TypedFunction, rules: Rules) -> Rewritten:
    """Rewrite what is quantized in a function into what oneDNN reads in 8 bits."""
    graph = RelayGraph(function.func, rules.options.exclude, function.graph)
    record = Record()
    outcome = rewrite_quantized(graph, rules, function.name, record.failures)
    record.folded, record.in_float32 = outcome
    return Rewritten(write_graph(graph), record=record)


def _candidates(mod: tvm.IRModule, rules: Rules, record: Record) -> list[str]:
    """Name the functions that are ours to change and have a call that oneDNN can run."""
    names = []
    for var, func in mod.functions.items():
        if not isinstance(func, relay.Function):
            continue
        if any(has_attr(func, key) for key in (*OPAQUE, _SKIP)):
            continue
        calls = op_calls(func)
        if not any(_is_of_interest(call, rules) for call in calls):
            continue
        if any(op_name(call).startswith("annotation.compiler_") for call in calls):
            record.failures[var.name_hint] = "left alone: annotated for another compiler"
        else:
            names.append(var.name_hint)
    return sorted(names)


def _is_of_interest(call: relay.Call, rules: Rules) -> bool:
    name = op_name(call)
    if layer_name(call):
        return True
    if name in rules.ops:
        dtype = getattr(value_of(call), "dtype", "")
        is_wide = cpu.why_in_float32(dtype, rules.options.precision) is not None
        if is_wide or rules.reason(view_of(call)) is None:
            return True
    # QNN ops, integers that are cast, and others, may be written with ops that have rows.
    if name is not None and (name.startswith("qnn.") or name in DECOMPOSITIONS):
        return True
    if name == "cast" and value_of(call).dtype in EIGHT_BITS:
        return True
    # It may be the end of a formula, whatever the row says.
    return name in ROOTS and tensor_reason("result", value_of(call), 1) is None


def _attempt(
    function: TypedFunction, step: Step, rules: Rules, record: Record
) -> TypedFunction | None:
    """Run a step on a function, whole or not at all.

    What the step cannot cope with stays as it was, and the record too, with a warning: None where
    that is all of the function.
    """
    try:
        rewritten = step(function, rules)
        changed = _replaced(function, rewritten)
        if rewritten.record is not None:
            record.update(rewritten.record)
        return changed
    # A pass of TVM raises whatever it likes, and a model must not fail to compile because a part
    # of it cannot be offloaded.
    except Exception as error:  # pylint: disable=broad-except
        name, strict = step.__name__, rules.options.strict
        note_failure(record.failures, function.name, name, error, stacklevel=5, strict=strict)
        return None


def _replaced(function: TypedFunction, rewritten: Rewritten) -> TypedFunction:
    """Put what a step returned into a copy of the module, and infer the types."""
    if rewritten.typed is not None:
        return rewritten.typed
    if rewritten.func.same_as(function.func):
        return function
    # The first change of an attribute makes the copy.
    mod = function.mod.with_attr(ATTR, function.mod.get_attr(ATTR))
    mod[function.name] = rewritten.func
    for var, partition_ in rewritten.partitions.items():
        mod[var] = partition_
    return TypedFunction(transform.InferType()(mod), function.name)
