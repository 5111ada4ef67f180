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

``tvm/contrib/onednn/policy/table.py`` has a row for each op that oneDNN runs. The private package
``_dnnl`` makes patterns, annotations and partitions of them.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import tvm
from tvm import relay
from tvm.contrib.onednn import cache
from tvm.contrib.onednn.export import check_writes_of, export_library
from tvm.contrib.onednn.options import make_options
from tvm.contrib.onednn.policy import cpu
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.table import TABLE
from tvm.contrib.onednn.report.offload_report import OffloadReport
from tvm.ir import Op
from tvm.relay.dataflow_pattern import DFPattern

from ._dnnl.integration import coming_from_tvm, shape_functions
from ._dnnl.integration.c_source import c_source_options
from ._dnnl.integration.profiling import DNNLMetricCollector
from ._dnnl.integration.target import host_target  # not for TVM
from ._dnnl.partition import pattern_table as patterns
from ._dnnl.pass_context import options_of_pass_context
from ._dnnl.pipeline import legalize_qnn, partition
from ._dnnl.relay_report import make_report
from .register import register_pattern_table

__all__ = [
    "DNNLMetricCollector",
    "OffloadReport",
    "c_source_options",
    "cached_library",
    "dnnl_codegen",
    "dnnl_version",
    "export_library",
    "host_target",  # not for TVM
    "is_dnnl_available",
    "legalize_qnn_for_dnnl",
    "num_threads",
    "offload_report",
    "partition_for_dnnl",
    "pattern_table",
    "set_num_threads",
]

cpu.connect(functools.partial(tvm.get_global_func, allow_missing=True))
check_writes_of(tvm.runtime.Module, "save")
patterns.register(TABLE)
shape_functions.register()


@register_pattern_table("dnnl")
def pattern_table() -> list[tuple[str, DFPattern, Callable[[relay.Call], bool]]]:
    """Return (name, pattern, check) of each composite, for MergeComposite.

    The checks are those of `partition_for_dnnl`. Composites of 8 bits are matched in what
    `legalize_qnn_for_dnnl` returns.
    """
    return patterns.pattern_table(TABLE)


