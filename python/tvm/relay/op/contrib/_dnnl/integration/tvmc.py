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
"""The functions that TVM's command line calls for the target `dnnl`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator

import tvm
from tvm.contrib.onednn.export import replaced_at_end


def partition_for_tvmc(
    mod: tvm.IRModule,
    params: dict[str, tvm.nd.NDArray] | None = None,
    mod_name: str = "default",
    **options: object,
) -> tvm.IRModule:
    """Partition a module for `tvmc compile --target="dnnl -prune=0, llvm"`; say what runs where.

    A line on stderr has the numbers of ops and partitions, and what stays on TVM. From then on the
    package that is written is there as a whole, or not at all.

    Parameters
    ----------
    mod, params, mod_name
        As for :py:func:`tvm.relay.op.contrib.dnnl.partition_for_dnnl`.
    options : object
        Not looked at: tvmc has put them into the PassContext, which has checked them.

    Returns
    -------
    partitioned : tvm.IRModule
        The module with a function of `Compiler` "dnnl" for each partition.

    Raises
    ------
    TVMCException
        This TVM has no DNNL code generator, or an option has a value that makes no sense.
    """
    # Here and not above: tvmc imports this module while it is imported itself.
    from tvm.driver.tvmc import TVMCException  # pylint: disable=import-outside-toplevel
    from tvm.driver.tvmc.model import TVMCModel  # pylint: disable=import-outside-toplevel

    from ... import dnnl  # pylint: disable=import-outside-toplevel

    if not dnnl.is_dnnl_available():
        raise TVMCException(
            "this TVM has no target dnnl; build it with USE_DNNL_CODEGEN set to ON in config.cmake"
        )
    for name, sizes in _open_inputs(mod):
        print(
            f"target dnnl: input {name} has no fixed shape, so only the VM can run the model: pass "
            f'--input-shapes "{name}:[{",".join(sizes)}]" with numbers',
            file=sys.stderr,
        )
    try:
        partitioned = dnnl.partition_for_dnnl(mod, params, mod_name)
    except ValueError as error:
        raise TVMCException(f"target dnnl: {error}") from error
    print(f"target dnnl: {dnnl.offload_report(partitioned).summary}", file=sys.stderr)
    _replace_packages_at_end(TVMCModel)
    return partitioned


def _open_inputs(mod: tvm.IRModule) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and shape of each input with open dimensions, which are written as "?"."""
    for param in mod["main"].params:
        sizes = getattr(param.type_annotation, "shape", ())
        if any(isinstance(size, tvm.tir.Any) for size in sizes):
            texts = ["?" if isinstance(size, tvm.tir.Any) else str(size) for size in sizes]
            yield param.name_hint, texts


def _replace_packages_at_end(model: type) -> None:
    """Let tvmc finish a package before it has the name of an old one.

    Its own way leaves half a package when the disk is full or the process is killed. It does not
    tell a target which model it compiles, so this holds for all that the process compiles later.
    """
    export = model.export_package
    if hasattr(export, "__wrapped__"):
        return

    @functools.wraps(export)
    def export_package(self, executor_factory, package_path=None, *args, **options):
        if package_path is None:  # a temporary file of its own
            return export(self, executor_factory, None, *args, **options)
        with replaced_at_end(package_path) as new:
            export(self, executor_factory, str(new), *args, **options)
        return package_path

    model.export_package = export_package
