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
"""Offload policy of oneDNN (DNNL): which ops it runs, which it fuses, and when.

``tvm/contrib/onednn/ops/table.py`` has a row for each op that oneDNN runs. The private package
``_dnnl`` makes patterns, annotations and partitions of them.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import tvm
from tvm import relay
from tvm.contrib.onednn import cache, compiler_lock, cpu, progress
from tvm.contrib.onednn.arguments import (
    check_mapping,
    check_module,
    check_onnx_only,
    check_options,
)
from tvm.contrib.onednn.compiled_model import CompiledModel, partitioned
from tvm.contrib.onednn.export import check_writes_of, export_library
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.options import make_options
from tvm.contrib.onednn.report.offload_report import OffloadReport
from tvm.contrib.onednn.verify.check import VerificationError, is_flag_set
from tvm.contrib.onednn.verify.table import Verification
from tvm.ir import Op
from tvm.relay.dataflow_pattern import DFPattern

from ._dnnl import composites
from ._dnnl.integration import coming_from_tvm, compiled, shape_functions
from ._dnnl.integration.c_source import c_source_options, export_options
from ._dnnl.integration.compiled import load_model
from ._dnnl.integration.onnx_models import from_onnx
from ._dnnl.integration.profiling import DNNLMetricCollector
from ._dnnl.integration.runtime import (
    dnnl_codegen,
    dnnl_version,
    is_dnnl_available,
    num_threads,
    set_num_threads,
)
from ._dnnl.integration.target import host_target, target_of
from ._dnnl.integration.verification import check_compiled, verify
from ._dnnl.partition import pattern_table as patterns
from ._dnnl.pass_context import options_of_pass_context
from ._dnnl.pipeline import legalize_qnn, partition
from ._dnnl.relay_report import make_report
from .register import register_pattern_table

# fmt: off
__all__ = [
    "CompiledModel", "DNNLMetricCollector", "OffloadReport", "Verification",
    "VerificationError", "c_source_options", "cached_library", "compile", "dnnl_codegen",
    "dnnl_version", "export_library", "from_onnx", "host_target", "is_dnnl_available",
    "legalize_qnn_for_dnnl", "load_model", "num_threads", "offload_report",
    "partition_for_dnnl", "pattern_table", "set_num_threads", "verify",
]
# fmt: on

cpu.connect(functools.partial(tvm.get_global_func, allow_missing=True))
check_writes_of(tvm.runtime.Module, "save")
patterns.register(TABLE)
shape_functions.register()
composites.register()


@register_pattern_table("dnnl")
def pattern_table() -> list[tuple[str, DFPattern, Callable[[relay.Call], bool]]]:
    """Return a tuple (name, pattern, check) for each composite, for MergeComposite.

    The checks are those of `partition_for_dnnl`. The int8 composites match the modules that
    `legalize_qnn_for_dnnl` returns.
    """
    return patterns.pattern_table(TABLE)


def legalize_qnn_for_dnnl(mod: tvm.IRModule) -> tvm.IRModule:
    """Rewrite QNN ops as float ops between 8-bit tensors, which `pattern_table` matches.

    This is for pipelines of TVM's own passes. Run it immediately before MergeComposite, because
    constant folding would dequantize the weights. `partition_for_dnnl` includes it. Each 8-bit
    result is rounded once, half to even, whereas TVM's QNN ops round at each step.

    Parameters
    ----------
    mod : tvm.IRModule
        A module whose weights, scales and zero points are constants. It is not modified. It may
        also have `qnn.quantize` and `qnn.dequantize` around float ops.

    Returns
    -------
    legalized : tvm.IRModule
        The module. The QNN ops that oneDNN can run are rewritten with `qnn.quantize` and
        `qnn.dequantize`; the others stay, for TVM.

    Raises
    ------
    TypeError
        `mod` is not a Relay module.
    """
    check_module(mod, tvm.IRModule)
    return legalize_qnn(mod, Rules(TABLE))


@compiler_lock.held()
def partition_for_dnnl(
    mod: tvm.IRModule,
    params: dict[str, tvm.nd.NDArray] | None = None,
    mod_name: str = "default",
    *,
    prune: bool | None = None,
    exclude: Sequence[str] | None = None,
    precision: str | None = None,
    bf16: bool | None = None,
    keep_bias_order: bool | None = None,
    exact_nan: bool | None = None,
    num_threads: int | None = None,
    strict: bool | None = None,
) -> tvm.IRModule:
    """Offload the ops that oneDNN can run to functions for the DNNL code generator.

    Dropout is removed and constants are folded. If a convolution or a dense is followed by a
    batch_norm, or by per-channel constants that include a factor, they are folded into its weight
    and bias. Any other batch_norm becomes a multiply and an add per channel. The folded constants
    are rounded once, so the results may differ in the last bits. If only strided 1x1 convolutions
    read a feature map, the spatial positions that they skip are not computed. Ops that oneDNN
    cannot run stay on TVM; `offload_report` tells which, and why. A function that one of TVM's
    passes fails on is left unchanged, with a warning.

    Options that are not passed here are read from `relay.ext.dnnl.options` of the PassContext:
    `{"prune": False, "exclude": "nn.dense,nn.softmax"}`.

    Parameters
    ----------
    mod : tvm.IRModule
        The module to partition. It is not modified.
    params : dict[str, tvm.nd.NDArray] | None
        Values for parameters of `main`, by name. They become constants. Names that `main` does not
        have are ignored with a warning.
    mod_name : str
        Prefix of the partitions' names. If several modules are linked into one program, give each
        its own.
    prune : bool | None
        Whether to leave partitions on TVM that are too small to be faster with oneDNN. Default:
        the PassContext's, or True.
    exclude : Sequence[str] | None
        Relay ops or composites to leave on TVM, such as "nn.dense" or "dnnl.conv2d_relu". The ops
        of an excluded composite may still be offloaded one by one, or in a smaller composite.
        Default: the PassContext's, or none.
    precision : str | None
        Data type in which float32 convolutions and matmuls, and the ops between them, compute:
        "float32", "bfloat16", "float16", or "auto", which is bfloat16 if that is faster on this
        CPU and float32 otherwise. The arguments and results of `main` keep their types. Default:
        the PassContext's, or "float32".
    bf16 : bool | None
        Deprecated. True is `precision="bfloat16"`, False is `precision="float32"`.
    keep_bias_order : bool | None
        Whether a bias is added where the module adds it. If False, a bias that follows a residual
        is added before it, as the convolution's own bias; the last bits may differ. Default: the
        PassContext's, or True.
    exact_nan : bool | None
        Whether `nn.relu`, `clip`, `maximum`, `minimum`, `max`, `min`, hard sigmoid and max pools
        propagate NaN, as NumPy does. Otherwise they may drop it, as in TVM. This costs two or
        three additional ops for each of them; use it to find where NaN appears. Default: the
        PassContext's, or False.
    num_threads : int | None
        Number of threads that oneDNN runs the partitions on, stored in the exported library. With
        0, the process decides at the first run. Default: the PassContext's, here or when the
        module is compiled. `set_num_threads` and the environment variable `TVM_DNNL_NUM_THREADS`
        take precedence over it, `OMP_NUM_THREADS` does not.
    strict : bool | None
        Whether an op that cannot be rewritten or written, and would stay on TVM with a
        `PartitionWarning`, is an error. Default: the PassContext's, or True if the environment
        variable `TVM_DNNL_STRICT` is 1.

    Returns
    -------
    partitioned : tvm.IRModule
        The module, with a function with `Compiler` "dnnl" for each partition.

    Raises
    ------
    TypeError
        An argument has the wrong type.
    ValueError
        An argument has an invalid value: a name in `exclude` that no op has, a value in `params`
        that does not match its parameter, a `precision` that this CPU does not support.
    RuntimeError
        With `strict`: an op cannot be rewritten or written; the message names it.

    Notes
    -----
    In reduced precision, fused ops are rounded once, and a fused clip turns NaN into a bound.
    """
    check_module(mod, tvm.IRModule)
    given = dict(
        prune=prune,
        exclude=exclude,
        precision=precision,
        bf16=bf16,
        keep_bias_order=keep_bias_order,
        exact_nan=exact_nan,
        num_threads=num_threads,
        strict=strict,
    )
    options = make_options(
        mod_name, given, patterns.names(TABLE), Op.list_op_names, options_of_pass_context()
    )
    with progress.step("partition"):
        return partition(mod, params, Rules(TABLE, options))


def offload_report(mod: tvm.IRModule) -> OffloadReport:
    """Report which ops of a module run on oneDNN, and why the others do not.

    Parameters
    ----------
    mod : tvm.IRModule
        A module, partitioned or not. Before partitioning, nothing is offloaded, and the report
        lists the ops that would be refused.

    Returns
    -------
    report : OffloadReport
        It prints as a table. `to_dict()` returns the same data, and `to_json()` also has each op
        of the module.
    """
    check_module(mod, tvm.IRModule)
    return make_report(mod, TABLE)


@compiler_lock.entry("compile")
def compile(  # pylint: disable=redefined-builtin
    model,
    params: dict[str, tvm.nd.NDArray] | None = None,
    *,
    shape: dict[str, Sequence[int]] | None = None,
    constants: Mapping[str, object] | None = None,
    target: tvm.target.Target | str | None = None,
    verify: bool | None = None,
    **options,
) -> CompiledModel:
    """Import, partition and compile a model.

    A model with open dimensions or control flow is compiled for the VM executor, any other one for
    the graph executor.

    Parameters
    ----------
    model : str | os.PathLike | onnx.ModelProto | tvm.IRModule
        An ONNX model or its file, or a module, partitioned or not.
    params : dict[str, tvm.nd.NDArray] | None
        As for `partition_for_dnnl`.
    shape, constants : Mapping | None
        Shapes and values of an ONNX model's inputs; see `from_onnx`.
    target : tvm.target.Target | str | None
        The target that TVM compiles for. Default: `host_target()`.
    verify : bool | None
        Whether to run the model once as its framework does and once compiled, with drawn inputs,
        and to compare the results: an ONNX model in onnxruntime or onnx's reference evaluator, a
        module in numpy. Default: False.
    options
        Those of `partition_for_dnnl`, such as `precision="auto"`.

    Returns
    -------
    model : CompiledModel
        The model, to be called with arrays, or exported.

    Raises
    ------
    TypeError, ValueError
        As for `from_onnx` and `partition_for_dnnl`.
    VerificationError
        The results differ by more than rounding explains; the message names the first op that
        differs.

    Examples
    --------
    >>> model = dnnl.compile("model.onnx", shape={"x": (1, 3, 224, 224)})
    >>> probabilities = model(np.zeros((1, 3, 224, 224), "float32"))
    >>> model.export_library("model.so")
    """
    check_options(options, partition_for_dnnl)
    check_mapping("params", params)
    target = target_of(target)
    is_verified, source, given = is_flag_set(verify), model, params
    if not isinstance(model, tvm.IRModule):
        model, weights = from_onnx(model, shape, constants)
        params = {**weights, **(params or {})}
    else:
        check_onnx_only(shape, constants)
    is_partitioned = compiled.is_partitioned(model)
    model = partitioned(model, is_partitioned, partition_for_dnnl, params, options)
    result = compiled.compile_partitioned(model, target, offload_report(model), export_options())
    if is_verified:
        args = partition_for_dnnl, options, target, shape, constants, given
        result.report.verified = check_compiled(source, result, *args)
    return result


@compiler_lock.entry("compile for the cache")
def cached_library(
    mod: tvm.IRModule,
    params: dict[str, tvm.nd.NDArray] | None = None,
    *,
    folder: str | os.PathLike,
    target: tvm.target.Target | str,
    executor: str = "graph",
    **options,
) -> str:
    """Partition and compile a module once for all processes that share a folder.

    The cache key is a digest of the module, parameters, target, executor, options and PassContext,
    the contents of TVM and this backend, and the features of the CPU. A cached library is used only
    if its file is intact. Tuning logs and instruments of the PassContext are not part of the key:
    compile models that depend on them without the cache. Old libraries are never removed.

    Parameters
    ----------
    mod : tvm.IRModule
        The module, not partitioned.
    params : dict[str, tvm.nd.NDArray] | None
        As for `partition_for_dnnl`.
    folder : str | os.PathLike
        The cache. Libraries are code: give write access only to users who may run code as you.
    target : tvm.target.Target | str
        The target that TVM compiles for.
    executor : str
        "graph" or "vm".
    options
        Those of `partition_for_dnnl`.

    Returns
    -------
    path : str
        Path of the library, for `tvm.runtime.load_module`.

    Raises
    ------
    ValueError
        `executor` or an option has an invalid value.
    OSError
        The library is not cached and cannot be written.
    """
    if executor not in ("graph", "vm"):
        raise ValueError(f'executor must be "graph" or "vm", but is {executor!r}')
    check_module(mod, tvm.IRModule)
    check_options(options, partition_for_dnnl)
    texts = _texts_of(mod)
    key = cache.key_of(tvm, Path(__file__).parent, texts, params, options, str(target), executor)

    def write(path):
        compile_ = relay.build if executor == "graph" else relay.vm.compile
        with progress.passes_noted(tvm):
            compiled = compile_(partition_for_dnnl(mod, params, **options), target=target)
        getattr(compiled, "mod", compiled).export_library(path, **(export_options() or {}))

    return cache.library(folder, key, write)


def _texts_of(mod: tvm.IRModule) -> Iterator[str]:
    """Yield what a module is, function by function: itself it has them in order of addresses."""
    for kind in (mod.functions, mod.type_definitions):
        for var, value in sorted(kind.items(), key=lambda item: item[0].name_hint):
            yield var.name_hint
            yield tvm.ir.save_json(value)


def __getattr__(name: str):
    """Say what takes the place of a name that TVM's own module for DNNL has."""
    raise coming_from_tvm.missing(__name__, name, inspect.currentframe().f_back)