def legalize_qnn_for_dnnl(mod: tvm.IRModule) -> tvm.IRModule:
    """Rewrite QNN ops as float ops between 8-bit tensors, as `pattern_table` matches them.

    For pipelines of TVM's own passes, right before MergeComposite: what folds constants would
    compute the real numbers of the weights. `partition_for_dnnl` does the same and more by itself.
    Each result in 8 bits is rounded once, halves to even, where TVM's QNN ops round at each step.

    Parameters
    ----------
    mod : tvm.IRModule
        A module whose weights, scales and zero points are constants. It is not changed. Models
        with `qnn.quantize` and `qnn.dequantize` around float ops may be given, too.

    Returns
    -------
    legalized : tvm.IRModule
        The module, with `qnn.quantize` and `qnn.dequantize` as the only QNN ops where oneDNN runs
        what it was. Other QNN ops stay, for TVM.

    Raises
    ------
    TypeError
        `mod` is not a Relay module.
    """
    return legalize_qnn(_check_module(mod), Rules(TABLE))


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
) -> tvm.IRModule:
    """Move what oneDNN can run into functions that the DNNL code generator compiles.

    Dropout is removed and constants are folded. A batch_norm, and constants of channels with a
    factor among them, that follow a convolution or a dense are folded into its weight and bias;
    any other batch_norm into one factor and one summand of each channel. These are rounded once, so
    that the results may differ in the last bits. Where only strided 1x1 convolutions read an image,
    no more than what they read is computed. What oneDNN cannot run stays as it is; `offload_report`
    tells what and why. A function that a pass of TVM cannot cope with stays, with a warning.

    An option that is not given here may be given to the PassContext, as one of
    `relay.ext.dnnl.options`: `{"prune": False, "exclude": "nn.dense,nn.softmax"}`.

    Parameters
    ----------
    mod : tvm.IRModule
        The module to partition. It is not changed.
    params : dict[str, tvm.nd.NDArray] | None
        Values by name for parameters of main, which become constants. Names that main does not
        have are ignored with a warning.
    mod_name : str
        Goes into the names of the partitions: give each module that is linked into one program
        a name of its own.
    prune : bool | None
        Whether partitions that are too small to win go back to TVM; True unless the PassContext
        says otherwise.
    exclude : Sequence[str] | None
        Relay ops or composites ("nn.dense", "dnnl.conv2d_relu") that are to stay on TVM; none
        unless the PassContext names some. Without a composite its ops may still be in a smaller
        composite or on their own.
    precision : str | None
        What convolutions and matmuls of float32, and the ops between them, compute in: "float32",
        "bfloat16", "float16", or "auto", which is bfloat16 where this CPU is faster in it and else
        float32. The arguments and results of main keep their types.
        "float32" unless the PassContext says otherwise.
    bf16 : bool | None
        Deprecated: True is `precision="bfloat16"`, and False "float32".
    keep_bias_order : bool | None
        Whether a bias is added where the module adds it, as it is by default. With False, one
        behind a residual is added first, as the convolution's own; the last bits may differ.
    exact_nan : bool | None
        Whether `nn.relu`, `clip`, `maximum`, `minimum`, `max`, `min`, hard sigmoid and max pools
        give NaN where an operand is NaN, as NumPy does; by default they may drop it, as in TVM.
        It costs two or three ops more for each of these, so it is for finding where NaN appears.
    num_threads : int | None
        The number of threads that oneDNN runs the partitions on, or 0 for what the process says
        when they are first run; by default what the PassContext says, here or when the module is
        compiled. The exported library keeps the number. `set_num_threads` and the environment's
        `TVM_DNNL_NUM_THREADS` go before it, `OMP_NUM_THREADS` does not.

    Returns
    -------
    partitioned : tvm.IRModule
        The module with a function of `Compiler` "dnnl" for each partition.

    Raises
    ------
    TypeError
        An argument is of the wrong type.
    ValueError
        An argument has a value that makes no sense: a name in `exclude` that no op has, a value
        in `params` that does not fit its parameter, a `precision` that this CPU lacks.

    Notes
    -----
    What oneDNN fuses in reduced precision is rounded once; there a clip makes a bound of NaN.
    """
    given = dict(
        prune=prune,
        exclude=exclude,
        precision=precision,
        bf16=bf16,
        keep_bias_order=keep_bias_order,
        exact_nan=exact_nan,
        num_threads=num_threads,
    )
    options = make_options(
        mod_name, given, patterns.names(TABLE), Op.list_op_names, options_of_pass_context()
    )
    return partition(_check_module(mod), params, Rules(TABLE, options))


