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

import warnings

import tvm
from tvm import relay
from tvm.relay import transform
from tvm.relay.dataflow_pattern import rewrite

from .ir.dataflow_graph import OPAQUE, has_attr, op_calls
from .partition.fuse import fuse
from .partition.outline import cut
from .partition.single_calls import keep_calls_single
from .policy.op_spec import Rules
from .policy.tensors import op_name, tensor_reason
from .report.record import ATTR, Record
from .rewrites.bias_order import bias_first
from .rewrites.fold_layer_norm import fold_layer_norm
from .rewrites.fold_pad import fold_pad
from .rewrites.fold_scale import fold_scale
from .rewrites.propagate_strides import thin
from .rewrites.reduced_precision import narrow, to_mixed
from .rewrites.rms_norm import wrap_rms_norms
from .rewrites.simplify import RemoveDropout, bind_params
from .rewrites.take_to_slice import slice_fixed_takes
from .rewrites.virtual_ops import wrap_virtual_ops

# Functions that TVM's own passes leave alone.
_SKIP = "SkipOptimization"


class PartitionWarning(UserWarning):
    """A function was left as it was because a pass could not cope with it."""


def partition(mod: tvm.IRModule, params: dict | None, rules: Rules) -> tvm.IRModule:
    """Partition every function of a module that has something for oneDNN.

    See :py:func:`tvm.relay.op.contrib.dnnl.partition_for_dnnl`.
    """
    record = Record.of(mod) or Record()
    record.excluded = sorted(rules.options.exclude)
    mod = bind_params(record.attach(mod), params)
    mod = transform.InferType()(mod)
    for name in _candidates(mod, rules, record):
        for step in _STEPS:
            mod = _attempt(mod, name, step, rules, record)
    return record.attach(mod)


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
    if name in rules.ops and rules.reason(call) is None:
        return True
    # Of constants, these are virtual ops, whatever the row says.
    return name in ("divide", "power") and tensor_reason("result", call.checked_type, 1) is None


def _attempt(mod, name, step, rules, record):
    """Run a step on one function; when it cannot cope, keep the function as it was and warn."""
    try:
        # A copy: steps change the module that they get.
        changed = step(mod.with_attr(ATTR, mod.get_attr(ATTR)), name, rules, record)
        same = changed[name].same_as(mod[name])
        return mod if same else transform.InferType()(changed)
    # A pass of TVM raises whatever it likes, and a model must not fail to compile because a part
    # of it cannot be offloaded.
    except Exception as error:  # pylint: disable=broad-except
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = (
            f"{step.__name__.strip('_')} failed: {lines[-1] if lines else type(error).__name__}"
        )
        record.failures[name] = reason
        warnings.warn(f"oneDNN: function {name}: {reason}", PartitionWarning, stacklevel=4)
        return mod


def _remove_dropout(mod, name, rules, record):
    dropout = RemoveDropout()
    mod[name] = rewrite(dropout, mod[name], mod)
    if dropout.removed:
        record.folded["nn.dropout"] += dropout.removed
    return mod


def _fold_constants(mod, name, rules, record):
    mod[name] = _without_constants(mod, name)
    return mod


def _without_constants(mod, name):
    """Fold constants, unless TVM cannot: it has no code for some functions of short numbers."""
    try:
        return transform.FoldConstantExpr(mod[name], mod)
    except tvm.TVMError:
        return mod[name]


def _fold_scale(mod, name, rules, record):
    mod[name], folded = fold_scale(mod[name], rules)
    record.folded.update(folded)
    return mod


def _fold_pad(mod, name, rules, record):
    mod[name], folded = fold_pad(mod[name], rules)
    if folded:
        record.folded["nn.pad"] += folded
    return mod


def _fold_layer_norm(mod, name, rules, record):
    mod[name], folded = fold_layer_norm(mod[name], rules)
    record.folded.update(folded)
    return mod


def _slice_fixed_takes(mod, name, rules, record):
    mod[name] = slice_fixed_takes(mod[name], rules)
    return mod


def _thin(mod, name, rules, record):
    mod[name] = thin(mod[name], rules)
    return mod


def _bias_first(mod, name, rules, record):
    if not rules.options.keep_bias_order:
        mod[name] = bias_first(mod[name], rules)
    return mod


def _wrap_virtual_ops(mod, name, rules, record):
    func = wrap_rms_norms(mod[name], rules)
    if not func.same_as(mod[name]):
        mod[name] = func
        mod = transform.InferType()(mod)
    mod[name] = wrap_virtual_ops(mod[name], rules)
    return mod


def _to_bfloat16(mod, name, rules, record):
    """Make numbers shorter; the parameters were folded before, and their casts are after."""
    if not rules.options.bf16:
        return mod
    mod[name] = to_mixed(mod, name)
    mod[name] = _without_constants(mod, name)
    mod = transform.InferType()(mod)
    mod[name] = narrow(mod[name], rules)
    return mod


def _offload(mod, name, rules, record):
    """Make composites, then cut out what oneDNN runs."""
    func = fuse(mod[name], rules)
    if not func.same_as(mod[name]):
        mod[name] = func
        mod = transform.InferType()(mod)
    return cut(mod, name, rules, record)


def _keep_calls_single(mod, name, rules, record):
    mod[name] = keep_calls_single(mod, name)
    return mod


_STEPS = (
    _remove_dropout,
    _fold_constants,
    _slice_fixed_takes,
    _fold_pad,
    _fold_scale,
    _fold_layer_norm,
    _thin,
    _bias_first,
    _wrap_virtual_ops,
    _to_bfloat16,
    _offload,
    _keep_calls_single,
)
