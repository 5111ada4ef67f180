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
"""The attention of TVM's PagedKVCache by the kernel of `dnnl.attention`.

The functions that TVM generates for a CPU are loops without a schedule. Those of this package have
the same parameters, and read the cache where it is.
"""

from __future__ import annotations

from tvm import ir, relax
from tvm.contrib.onednn.ops.rules import Rules

from .reading import number, own_functions

_CREATE = "vm.builtin.paged_attention_kv_cache_create"

# By the names of TVM's functions. Sliding windows and trees stay on TVM.
_FUNCTIONS = {
    "batch_prefill_ragged_kv": "runtime.contrib.dnnl.ragged_prefill",
    "batch_prefill_paged_kv_cpu": "runtime.contrib.dnnl.paged_prefill",
    "batch_decode_paged_kv_cpu": "runtime.contrib.dnnl.paged_decode",
}
# Arguments of the call that creates a cache, after its name.
_ROPE_MODE, _ZEROS = 9, 13
# TVM's RopeMode of keys that are rotated where they are read.
_INLINE = 2


@relax.expr_functor.mutator
class _Caches(relax.PyExprMutator):
    """Lets the caches that a module creates call functions of this package."""

    def visit_call_(self, call):
        call = super().visit_call_(call)
        if not _is_supported(call):
            return call
        args = [_replaced(each) for each in call.args]
        return relax.Call(call.op, args, call.attrs, call.ty_args)


def offload_paged_attention(mod: ir.IRModule, rules: Rules) -> ir.IRModule:
    """Return a module whose caches of float32 pages, if it creates some, attend by this package."""
    if rules.excludes("dnnl.attention"):
        return mod
    caches = _Caches(mod)
    for var, func in own_functions(mod):
        if _creates_cache(func):
            caches.builder_.update_func(var, caches.visit_expr(func))
    return caches.builder_.get()


def _creates_cache(func: relax.Function) -> bool:
    creations = []

    def visit(node):
        if isinstance(node, relax.ExternFunc) and node.global_symbol == _CREATE:
            creations.append(node)

    relax.analysis.post_order_visit(func, visit)
    return bool(creations)


def _is_supported(call: relax.Call) -> bool:
    """Whether a call creates a cache on a CPU of float32, with keys that are stored rotated."""
    if not call.args or not isinstance(call.args[0], relax.ExternFunc):
        return False
    if call.args[0].global_symbol != _CREATE or len(call.args) <= _ZEROS:
        return False
    names = [_function_of(each) for each in call.args]
    mode, zeros = number(call.args[_ROPE_MODE]), call.args[_ZEROS].ty
    is_float32 = isinstance(zeros, relax.TensorType) and str(zeros.dtype) == "float32"
    return "batch_decode_paged_kv_cpu" in names and mode not in (None, _INLINE) and is_float32


def _function_of(argument) -> str | None:
    """Return the name of the function of ("tirx", function); None for another argument."""
    if not isinstance(argument, relax.Tuple) or len(argument.fields) != 2:
        return None
    kind, function = argument.fields
    if not isinstance(function, ir.GlobalVar) or str(getattr(kind, "value", "")) != "tirx":
        return None
    return function.name_hint


def _replaced(argument):
    name = _FUNCTIONS.get(_function_of(argument))
    return argument if name is None else relax.Tuple([argument.fields[0], relax.ExternFunc(name)])
