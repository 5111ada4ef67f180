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
"""oneDNN for Relax: what oneDNN can run moves into functions that the DNNL runtime executes.

``partition_for_dnnl`` chooses and fuses; ``relax.transform.RunCodegen`` then compiles what it made.
The table and the rules in ``tvm.contrib.onednn`` say which ops, shapes and types oneDNN runs.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

import tvm
import tvm_ffi
from tvm import relax
from tvm.contrib.onednn import cache, interrupts
from tvm.contrib.onednn.export import check_writes_of, export_library
from tvm.contrib.onednn.options import make_options
from tvm.contrib.onednn.policy import cpu
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.table import TABLE
from tvm.contrib.onednn.report.offload_report import OffloadReport

from ._dnnl import pipeline
from ._dnnl.codegen import compile_partitions
from ._dnnl.ops import ROWS
from ._dnnl.relax_report import make_report

__all__ = [
    "OffloadReport",
    "cached_library",
    "dnnl_version",
    "export_library",
    "num_threads",
    "offload_report",
    "partition_for_dnnl",
    "set_num_threads",
]

cpu.connect(functools.partial(tvm.get_global_func, allow_missing=True))
check_writes_of(tvm_ffi.Module, "write_to_file")
tvm.register_global_func("relax.ext.dnnl", compile_partitions, override=True)


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
) -> tvm.IRModule:
    """Move what oneDNN can run into functions that the DNNL code generator compiles.

    Constants are folded. A batch_norm that follows a convolution or matmul is folded into its
    weight and bias, as are constant factors and summands of channels; any other becomes one factor
    and one summand of each channel. What oneDNN cannot run stays as it is; `offload_report` tells
    what and why. Compile with ``relax.transform.RunCodegen()`` and ``tvm.compile``.

    Parameters
    ----------
    mod : tvm.IRModule
        The Relax module to partition. It is not changed.
    params : dict[str, tvm.runtime.Tensor] | None
        Values by name for parameters of functions, which become constants.
    mod_name : str
        Goes into the names of the partitions.
    prune : bool | None
        Whether partitions that are too small to win go back to TVM; True by default.
    exclude : Sequence[str] | None
        Ops by Relax's names or the table's, or composites ("nn.conv2d", "permute_dims",
        "dnnl.conv2d_bias") that are to stay on TVM; none by default.
    precision : str | None
        What convolutions and matmuls of float32, and the ops between them, compute in: "float32",
        the default, "bfloat16", "float16", or "auto", bfloat16 where this CPU is faster in it and
        else float32. The arguments and results of functions keep their types.
    exact_nan : bool | None
        Whether `nn.relu`, `clip`, `maximum`, `minimum`, `max`, `min`, hard sigmoid and max pools
        give NaN where an operand is NaN, as NumPy does; by default they may drop it, as in TVM.
        It costs two or three ops more for each of these, so it is for finding where NaN appears.
    num_threads : int | None
        The number of threads that oneDNN runs the partitions on, or 0 for what the process says
        when they are first run, which is the default.

    Returns
    -------
    partitioned : tvm.IRModule
        The module with a function of `Codegen` "dnnl" for each partition.

    Raises
    ------
    TypeError
        An argument is of the wrong type.
    ValueError
        An argument has a value that makes no sense, such as a name in `exclude` that no op has, or
        a `precision` that this CPU lacks.
    """
    _check_module(mod)
    if isinstance(exclude, (list, tuple)):
        exclude = [str(name).removeprefix("relax.") for name in exclude]
    given = dict(
        prune=prune,
        exclude=exclude,
        precision=precision,
        exact_nan=exact_nan,
        num_threads=num_threads,
    )
    names = [*TABLE, *(name.removeprefix("relax.") for name in ROWS)]
    options = make_options(mod_name, given, names, tvm.ir.Op.list_op_names)
    with interrupts.deferred():
        return pipeline.partition(mod, params, Rules(TABLE, options))


def cached_library(
    mod: tvm.IRModule,
    params: dict[str, tvm.runtime.Tensor] | None = None,
    *,
    folder: str | os.PathLike,
    target: tvm.target.Target | str,
    **options,
) -> str:
    """Partition and compile a module once for all processes that share a folder.

    The library is there under the digest of the module, parameters, target, options and
    PassContext, of the content of TVM and of this backend, and of what the CPU can do. It is read
    again only if it is as it was written. Tuning databases and instruments of the PassContext are
    not looked at: compile by hand what depends on these. Nothing is ever removed for being old.

    Parameters
    ----------
    mod : tvm.IRModule
        The module, not partitioned.
    params : dict[str, tvm.runtime.Tensor] | None
        As `partition_for_dnnl` has them.
    folder : str | os.PathLike
        The cache. Libraries are code: let nobody write there whom you would not let run programs.
    target : tvm.target.Target | str
        What TVM compiles for.
    options
        Those of `partition_for_dnnl`.

    Returns
    -------
    path : str
        The library, for `tvm.runtime.load_module`.

    Raises
    ------
    TypeError, ValueError
        As `partition_for_dnnl`.
    OSError
        The library is not there and cannot be written.
    """
    _check_module(mod)
    # The text has names and no values of constants; the hash has these. Both are the same in each
    # process, and TVM's JSON is not to be had: save_json of 0.27 fails on functions of Relax.
    texts = [mod.script(), str(tvm_ffi.structural_hash(mod))]
    key = cache.key_of(tvm, Path(__file__).parent, texts, params, options, str(target))

    def write(path):
        compiled = relax.transform.RunCodegen()(partition_for_dnnl(mod, params, **options))
        tvm.compile(compiled, target=target).export_library(path)

    return cache.library(folder, key, write)


def offload_report(mod: tvm.IRModule) -> OffloadReport:
    """Tell which ops of a Relax module run on oneDNN, and why the others do not.

    Parameters
    ----------
    mod : tvm.IRModule
        A module, partitioned or not, before ``RunCodegen``. Before partitioning nothing is
        offloaded, and the report tells what would be refused.
    """
    return make_report(mod, TABLE)


def _check_module(mod) -> None:
    if not isinstance(mod, tvm.IRModule):
        raise TypeError(f"mod must be a tvm.IRModule, not {type(mod).__name__}")


def dnnl_version() -> str:
    """Return the version of the oneDNN library that is loaded, such as "3.2.0"."""
    return str(tvm.get_global_func("runtime.contrib.dnnl.version")())


def num_threads() -> int:
    """Return the number of threads for models whose first run is still to come."""
    return int(tvm.get_global_func("runtime.contrib.dnnl.get_num_threads")())


def set_num_threads(number: int) -> None:
    """Choose the number of threads for models whose first run is still to come; 0 takes it back."""
    tvm.get_global_func("runtime.contrib.dnnl.set_num_threads")(number)
