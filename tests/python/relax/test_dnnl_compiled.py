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
"""The runtime module in what TVM compiles: imported, run by the VM, exported and loaded again."""

import json
import subprocess
import sys

import dnnl_graphs as graphs
import numpy as np
import pytest
import tvm
import tvm_dnnl  # noqa: F401, it registers the runtime
import tvm_ffi
from tvm import relax
from tvm.relax.dpl import is_const, is_op, wildcard
from tvm_dnnl._dnnl.reading import Constant

SHAPE = (1, 8, 6, 6)


def graph_of(name, batch):
    """Return relu(conv2d(x, w)) as a graph with a constant of this name."""
    shape = [batch, *SHAPE[1:]]
    attrs = {key: value for key, value in graphs._CONV.items() if "__0__" not in key}
    nodes = [
        graphs.node("input", "x", shape),
        graphs.node("const", name, list(graphs.W.shape)),
        graphs.node("kernel", "conv", shape, [0, 1], **{**attrs, "post_ops": ["nn.relu"]}),
    ]
    return graphs.graph(nodes, [2])


def constants_of(function):
    """Return the constants in a function."""
    exprs = []
    relax.analysis.post_order_visit(function, exprs.append)
    return [expr for expr in exprs if isinstance(expr, Constant)]


def codegen(functions, _, constant_names):
    """Write the graph of functions that are one convolution and a relu."""
    modules = []
    for function in functions:
        (name,) = {str(constant_names[constant]) for constant in constants_of(function)}
        batch = function.params[0].ty.shape[0]
        batch = int(batch) if isinstance(batch, tvm.tirx.IntImm) else -1
        symbol = str(function.attrs["global_symbol"])
        graph = {**graph_of(name, batch), "symbol": symbol}
        create = tvm_ffi.get_global_func("runtime.DNNLJSONRuntimeCreate")
        modules.append(create(symbol, json.dumps(graph), [name]))
    return modules


@pytest.fixture
def compiled(request):
    """Return the executable of a model of one convolution, for a batch."""
    before = tvm_ffi.get_global_func("relax.ext.dnnl", allow_missing=True)
    tvm_ffi.register_global_func("relax.ext.dnnl", codegen, override=True)
    batch = tvm.tirx.Var("n", "int64") if request.param is None else request.param
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((batch, *SHAPE[1:]), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, relax.const(graphs.W), padding=(1, 1)))
            y = builder.emit_output(builder.emit(relax.op.nn.relu(y)))
        builder.emit_func_output(y)
    pattern = is_op("relax.nn.relu")(is_op("relax.nn.conv2d")(wildcard(), is_const()))
    passes = [
        relax.transform.FuseOpsByPattern([("dnnl.conv", pattern)], annotate_codegen=True),
        relax.transform.RunCodegen(),
    ]
    mod = tvm.transform.Sequential(passes)(builder.get())
    yield tvm.compile(mod, target="llvm")
    if before is not None:
        tvm_ffi.register_global_func("relax.ext.dnnl", before, override=True)


def reference(x):
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, graphs.W), 0)


def run(executable, batch):
    x = graphs.rand(batch, *SHAPE[1:], seed=batch)
    vm = relax.VirtualMachine(executable, tvm.cpu())
    np.testing.assert_allclose(
        vm["main"](graphs.tensor(x)).numpy(), reference(x), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("compiled", [1], indirect=True)
def test_static(compiled):
    run(compiled, 1)


@pytest.mark.parametrize("compiled", [None], indirect=True)
def test_open_batch(compiled):
    for batch in (1, 2, 5, 1):
        run(compiled, batch)


IN_NEW_PROCESS = """
import sys
import tvm
import test_dnnl_compiled as test

test.run(tvm.runtime.load_module(sys.argv[1]), 3)
"""


@pytest.mark.parametrize("compiled", [None], indirect=True)
def test_exported(compiled, tmp_path):
    path = str(tmp_path / "model.so")
    compiled.export_library(path)
    run(tvm.runtime.load_module(path), 2)
    done = subprocess.run(
        [sys.executable, "-c", IN_NEW_PROCESS, path],
        cwd=graphs.__file__.rpartition("/")[0],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
