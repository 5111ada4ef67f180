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
"""oneDNN for Relax: offloads the ops that oneDNN can run to the DNNL runtime.

``partition_for_dnnl`` selects and fuses ops; ``relax.transform.RunCodegen`` compiles partitions.
The table and the rules in ``tvm.contrib.onednn`` say which ops, shapes and types oneDNN runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import tvm
import tvm_ffi
from tvm.contrib.onednn import compiler_lock, interrupts, progress
from tvm.contrib.onednn.arguments import check_module, check_options
from tvm.contrib.onednn.compiled_model import CompiledModel, partitioned
from tvm.contrib.onednn.export import check_writes_of, export_library, release_memory
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.options import make_options
from tvm.contrib.onednn.report.offload_report import OffloadReport
from tvm.contrib.onednn.verify.check import VerificationError
from tvm.contrib.onednn.verify.table import Verification

from ._dnnl import compiled, pipeline, registration, verification
from ._dnnl.appends import mark_appends
from ._dnnl.cached import cached_model
from ._dnnl.compiled import host_target
from ._dnnl.composites import without_unwritable
from ._dnnl.importers import (
    from_exported_program,
    from_file,
    from_onnx,
    from_tflite,
    imported,
    opened,
)
from ._dnnl.imports_file import write_imports
from ._dnnl.loaded import dnnl_version, load_model, machine, num_threads, set_num_threads
from ._dnnl.ops import ROWS
from ._dnnl.relax_report import make_report
from ._dnnl.torch_backend import torch_backend

# fmt: off
__all__ = [
    "CompiledModel", "OffloadReport", "Verification", "VerificationError", "cached_library",
    "cached_model", "compile", "dnnl_version", "export_library", "from_exported_program",
    "from_file", "from_onnx", "from_tflite", "host_target", "load_model", "num_threads",
    "offload_report", "partition_for_dnnl", "set_num_threads", "torch_backend", "verify",
]
# fmt: on

check_writes_of(tvm_ffi.Module, "write_to_file", write_imports)
registration.register()


@compiler_lock.held()
def partition_for_dnnl(
    mod: tvm.IRModule,
    params: dict[str, tvm.runtime.Tensor] | None = None,
    mod_name: str = "default",
    *,
    prune: bool | None = None,
    exclude: Sequence[str] | None = None,
    precision: str | None = None,
    exact_nan: bool | None = None,
    num_threads: int | None = None,
    append_in_place: bool = False,
    strict: bool | None = None,
) -> tvm.IRModule:
    """Offload the ops that oneDNN can run to functions for the DNNL code generator.

    Constants are folded. A batch_norm that follows a convolution or matmul is folded into its
    weight and bias, as are constants that scale or shift channels. Any other batch_norm becomes a
    multiply and an add per channel. Ops that oneDNN cannot run stay on TVM; `offload_report` tells
    which, and why. Compile with ``relax.transform.RunCodegen()`` and ``tvm.compile``.

    Parameters
    ----------
    mod : tvm.IRModule
        The Relax module to partition. It is not modified.
    params : dict[str, tvm.runtime.Tensor] | None
        Values for parameters of functions, by name. They become constants.
    mod_name : str
        Prefix of the partitions' names.
    prune : bool | None
        Whether to leave partitions on TVM that are too small to be faster with oneDNN. Default:
        True.
    exclude : Sequence[str] | None
        Ops, by their names in Relax or in the table, or composites to leave on TVM, such as
        "nn.conv2d", "permute_dims" or "dnnl.conv2d_bias". Default: none.
    precision : str | None
        Data type in which float32 convolutions and matmuls, and the ops between them, compute:
        "float32", "bfloat16", "float16", or "auto", which is bfloat16 if that is faster on this
        CPU and float32 otherwise. The arguments and results of functions keep their types.
        Default: "float32".
    exact_nan : bool | None
        Whether `nn.relu`, `clip`, `maximum`, `minimum`, `max`, `min`, hard sigmoid and max pools
        propagate NaN, as NumPy does. Otherwise they may drop it, as in TVM. This costs two or
        three additional ops for each of them; use it to find where NaN appears. Default: False.
    num_threads : int | None
        Number of threads that oneDNN runs the partitions on. With 0, the default, the process
        decides at the first run.
    append_in_place : bool
        Whether a result that is an input with more elements along an open axis, such as keys and
        values of a language model, begins in the memory of that input, which has room for more.
        Such tensors have gaps: pass them to the next run, or read them by DLPack. Default: False.
    strict : bool | None
        Whether an op that cannot be rewritten or written is an error instead of a
        `PartitionWarning`. Default: whether the environment variable `TVM_DNNL_STRICT` is 1.

    Returns
    -------
    partitioned : tvm.IRModule
        The module, with a function with `Codegen` "dnnl" for each partition.

    Raises
    ------
    TypeError
        An argument has the wrong type.
    ValueError
        An argument has an invalid value, such as a name in `exclude` that no op has, or a
        `precision` that this CPU does not support.
    RuntimeError
        With `strict`: an op cannot be rewritten or written; the message names it.
    """
    check_module(mod, tvm.IRModule)
    if isinstance(exclude, (list, tuple)):
        exclude = [str(name).removeprefix("relax.") for name in exclude]
    given = dict(prune=prune, exclude=exclude, precision=precision, exact_nan=exact_nan)
    given.update(num_threads=num_threads, strict=strict)
    names = [*TABLE, *(name.removeprefix("relax.") for name in ROWS)]
    options = make_options(mod_name, given, names, tvm.ir.Op.list_op_names)
    with progress.step("partition"), interrupts.deferred():
        return mark_appends(pipeline.partition(mod, params, Rules(TABLE, options)), append_in_place)


@compiler_lock.entry("compile")
def compile(  # pylint: disable=redefined-builtin
    model,
    params: dict[str, tvm.runtime.Tensor] | None = None,
    *,
    shape: dict[str, Sequence[int]] | None = None,
    constants: Mapping[str, object] | None = None,
    target: tvm.target.Target | str | None = None,
    verify: bool | None = None,
    **options,
) -> CompiledModel:
    """Import, partition and compile a model.

    Parameters
    ----------
    model : str | os.PathLike | onnx.ModelProto | torch.export.ExportedProgram | tvm.IRModule
        The file of an ONNX model, a TFLite model or a program of PyTorch (`.pt2`), which its
        contents tell; an ONNX model, a program, or a module, partitioned or not.
    params : dict[str, tvm.runtime.Tensor] | None
        As for `partition_for_dnnl`.
    shape, constants : Mapping | None
        Shapes and values of an ONNX model's inputs; see `from_onnx`. `shape` is also for TFLite
        models; see `from_tflite`.
    target : tvm.target.Target | str | None
        The target that TVM compiles for. Default: `host_target()`.
    verify : bool | None
        Whether to run the model once as its framework does and once compiled, and to compare the
        results: a program of PyTorch with its example inputs, an ONNX model with drawn inputs, in
        onnxruntime or onnx's reference evaluator, a module with drawn inputs, in numpy. Default:
        True for PyTorch, False for others.
    options
        Those of `partition_for_dnnl`, such as `precision="auto"`.

    Returns
    -------
    model : CompiledModel
        The model, to be called with arrays, or exported.

    Raises
    ------
    TypeError, ValueError
        As for `from_onnx`, `from_exported_program`, `from_tflite` and `partition_for_dnnl`.
    VerificationError
        The results differ by more than rounding explains; the message names the first op that
        differs.

    Examples
    --------
    >>> model = tvm_dnnl.compile("model.onnx", shape={"x": (1, 3, 224, 224)})
    >>> probabilities = model(np.zeros((1, 3, 224, 224), "float32"))
    >>> model.export_library("model.so")
    """
    check_options(options, partition_for_dnnl)
    compiled.target_of(target)
    model, shape, constants = opened(model, shape, constants)
    source, is_verified = model, verification.is_wanted(verify, model)
    model = imported(model, shape, constants)
    model = without_unwritable(model, {}, options.get("strict"))
    is_partitioned = compiled.is_partitioned(model)
    model = partitioned(model, is_partitioned, partition_for_dnnl, params, options)
    report = offload_report(model)
    report.next_step = ""
    library = compiled.build(model, target)
    # Weights as the model has them, before oneDNN packs its own.
    del model
    release_memory()
    result = machine(library, report)
    if is_verified:
        report.verified = verification.verify(
            source, result, partition_for_dnnl, options, target, shape, constants, params
        )
    return result


@compiler_lock.entry("verify")
def verify(
    model,
    inputs=None,
    *,
    params: dict[str, tvm.runtime.Tensor] | None = None,
    reference: str | None = None,
    shape: Mapping | None = None,
    constants: Mapping[str, object] | None = None,
    target: tvm.target.Target | str | None = None,
    **options,
) -> Verification:
    """Compare each op of a compiled model with its source, or with its numpy definition.

    The model is compiled with its intermediate results as results, so little is fused. Each op is
    compared for the operands that the compiled model computed, and with its accumulated error.

    Parameters
    ----------
    model : torch.export.ExportedProgram | str | os.PathLike | onnx.ModelProto | tvm.IRModule
        A file as for `compile`, a program of PyTorch, an ONNX model, or a module with a function
        `main`.
    inputs : Sequence | Mapping[str, numpy.ndarray] | None
        The positional arguments of a program, by default those that it was exported with; or the
        inputs of an ONNX model or module by name or in order. Those without a value are drawn.
    params : dict[str, tvm.runtime.Tensor] | None
        Values of parameters of a module, as for `partition_for_dnnl`.
    reference : str | None
        "source" for the framework of the model, or "numpy" for the definition of each op of the
        imported module, in float64. Default: "numpy" for a module, "source" for others.
    shape, constants, target, options
        As for `compile`.

    Returns
    -------
    verification : Verification
        The errors of all ops. Its text is a table of the largest.

    Raises
    ------
    TypeError, ValueError
        As for `compile`; there is no such input, or a value does not fit it; or the source cannot
        be run.

    Examples
    --------
    >>> print(tvm_dnnl.verify("model.onnx", precision="bfloat16"))
    """
    check_options(options, partition_for_dnnl)
    compiled.target_of(target)
    model, shape, constants = opened(model, shape, constants)
    model = verification.referenced(model, reference, shape, constants)
    if isinstance(model, tvm.IRModule):
        shape = constants = None
    given = (options, target, shape, constants, params)
    return verification.errors_of(model, inputs, partition_for_dnnl, *given)


@compiler_lock.entry("compile for the cache")
def cached_library(
    mod: tvm.IRModule,
    params: dict[str, tvm.runtime.Tensor] | None = None,
    *,
    folder: str | os.PathLike,
    target: tvm.target.Target | str,
    **options,
) -> str:
    """Partition and compile a module once for all processes that share a folder.

    The cache key is a digest of the module, parameters, target, options and PassContext, the
    contents of TVM and this backend, and the features of the CPU. A cached library is used only if
    its file is intact. Tuning databases and instruments of the PassContext are not part of the key:
    compile models that depend on them without the cache. Old libraries are never removed.

    Parameters
    ----------
    mod : tvm.IRModule
        The module, not partitioned.
    params : dict[str, tvm.runtime.Tensor] | None
        As for `partition_for_dnnl`.
    folder : str | os.PathLike
        The cache. Libraries are code: give write access only to users who may run code as you.
    target : tvm.target.Target | str
        The target that TVM compiles for.
    options
        Those of `partition_for_dnnl`.

    Returns
    -------
    path : str
        Path of the library, for `tvm.runtime.load_module`.

    Raises
    ------
    TypeError, ValueError
        As for `partition_for_dnnl`.
    OSError
        The library is not cached and cannot be written.
    """
    return compiled.cached_library(mod, params, folder, target, options, partition_for_dnnl)


def offload_report(mod: tvm.IRModule) -> OffloadReport:
    """Report which ops of a Relax module run on oneDNN, and why the others do not.

    Parameters
    ----------
    mod : tvm.IRModule
        A module, partitioned or not, before ``RunCodegen``. Before partitioning, nothing is
        offloaded, and the report lists the ops that would be refused.

    Returns
    -------
    report : OffloadReport
        The counts and the reasons, by the names of ops in Relax. Its text is a table.

    Raises
    ------
    TypeError
        `mod` is not a module.
    """
    check_module(mod, tvm.IRModule)
    return make_report(mod, TABLE)
