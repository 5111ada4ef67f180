# SPDX-License-Identifier: Apache-2.0
"""Modules with open dimensions: a plan for each shape, and the cache of plans."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relay, rpc, te
from tvm.relay.op.contrib import dnnl
from tvm.runtime.vm import VirtualMachine
from tvm.testing import dnnl as testing

from dnnl_tests.marks import json_only
from dnnl_tests.reference import RTOL, rand
from dnnl_tests.runtime.dynamic import DynamicModule, reference, relay_module

pytestmark = json_only


def test_what_a_plan_tells():
    """Each plan as `get_plan` of a static module does, and what is in memory."""
    static = DynamicModule(())
    static.run(rand(1, 3, 6, 6))
    module = DynamicModule((0,))
    assert module.plans()["plans"] == [] and module.plans()["misses"] == 0
    for batch in (3, 1):
        module.run(rand(batch, 3, 6, 6))
    plans = module.plans()
    latest = plans["plans"][0]
    added = {"input_shapes", "contexts", "stages"}
    assert set(latest) == set(static.plans()) - {"symbol"} | added
    kinds = [[step["kind"] for step in plan["primitives"]] for plan in (latest, static.plans())]
    assert kinds[0] == kinds[1]
    arenas = [plan["arena_bytes"] + plan["scratchpad_bytes"] for plan in plans["plans"]]
    assert [plan["contexts"] for plan in plans["plans"]] == [1, 1]
    assert plans["run_bytes"] == sum(arenas)
    assert plans["graph_constant_bytes"] == 4 * (8 * 3 * 9 + 8 * 8 * 9 + 8)
    sums = ("run_bytes", "graph_constant_bytes", "packed_constant_bytes")
    assert plans["bytes"] == sum(plans[key] for key in sums)


def test_an_empty_batch_has_empty_results():
    module = DynamicModule((0,))
    call = module[module.symbol]
    empty = tvm.nd.array(np.zeros((0, 3, 6, 6), "float32"))
    call(empty, tvm.nd.empty((0, 8, 6, 6)))
    assert module.plans()["plans"] == []
    with pytest.raises(tvm.TVMError, match=r"output 0 must be float32 \[\?, 8, 6, 6\], but is"):
        call(empty, tvm.nd.empty((0, 8, 6, 5)))


def library(path, module):
    """Export a module as what a small library of TVM imports; returns the path."""
    x = te.placeholder((1,), name="x")
    y = te.compute((1,), lambda i: x[i])
    host = tvm.build(te.create_schedule(y.op), [x, y], dnnl.host_target(), name="nothing")
    host.import_module(module)
    testing.export(host, str(path))
    return str(path)


@pytest.fixture
def remote():
    """A session with a server in another process."""
    server = rpc.Server(host="127.0.0.1", port=19190, port_end=19290)
    yield rpc.connect("127.0.0.1", server.port)
    server.terminate()


def test_a_library_runs_over_rpc(tmp_path, remote):
    module = DynamicModule((0,), constant=False)
    remote.upload(library(tmp_path / "model.so", module.module))
    call = remote.load_module("model.so").get_function(module.symbol, query_imports=True)
    for batch in (1, 4):
        x = rand(batch, 3, 6, 6, seed=batch)
        values = [tvm.nd.array(v.numpy(), remote.cpu()) for v in module.arguments(x)]
        call(*values)
        testing.assert_close([values[-1]], [reference(x)], RTOL)


def test_an_executable_of_the_vm_runs_over_rpc(tmp_path, remote):
    size = relay.Any()
    mod = dnnl.partition_for_dnnl(relay_module((size, 3, size, size), fused=True, constant=True))
    assert testing.offload(mod).partitions == 1
    path = str(tmp_path / "model.so")
    testing.export(testing.build(mod, executor="vm"), path)
    remote.upload(path)
    machine = VirtualMachine(remote.load_module("model.so"), remote.cpu())
    for shape in ((1, 3, 6, 6), (2, 3, 5, 9), (1, 3, 6, 6)):
        x = rand(*shape)
        data = tvm.nd.array(x, remote.cpu())
        testing.assert_close([machine.invoke("main", data)], [reference(x)], RTOL)
        machine.set_input("main", data)
        machine.invoke_stateful("main")
        testing.assert_close(machine.get_outputs(), [reference(x)], RTOL)


@pytest.mark.timeout(600)
def test_memory_stays_flat_under_a_thousand_shapes():
    done = subprocess.run(
        [sys.executable, "-m", "dnnl_tests.runtime.dynamic", "1000"],
        cwd=pathlib.Path(__file__).parents[2],
        # oneDNN keeps the code of so many primitives itself, else of 1,024: that of 500 shapes.
        env={**os.environ, "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    megabytes = json.loads(done.stdout.splitlines()[-1])["megabytes"]
    assert len(megabytes) == 10 and max(megabytes) - megabytes[0] < 1, megabytes
