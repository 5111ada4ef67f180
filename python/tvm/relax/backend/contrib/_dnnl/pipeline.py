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

import re
from collections.abc import Iterable

import tvm
from tvm import relax, tirx
from tvm.contrib.onednn.arguments import check_mapping, warn_of_unknown
from tvm.contrib.onednn.failures import note_failure
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.tensors import COMPILER
from tvm.contrib.onednn.partition.offload import Offloaded, offload
from tvm.contrib.onednn.report.record import ATTR, Record

from .composites import without_unwritable
from .paged_cache import offload_paged_attention
from .reader import RelaxGraph
from .reading import Constant, own_functions, sizes, value_of
from .relax_report import RelaxDescription
from .size_checks import read_size_checks
from .steps import on_each_function
from .writer import FunctionWriter


def partition(mod: tvm.IRModule, params: dict | None, rules: Rules) -> tvm.IRModule:
    """Partition every function of a module that has something for oneDNN.

    See :py:func:`tvm.relax.backend.contrib.dnnl.partition_for_dnnl`.
    """
    mod = _bound(mod, params) if params else mod
    record = Record(excluded=sorted(rules.options.exclude), unrolled=Record.of(mod).unrolled)

    def step(mod, var, func):
        function, decided = var.name_hint, Record()
        prefix = re.sub(r"\W", "_", f"{rules.options.mod_name}_{COMPILER}_{function}")

        def read():
            graph = RelaxGraph(mod, func, rules.options.exclude)
            for name, error in graph.unreadable:
                what = f"reading {name}"
                note_failure(record.failures, function, what, error, 6, rules.options.strict)
            return graph

        def write(units, decision):
            builder = relax.BlockBuilder(mod)
            writer = FunctionWriter(builder, units, decision, prefix)
            return builder, writer.write(), writer.names

        outcome: Offloaded = offload(
            read, write, rules, function, record.failures, [read_size_checks]
        )
        builder, written, names = outcome.written
        decided.folded, decided.in_float32 = outcome.outcome
        args = outcome.graph, rules, function, outcome.units, outcome.decision, names
        decided.describe(RelaxDescription(*args))
        record.update(decided)
        return builder, written

    mod = without_unwritable(mod, record.failures, rules.options.strict)
    mod = relax.transform.ConvertToDataflow()(relax.transform.Normalize()(mod))
    mod = on_each_function(mod, "partition", step, record.failures, rules.options.strict)
    mod = without_dead_code(offload_paged_attention(mod, rules))
    return mod.with_attr(ATTR, record.to_json())


def _bound(mod: tvm.IRModule, params: dict) -> tvm.IRModule:
    """Return a module in which parameters of functions are constants."""
    check_mapping("params", params)
    known: dict[str, None] = {}
    for var, func in own_functions(mod):
        known.update(dict.fromkeys(param.name for param in func.params))
        own = {p.name: _fitting(p, params[p.name]) for p in func.params if p.name in params}
        mod = relax.transform.BindParams(var.name_hint, own)(mod) if own else mod
    warn_of_unknown(params, known, 4)
    return mod


def _fitting(param: relax.Var, value):
    """Return a value; raise a ValueError if it does not fit its parameter."""
    tensor = value_of(value) if isinstance(value, Constant) else value
    if not hasattr(tensor, "shape"):
        raise TypeError(f"params['{param.name}'] must be an array, not {type(value).__name__}")
    shape, expected = tuple(map(int, tensor.shape)), sizes(param.ty)
    fits = expected is None or len(shape) == len(expected)
    fits = fits and all(a in (None, b) for a, b in zip(expected or (), shape))
    if not fits or str(tensor.dtype) != str(param.ty.dtype or tensor.dtype):
        raise ValueError(
            f"params['{param.name}'] is {tensor.dtype} of shape {shape}, but the parameter is "
            f"{param.ty}"
        )
    return value


def without_dead_code(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module without bindings that are only another name, or that nothing reads."""
    own = dict(own_functions(mod))
    # Functions of other code generators stay as they are.
    opaque = {
        var: func
        for var, func in mod.functions_items()
        if isinstance(func, relax.Function) and var not in own
    }
    short = relax.transform.CanonicalizeBindings()(_with_names_of(opaque, mod))
    builder = relax.BlockBuilder(mod)
    for var in own:
        builder.update_func(var, short[var.name_hint])
    # A partition may have thousands of composites: the pass takes time that is quadratic in them.
    partitions = {
        var: func for var, func in opaque.items() if func.attrs.get("Codegen") == COMPILER
    }
    eliminate = relax.transform.DeadCodeElimination(_read_by(partitions.values(), mod))
    short = eliminate(_with_names_of(partitions, builder.finalize()))
    for var, func in partitions.items():
        short.update_func(var, func)
    return short


def _read_by(functions: Iterable[relax.Function], mod: tvm.IRModule) -> list[str]:
    """Return the names of the functions that others read, such as what a composite calls in TIR."""
    names: dict[str, None] = {}

    def visit(expr):
        if isinstance(expr, tvm.ir.GlobalVar):
            names[expr.name_hint] = None

    if any(isinstance(func, tirx.PrimFunc) for _, func in mod.functions_items()):
        for func in functions:
            relax.analysis.post_order_visit(func, visit)
    return list(names)


def _with_names_of(functions: dict, mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module that has only the names of some functions."""
    names = {var: relax.ExternFunc(var.name_hint) for var in functions}
    return tvm.IRModule({**dict(mod.functions_items()), **names}, mod.attrs, mod.global_infos)
