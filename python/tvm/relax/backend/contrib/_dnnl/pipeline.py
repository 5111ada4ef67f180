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
"""The steps of `partition_for_dnnl` for a Relax module, in order."""

from __future__ import annotations

import json
import re
from collections import Counter

import tvm
from tvm import relax
from tvm.contrib.onednn.partition.units import Choice, Units
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.quantized import weights_in_float32
from tvm.contrib.onednn.policy.tensors import COMPILER

from .fold_pad import fold_pad
from .fold_scale import fold_scale
from .graph import RelaxGraph
from .move_in_int8 import (
    fold_dequantized,
    merge_equal,
    move_dequantize_first,
    move_in_int8,
    move_relu_first,
)
from .outline import Outlined
from .propagate_strides import propagate_strides
from .reading import own_functions
from .reduced_precision import reduce_precision
from .relax_report import RECORD, by_op, ops_of
from .simplify import simplify, without_dead_code
from .steps import on_each_function
from .virtual_ops import with_formulas
from .weight_zero_point import without_weight_zero_points


def partition(mod: tvm.IRModule, params: dict | None, rules: Rules) -> tvm.IRModule:
    """Partition every function of a module that has something for oneDNN.

    See :py:func:`tvm.relax.backend.contrib.dnnl.partition_for_dnnl`.
    """
    for var, func in own_functions(mod) if params else ():
        names = {param.name for param in func.params}.intersection(params)
        own = {name: params[name] for name in names}
        mod = relax.transform.BindParams(var.name_hint, own)(mod) if own else mod
    failures: dict[str, str] = {}
    record = {
        "excluded": sorted(rules.options.exclude),
        "stayed": {},
        "in_float32": {},
        "failures": failures,
    }

    def simplified(mod, **options):
        return simplify(mod, rules.options.exclude, failures, **options)

    def rewritten(mod, rewrite):
        def step(builder, _, func):
            return rewrite(builder.get(), func, rules)

        return without_dead_code(on_each_function(mod, rewrite.__name__, step, failures))

    def offload(builder, var, func):
        units = Units(with_formulas(func, rules), rules)
        name = re.sub(r"\W", "_", f"{rules.options.mod_name}_{COMPILER}_{var.name_hint}")
        outlined = Outlined(builder, func, units, Choice(units), name)
        record["stayed"][var.name_hint] = by_op(outlined.func, outlined.reasons)
        return outlined.func

    given = _ops(mod)
    mod = rewritten(simplified(mod), fold_pad)
    folded = given - _ops(mod)
    is_quantized = given["dequantize"] > 0
    if is_quantized:
        for rewrite in (merge_equal, move_relu_first, without_weight_zero_points, move_in_int8):
            mod = rewritten(mod, rewrite)
        # Before, for constants that were moved in 8 bits; behind, for what reads real ones.
        mod = simplified(mod)
        record["in_float32"] = dict(_weights_in_float32(mod, rules))
        mod = simplified(rewritten(mod, fold_dequantized))
    given = _ops(mod)
    mod = rewritten(mod, fold_scale)
    folded += given - _ops(mod)
    record["folded"] = dict(sorted(folded.items()))
    mod = rewritten(mod, propagate_strides)
    if rules.options.precision != "float32":
        mod = rewritten(mod, reduce_precision)
    if is_quantized:
        mod = rewritten(mod, move_dequantize_first)
    mod = on_each_function(mod, "offload", offload, failures)
    # An op that stays on TVM has its weight as it was.
    mod = simplified(mod, transposes_weights=False)
    return mod.with_attr(RECORD, json.dumps(record))


def _weights_in_float32(mod: tvm.IRModule, rules: Rules) -> Counter:
    """Count, for the report, the ops with 8-bit operands that run in float32."""
    graphs = (RelaxGraph(func, rules.options.exclude) for _, func in own_functions(mod))
    return sum((weights_in_float32(graph, rules) for graph in graphs), Counter())


def _ops(mod: tvm.IRModule) -> Counter:
    """Count the ops of all functions that are ours to change."""
    return sum((ops_of(func) for _, func in own_functions(mod)), Counter())
