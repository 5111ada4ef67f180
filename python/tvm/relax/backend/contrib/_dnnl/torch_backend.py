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
"""The backend "tvm_dnnl" of `torch.compile`."""

from __future__ import annotations

import logging

import tvm
from tvm.contrib.onednn import compiler_lock
from tvm.contrib.onednn.arguments import check_options

from . import compiled, importers, verification
from .loaded import machine

_LOGGER = logging.getLogger("tvm_dnnl")


def torch_backend(graph_module, example_inputs, *, options: dict | None = None):
    """Compile a graph of TorchDynamo: the backend "tvm_dnnl" of `torch.compile`.

    Each graph is compiled when it is called, once for each set of weights and shapes, up to 16
    times. PyTorch runs a graph that cannot be compiled, one whose results share memory with its
    arguments, and calls that need gradients, with a RuntimeWarning that says why. The logger
    "tvm_dnnl" reports the number of ops on oneDNN with the level INFO.

    Parameters
    ----------
    graph_module : torch.fx.GraphModule
        The graph.
    example_inputs : list
        Not used.
    options : dict | None
        Options of `partition_for_dnnl`, and "target" and "verify" of `compile`: PyTorch runs a
        graph that differs.

    Returns
    -------
    compiled : callable
        Accepts and returns the graph's tensors. They are passed without a copy if they are
        contiguous and aligned to 64 bytes; results are contiguous.

    Raises
    ------
    TypeError, ValueError
        An option is invalid, as for `partition_for_dnnl`.
    """
    from .. import dnnl

    given = dict(options or {})
    target = compiled.target_of(given.pop("target", None))
    verify = given.pop("verify", None)
    verification.is_wanted(verify, graph_module)  # raises, as the next line
    check_options(given, dnnl.partition_for_dnnl)
    dnnl.partition_for_dnnl(tvm.IRModule(), **given)  # raises if an option is invalid

    @compiler_lock.entry("compile a graph of TorchDynamo")
    def build(program):
        partitioned = dnnl.partition_for_dnnl(dnnl.from_exported_program(program), **given)
        report = dnnl.offload_report(partitioned)
        _LOGGER.info("%d of %d ops run on oneDNN", report.offloaded, report.total)
        library = compiled.build(partitioned, target)
        if verify is not False:
            partition = dnnl.partition_for_dnnl
            note = verification.verify(program, machine(library), partition, given, target)
            _LOGGER.debug("verified: %s", note)
        return library

    return importers.dynamo_graph(graph_module, build)
