# SPDX-License-Identifier: Apache-2.0
"""Deployment without a compiler: our runtime half on the runtime of TVM v0.19.0."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import real_trees
from small_tree import scratch_folder

from scripts.layout import ROOT, Layout
from scripts.setup import machine

tvm = pytest.importorskip("tvm")

ONEDNN = Layout().onednn
RUNTIME = ROOT / "src/runtime/contrib/dnnl"
SOURCES = sorted(RUNTIME.glob("**/*.cc"))
OBJECTS = Layout().cmake / "CMakeFiles/dnnl_core_objs.dir"
PARTS = ("core/ops", "core/plan", "core")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (ONEDNN / "include").is_dir(), reason="needs the oneDNN that set-up fetches"
    ),
]

# Runs in a process whose `tvm` is v0.19.0's, with the library that has the runtime alone.
RUN = """
import ctypes, sys
import numpy as np
import tvm
from tvm.contrib import graph_executor

library, model, source, result = sys.argv[1:]
assert tvm.__version__ == "0.19.0" and tvm._ffi.base._RUNTIME_ONLY
ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
assert tvm.get_global_func("relay.ext.dnnl", allow_missing=True) is None, "a codegen is loaded"
module = graph_executor.GraphModule(tvm.runtime.load_module(model)["default"](tvm.cpu()))
module.run(x=np.load(source))
np.save(result, module.get_output(0).numpy())
"""


def compile_flags(tree: Path) -> list:
    """Return the flags for our sources against the headers of a TVM tree."""
    headers = [tree / "include", tree / "3rdparty/dmlc-core/include"]
    headers += [tree / "3rdparty/dlpack/include", ONEDNN / "include"]
    flags = ["-std=c++17", "-O0", "-fPIC", "-Wall", "-Wextra", "-Werror", "-DNDEBUG"]
    flags += ["-DDNNL_UNITY_BUILD", "-DDMLC_USE_FOPEN64=0"]
    flags += ["-DDMLC_USE_LOGGING_LIBRARY=<tvm/runtime/logging.h>"]
    return flags + [word for path in headers for word in ("-isystem", str(path))]


def run(command, **options):
    """Run a command; its output is in the error if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


@pytest.fixture(scope="module")
def library():
    """Our runtime half, compiled against v0.19.0 and linked with its runtime."""
    tree = real_trees.wheel_tree()
    compiler = os.environ.get("CXX", "c++")
    launcher = machine.compiler_launcher(ROOT)
    with scratch_folder() as folder:
        folder = Path(folder)

        def compile_unit(unit):
            command = [*launcher, compiler, *compile_flags(tree), "-c", unit.name]
            run([*command, "-o", unit.with_suffix(".o").name], cwd=folder)
            return str(unit.with_suffix(".o"))

        # Sources of a part at once: headers take most of the time. Kernels know no TVM and have no
        # strings, whose ABI is another one here: the library's objects are linked, if it is built.
        parts, objects = {}, []
        for source in SOURCES:
            is_kernel = '#include "cpu_clones.h"' in source.read_text()
            compiled = OBJECTS / source.relative_to(ROOT).with_suffix(".cc.o")
            if is_kernel and compiled.is_file():
                objects.append(str(compiled))
            else:
                name = str(source.relative_to(RUNTIME).parent)
                part = next((each for each in PARTS if name.startswith(each)), "")
                parts.setdefault(source if is_kernel else part, []).append(source)
        units = [folder / f"{number}.cc" for number in range(len(parts))]
        for unit, sources in zip(units, parts.values()):
            unit.write_text("".join(f'#include "{each}"\n' for each in sources))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects += pool.map(compile_unit, units)
        output = folder / "libtvm_dnnl_runtime.so"
        places = [tree, ONEDNN / "lib"]
        search = [flag for p in places for flag in (f"-L{p}", f"-Wl,-rpath,{p}")]
        # -z defs: a symbol that only the compiler's library has would be an error here.
        link = [compiler, "-shared", *objects, *search, "-ltvm_runtime", "-ldnnl", "-Wl,-z,defs"]
        run([*link, "-o", str(output)])
        yield output


def test_an_exported_model_runs(library, tmp_path):
    from tvm import relay
    from tvm.relay.op.contrib import dnnl
    from tvm.testing import dnnl as testing

    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, shape).astype("float32") for shape in [(1, 8, 6, 6), (8, 8, 3, 3)])
    conv = relay.nn.conv2d(
        relay.var("x", shape=x.shape), relay.const(w), kernel_size=(3, 3), padding=(1, 1)
    )
    # With an op that TVM compiles, after the one that oneDNN runs.
    mod = tvm.IRModule.from_expr(relay.cumsum(relay.nn.relu(conv), axis=1))
    lib = testing.build(dnnl.partition_for_dnnl(mod))
    assert [module.type_key for module in testing.dnnl_modules(lib)] == ["dnnl_json"]
    model, source, result = (tmp_path / name for name in ("model.so", "x.npy", "y.npy"))
    lib.export_library(str(model))
    np.save(source, x)

    tree = real_trees.wheel_tree()
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "python"),
        "TVM_LIBRARY_PATH": str(tree),
        "TVM_USE_RUNTIME_LIB": "1",
    }
    script = [sys.executable, "-c", RUN, str(library), str(model), str(source), str(result)]
    run(script, env=environment, cwd=tmp_path)
    testing.assert_close([np.load(result)], testing.Runner(lib)({"x": x}), 1e-6)
