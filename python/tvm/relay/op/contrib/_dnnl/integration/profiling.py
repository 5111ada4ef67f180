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
"""Shows TVM's profiler the oneDNN primitives in a partition."""

from __future__ import annotations

import tvm
from tvm.runtime.profiling import MetricCollector, Report

_KEY = "runtime.profiling.DNNLMetricCollector"


class DNNLMetricCollector(MetricCollector):
    """Has TVM's profiler look into the partitions: a collector for its `profile` functions.

    To TVM's profiler a partition is one call. With this collector the row of the call says how many
    oneDNN primitives ran in it, how long they took together, at how many GFLOP/s, how many of them
    are reference implementations, which are slow, and which one took longest. `report` has a row
    for each primitive.

    Primitives are timed one by one while the profiler runs, and on its thread alone. It works
    with the graph executor's debugger, the profiler of the VM and `profile_function`, with either
    codegen, for one profile at a time. Over RPC TVM takes no collectors.

    Raises
    ------
    RuntimeError
        This TVM has no DNNL runtime.

    Examples
    --------
    >>> collector = dnnl.DNNLMetricCollector()
    >>> print(debug_executor.profile(collectors=[collector], data=data).table())
    >>> print(collector.report().table(sort=False, aggregate=False))
    """

    def __init__(self):
        create = tvm.get_global_func(_KEY, allow_missing=True)
        if create is None:
            raise RuntimeError("this TVM has no DNNL runtime, so it has no primitives to profile")
        self.__init_handle_by_constructor__(create)

    def report(self) -> Report:
        """Return the primitives of the latest profile.

        Returns
        -------
        report : tvm.runtime.profiling.Report
            A row for each primitive in the order in which they ran, with the node, kind,
            implementation, layouts, post-ops, shapes, threads, GFLOP/s of convolutions and matmuls,
            and the share of the whole run. `table()`, `csv()` and `json()` print it.
        """
        return tvm.get_global_func("runtime.profiling.DNNLReport")(self)


if tvm.get_global_func(_KEY, allow_missing=True) is not None:
    tvm._ffi.register_object(_KEY)(DNNLMetricCollector)
