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
"""Running a few ops on oneDNN alone and looking at what ran, for the tests of single ops."""

import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing


def var(name, shape):
    """Return a float32 variable."""
    return relay.var(name, shape=shape, dtype="float32")


def run_alone(expr, inputs, params, reference, *, kinds, rtol, composites=None):
    """Offload all of `expr` as one partition, run it, and compare it with `reference`.

    Parameters
    ----------
    expr : relay.Expr
        An expression with nothing but ops that oneDNN can run.
    inputs, params : dict
        Values of its variables; those in `params` become constants.
    reference : numpy.ndarray or list of them
        What it must compute.
    kinds : list of str
        The kinds of the primitives that must run, reorders left out.
    rtol : float
        Largest difference, relative to the largest output.
    composites : dict, optional
        By name, the composites and virtual ops that must be there; any if absent.

    Returns
    -------
    list of dict
        The primitives of the plan without reorders. None is a reference implementation.
    """
    mod = tvm.IRModule.from_expr(expr)
    partitioned = dnnl.partition_for_dnnl(mod, params, prune=False)
    found = testing.offload(partitioned)
    assert found.partitions == 1 and not found.host_ops, f"{found}\n{partitioned}"
    if composites is not None:
        assert found.composites == composites
    runner = testing.Runner(testing.build(partitioned, opt_level=1))
    outputs = runner(inputs)
    testing.assert_close(outputs, reference if isinstance(reference, list) else [reference], rtol)
    (plan,) = testing.plans(runner)
    primitives = [step for step in plan["primitives"] if step["kind"] != "reorder"]
    assert [step["kind"] for step in primitives] == kinds
    for step in primitives:
        assert not step["impl"].startswith("ref"), f"{step} is slow"
    return primitives


def reasons(expr, params=None):
    """Return the texts of the reasons why the calls of `expr` stay on TVM, none offloaded."""
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), params, prune=False)
    report = dnnl.offload_report(mod)
    assert report.offloaded == 0, str(report)
    return [text for counts in report.reasons.values() for text in counts]