def offload_report(mod: tvm.IRModule) -> OffloadReport:
    """Tell which ops of a module run on oneDNN, and why the others do not.

    Parameters
    ----------
    mod : tvm.IRModule
        A module, partitioned or not. Before partitioning nothing is offloaded, and the report
        tells what would be refused.

    Returns
    -------
    report : OffloadReport
        Its text is a table; `to_dict()` has the same for programs, `to_json()` each op of the
        module as well.
    """
    return make_report(_check_module(mod), TABLE)


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

    The library is there under the digest of the module, parameters, target, executor, options and
    PassContext, of the content of TVM and of this backend, and of what the CPU can do. It is read
    again only if it is as it was written. Tuning logs and instruments of the PassContext are not
    looked at: compile by hand what depends on these. Nothing is ever removed for being old.

    Parameters
    ----------
    mod : tvm.IRModule
        The module, not partitioned.
    params : dict[str, tvm.nd.NDArray] | None
        As `partition_for_dnnl` has them.
    folder : str | os.PathLike
        The cache. Libraries are code: let nobody write there whom you would not let run programs.
    target : tvm.target.Target | str
        What TVM compiles for.
    executor : str
        "graph" or "vm".
    options
        Those of `partition_for_dnnl`.

    Returns
    -------
    path : str
        The library, for `tvm.runtime.load_module`.

    Raises
    ------
    ValueError
        `executor` is something else, or an option has a value that makes no sense.
    OSError
        The library is not there and cannot be written.
    """
    if executor not in ("graph", "vm"):
        raise ValueError(f'executor must be "graph" or "vm", but is {executor!r}')
    texts = _texts_of(_check_module(mod))
    key = cache.key_of(tvm, Path(__file__).parent, texts, params, options, str(target), executor)

    def write(path):
        compile_ = relay.build if executor == "graph" else relay.vm.compile
        compiled = compile_(partition_for_dnnl(mod, params, **options), target=target)
        context = tvm.transform.PassContext.current()
        codegen = context.config.get("relay.ext.dnnl.codegen", dnnl_codegen())
        export = {"options": c_source_options()} if codegen == "C_SRC" else {}
        getattr(compiled, "mod", compiled).export_library(path, **export)

    return cache.library(folder, key, write)


def _check_module(mod) -> tvm.IRModule:
    """Return `mod` if it is a Relay module."""
    if not isinstance(mod, tvm.IRModule):
        raise TypeError(
            f"mod must be a tvm.IRModule, not {type(mod).__name__}; "
            "tvm.IRModule.from_expr makes one of an expression"
        )
    return mod


def _texts_of(mod: tvm.IRModule) -> Iterator[str]:
    """Yield what a module is, function by function: itself it has them in order of addresses."""
    for kind in (mod.functions, mod.type_definitions):
        for var, value in sorted(kind.items(), key=lambda item: item[0].name_hint):
            yield var.name_hint
            yield tvm.ir.save_json(value)


def is_dnnl_available() -> bool:
    """Whether this TVM has the DNNL code generator."""
    return tvm.get_global_func("relay.ext.dnnl", allow_missing=True) is not None


def dnnl_version() -> str:
    """Return the version of the oneDNN library that the runtime uses, such as "3.2.0".

    Raises
    ------
    RuntimeError
        This TVM has no DNNL runtime.
    """
    return str(_runtime_function("version")())


def num_threads() -> int:
    """Return the number of threads for models whose first run is still to come.

    It is what `set_num_threads` was given, or else the environment's `TVM_DNNL_NUM_THREADS`, or
    else what the model was compiled for, which is not known here, or else what OpenMP gives a new
    thread, not TVM's, which may have another: `OMP_NUM_THREADS`, or the CPUs.

    Raises
    ------
    RuntimeError
        This TVM has no DNNL runtime.
    """
    return int(_runtime_function("get_num_threads")())


def set_num_threads(number: int) -> None:
    """Choose the number of threads for models whose first run is still to come.

    oneDNN divides the work at a model's first run, whose number it keeps. Where several threads run
    models, one each is usually best. The same is ``runtime.contrib.dnnl.set_num_threads``.

    Parameters
    ----------
    number : int
        The number of threads, or 0 to take the choice back.

    Raises
    ------
    RuntimeError
        This TVM has no DNNL runtime.
    TVMError
        The number is negative, or this oneDNN does not run on OpenMP.
    """
    _runtime_function("set_num_threads")(number)


def _runtime_function(name):
    function = tvm.get_global_func(f"runtime.contrib.dnnl.{name}", allow_missing=True)
    if function is None:
        raise RuntimeError(
            "this TVM has no DNNL runtime; build it with USE_DNNL_CODEGEN set to ON in config.cmake"
        )
    return function


def dnnl_codegen() -> str:
    """Return what the DNNL code generator of this TVM makes: "JSON" or "C_SRC".

    The option of the build, `USE_DNNL_CODEGEN`, decides. For one compilation the option
    `relay.ext.dnnl.codegen` of the `PassContext` may name the other.

    Raises
    ------
    RuntimeError
        This TVM has no DNNL code generator.
    """
    codegen = tvm.get_global_func("relay.ext.dnnl.codegen", allow_missing=True)
    if codegen is None:
        raise RuntimeError(
            "this TVM has no DNNL code generator; build it with USE_DNNL_CODEGEN set to ON or "
            "C_SRC in config.cmake"
        )
    return str(codegen())


def __getattr__(name: str):
    """Say what takes the place of a name that TVM's own module for DNNL has."""
    raise coming_from_tvm.missing(__name__, name, inspect.currentframe().f_back)
