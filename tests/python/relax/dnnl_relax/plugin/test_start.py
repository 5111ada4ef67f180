# SPDX-License-Identifier: Apache-2.0
"""Processes that load and run a library: TVM is imported only where it is needed."""

import subprocess
import sys

import numpy as np
import tvm
import tvm_dnnl
from onnx import TensorProto, helper

from dnnl_relax.integration.test_cache import cached_file
from dnnl_relax.modules import X4, compiled, conv_bias_relu, module, run


def in_new_process(program, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_library_is_run_without_importing_tvm(tmp_path):
    """`import tvm` takes most of the time of such a process. It may come later."""
    path = tmp_path / "model.so"
    mod = compiled(tvm_dnnl.partition_for_dnnl(module(conv_bias_relu, X4), prune=False))
    tvm_dnnl.export_library(tvm.compile(mod, target="llvm"), path)
    in_new_process(
        "import sys, numpy, tvm_dnnl\n"
        "model, x = tvm_dnnl.load_model(sys.argv[1]), numpy.ones((2, 6, 9, 9), 'float32')\n"
        "y = model(x)\n"
        "assert 'tvm' not in sys.modules and type(model) is tvm_dnnl.CompiledModel\n"
        "import tvm\n"
        "from tvm import relax\n"
        "from tvm.contrib.onednn.compiled_model import CompiledModel\n"
        "assert type(model) is CompiledModel\n"
        "vm = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())\n"
        "assert (vm['main'](tvm.runtime.tensor(x)).numpy() == y).all() and (model(x) == y).all()\n"
        "tvm_dnnl.partition_for_dnnl(tvm.IRModule())\n"
        "numpy.save(sys.argv[2], y)",
        path,
        tmp_path / "y.npy",
    )
    (wanted,) = run(module(conv_bias_relu, X4), np.ones((2, 6, 9, 9), "float32"))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, rtol=1e-5, atol=1e-5)


def test_a_library_that_calls_functions_in_tvms_python(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("NonZero", ["y"], ["z"])]
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("z", TensorProto.INT64, [2, "n"])],
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    tvm_dnnl.compile(model).export_library(tmp_path / "model.so")
    in_new_process(
        "import sys, numpy, tvm_dnnl\n"
        "model = tvm_dnnl.load_model(sys.argv[1])\n"
        "result = model(numpy.array([[0, 1, 0], [-1, 2, 3]], 'float32'))\n"
        "assert result.tolist() == [[0, 1, 1], [1, 1, 2]]",
        tmp_path / "model.so",
    )


def test_the_library_of_a_file_is_found_without_importing_tvm(tmp_path):
    """Both kinds of processes compute the same key."""
    x = np.ones((3, 8), "float32")
    expected = cached_file(tmp_path)(x)
    in_new_process(
        "import sys, numpy, tvm_dnnl\n"
        "path, folder, result = sys.argv[1:]\n"
        "model = tvm_dnnl.cached_model(path, folder=folder, prune=False, target='llvm')\n"
        "assert 'tvm' not in sys.modules and 'onnx' not in sys.modules\n"
        "numpy.save(result, model(numpy.ones((3, 8), 'float32')))",
        tmp_path / "model.onnx",
        tmp_path / "cache",
        tmp_path / "y.npy",
    )
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_module_partitioned_elsewhere_is_compiled():
    """TVM calls the code generator before any function of this package was used."""
    in_new_process(
        "import tvm_dnnl, tvm_ffi\n"
        "assert tvm_ffi.get_global_func('relax.ext.dnnl')([], {}, {}) == []\n"
        "import tvm\n"
        "from tvm.contrib.onednn.frontend.prepare import prepare"
    )


def test_the_first_calls_of_several_threads(tmp_path):
    in_new_process(
        "import threading, tvm_dnnl\n"
        "barrier, partitions = threading.Barrier(6), []\n"
        "def call():\n"
        "    barrier.wait()\n"
        "    partitions.append(tvm_dnnl.partition_for_dnnl)\n"
        "threads = [threading.Thread(target=call) for _ in range(6)]\n"
        "for each in threads: each.start()\n"
        "for each in threads: each.join()\n"
        "assert len(partitions) == 6 and len(set(partitions)) == 1"
    )


def test_onnxruntime_that_verify_imports_has_no_telemetry(tmp_path):
    """Its telemetry begins with a file in the user's folder."""
    in_new_process(
        "import os, sys\n"
        "os.environ.update(HOME=sys.argv[1], XDG_CACHE_HOME=sys.argv[1])\n"
        "os.environ.pop('ORT_DISABLE_TELEMETRY', None)\n"
        "import tvm_dnnl\n"
        "from tvm.contrib.onednn.verify.onnx_runners import onnxruntime\n"
        "assert onnxruntime().__version__",
        tmp_path,
    )
    assert not list(tmp_path.rglob("*"))
