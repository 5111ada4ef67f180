# SPDX-License-Identifier: Apache-2.0
"""The package tvm_dnnl: what its import registers and refuses, its wheel, and `report --relax`."""

import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm_dnnl
from dnnl_tests.onnx_models import onnx_model
from tvm.contrib import onednn

from dnnl_relax.modules import X4, compiled, conv_bias_relu, module, rand, run
from scripts import cli
from scripts.bench.worker import Worker
from scripts.console import Console
from scripts.errors import SetupError
from scripts.layout import PluginLayout
from scripts.patchset.patch_set import RELAX, PatchSet
from scripts.wheel import wheel

MODELS = "scripts.bench.relax_models"
LAYOUT = PluginLayout()
# What `./dev.py` has prepared has the packages that build a wheel, and the benchmark runs in it.
PREPARED = pytest.mark.skipif(Path(sys.prefix) != LAYOUT.venv, reason="not in dev.py's environment")


def test_it_registers_once():
    library = tvm_dnnl._LIBRARY
    importlib.reload(tvm_dnnl)
    assert tvm_dnnl._LIBRARY is library
    assert tvm_dnnl.dnnl_version().startswith("3.")
    assert tvm_dnnl.__version__ == wheel.VERSION


def refused(tmp_path, program, files=()):
    """Return what a process says that fails to import the package beside these files."""
    for name, text in dict(files).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    places = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: "), done.stderr
    return last


OTHERS = {
    "relay": ({"tvm/__init__.py": "__version__ = '0.19.0'", "tvm/relay/__init__.py": ""}, "0.19.0"),
    "no-relax": ({"tvm/__init__.py": "__version__ = '0.9'"}, "TVM 0.9 has no Relax"),
    "older": (
        {
            "tvm/__init__.py": "__version__ = '0.25.0.post1'",
            "tvm/relax/__init__.py": "",
            "tvm/relax/transform.py": "",
        },
        "TVM 0.25.0.post1 is older than 0.26",
    ),
    "no-byoc": (
        {
            "tvm/__init__.py": "__version__ = '9.9'",
            "tvm/relax/__init__.py": "",
            "tvm/relax/transform.py": "def RunCodegen(): pass",
        },
        "TVM 9.9 has no relax.transform.FuseOpsByPattern",
    ),
}


@pytest.mark.parametrize("files, message", OTHERS.values(), ids=OTHERS.keys())
def test_another_tvm(tmp_path, files, message):
    said = refused(tmp_path, "import tvm_dnnl", files)
    assert message in said
    assert tvm_dnnl.TRIED in said


def test_no_tvm(tmp_path):
    program = (
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'tvm' else find(name, *rest)\n"
        "import tvm_dnnl"
    )
    assert "needs the package tvm, which is not installed" in refused(tmp_path, program)


def test_another_backend_is_there(tmp_path):
    program = (
        "import tvm_ffi\n"
        "tvm_ffi.register_global_func('runtime.DNNLJSONRuntimeCreate', lambda: 0)\n"
        "import tvm_dnnl"
    )
    assert "this TVM has a oneDNN backend already" in refused(tmp_path, program)


def copied(tmp_path):
    """Copy what is imported of the package; return a program that imports the copy."""
    shutil.copytree(Path(onednn.__file__).parent, tmp_path / "tvm_dnnl/contrib/onednn")
    built_with = Path(tvm_dnnl._built_with.__file__)
    for path in (tvm_dnnl.__file__, built_with, built_with.with_name(LAYOUT.library.name)):
        shutil.copy(path, tmp_path / "tvm_dnnl")
    return (
        "import sys\n"
        "kept = [each for each in sys.meta_path if 'ScikitBuild' not in type(each).__name__]\n"
        "sys.meta_path[:] = kept\n"
        "import tvm_dnnl"
    )


def test_without_the_library_of_onednn(tmp_path):
    """A package that was copied elsewhere without it."""
    program = copied(tmp_path)
    said = refused(tmp_path, program)
    assert "libdnnl.so.3: cannot open shared object file" in said
    assert "install tvm_dnnl again, or put the folder of a libdnnl.so.3" in said
    (tmp_path / "tvm_dnnl/_built_with.py").unlink()  # as in the sources, which PYTHONPATH may name
    assert "is not an installed tvm_dnnl: it has no _built_with.py" in refused(tmp_path, program)


@pytest.mark.parametrize("size", [0, 99_999, None])
def test_a_library_that_is_cut_off(size, tmp_path):
    """Opening it would end the process with SIGBUS."""
    program = copied(tmp_path)
    path = tmp_path / "tvm_dnnl" / LAYOUT.library.name
    os.truncate(path, path.stat().st_size - 1 if size is None else size)
    assert f"{path.name} is cut off: install tvm_dnnl again" in refused(tmp_path, program)


@pytest.mark.parametrize("abi", [(0, 1, 999), (0, 0, 9), (1, 0, 0)])
def test_another_abi_of_tvm_ffi(tmp_path, abi):
    """It is refused before the library registers anything: a mismatch is silent or a crash."""
    program = copied(tmp_path)
    (tmp_path / "tvm_dnnl/_built_with.py").write_text(f"TVM_FFI_ABI = {abi}")
    name, here = (".".join(map(str, each)) for each in (abi, tvm_dnnl._built_with.TVM_FFI_ABI))
    said = refused(tmp_path, program)
    assert f"compiled for tvm-ffi {name}, but" in said and f"has the ABI of {here}" in said


def test_the_package_is_this_checkouts():
    """An edit needs no installation, nor does a new file."""
    for name in ("tvm_dnnl", "tvm_dnnl.dnnl", "tvm.contrib.onednn.cpu", "tvm_dnnl._dnnl.ops"):
        assert Path(importlib.import_module(name).__file__).is_relative_to(LAYOUT.root)
    new = LAYOUT.root / "python/tvm/relax/backend/contrib/_dnnl/new_file.py"
    try:
        new.write_text("")
        program = "import tvm_dnnl._dnnl.new_file"
        subprocess.run([sys.executable, "-B", "-c", program], check=True)
    finally:
        new.unlink()


def write_model(folder, last="Atan"):
    """Write a convolution and another op; return the path."""
    nodes, shapes = ["y = Conv(x, w)", f"z = {last}(y)"], {"x": [2, 6, 9, 9]}
    model = onnx_model(nodes, shapes, {"w": rand(6, 6, 1, 1)}, "z")
    onnx.save(model, folder / "m.onnx")
    return str(folder / "m.onnx")


@pytest.fixture(name="environment")
def scripts_environment(monkeypatch):
    """Let a process import `scripts`, as `./dev.py` does."""
    paths = [str(LAYOUT.root), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


def test_report_of_a_file(tmp_path, environment):
    """`./dev.py report --relax` reads an ONNX file, and writes the numbers and a page."""
    command = [sys.executable, "-m", "scripts", "report", "--relax", write_model(tmp_path)]
    command += ["--json", tmp_path / "r.json", "--html", tmp_path / "r.html"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "1 x no rule for this op" in run.stdout and "in 1 partition" in run.stdout
    numbers = json.loads((tmp_path / "r.json").read_text())
    assert (numbers["offloaded"], numbers["total"]) == (1, 2)
    assert "<svg" in (tmp_path / "r.html").read_text()


def test_report_says_what_it_does(tmp_path, monkeypatch):
    notes = []
    monkeypatch.setattr(Console, "note", lambda self, text, *_: notes.append(text))
    assert cli.run(["report", "--relax", str(write_model(tmp_path))]) == 0
    assert notes[0] == "import" and any("1 passes, now" in note for note in notes)


@PREPARED
def test_the_process_that_the_benchmark_asks(tmp_path, environment):
    inputs = {"x": rand(2, 6, 9, 9, seed=1)}
    with Worker(LAYOUT, MODELS) as worker:
        assert worker.ask("versions")["onednn"] == tvm_dnnl.dnnl_version()
        facts = worker.ask("load", "a", write_model(tmp_path), {}, "x86-64-v3", "float32")
        assert set(facts.pop("stages")) == {"import", "partition", "build"}
        assert facts == {"total": 2, "offloaded": 1, "partitions": 1}
        assert worker.ask("load", "b", write_model(tmp_path), {}, "x86-64-v3", None) == {}
        (ours,), (alone,) = (worker.ask("run", key, inputs) for key in "ab")
        # Sums of six products in another order.
        np.testing.assert_allclose(ours, alone, rtol=1e-5, atol=1e-5)
        seconds = worker.ask("sample", [("a", inputs), ("b", inputs)], 3, 1)
        assert len(seconds) == 3 and min(map(min, seconds)) > 0
        assert len(worker.ask("first", "a", [inputs, inputs])) == 2
        assert worker.ask("primitives", "b", "profile_primitives", 2) == []
        with pytest.raises(SetupError, match="cannot read no-such.onnx"):
            worker.ask("load", "c", "no-such.onnx", {}, "x86-64-v3", None)
        with pytest.raises(SetupError, match="failed: run"):
            worker.ask("run", "c", inputs)
        assert worker.ask("run", "a", inputs)[0].shape == (2, 6, 9, 9)
    assert worker._process.returncode == 0


@PREPARED
@pytest.mark.parametrize("last", ["Relu", "Atan"])
def test_primitives_in_the_process(tmp_path, environment, last):
    """Of models that are on oneDNN as a whole, which TVM links before they run, and of others."""
    with Worker(LAYOUT, MODELS) as worker:
        worker.ask("load", "a", write_model(tmp_path, last), {}, "x86-64-v3", "float32")
        worker.ask("sample", [("a", {"x": rand(2, 6, 9, 9)})], 1, 0)
        for name in ("profile_primitives", "measure_primitives"):
            rows = worker.ask("primitives", "a", name, 2)
            assert "convolution" in [row["kind"] for row in rows]
            assert all(row["microseconds"] > 0 for row in rows)


@PREPARED
def test_the_process_ends_on_its_own(environment):
    with Worker(LAYOUT, MODELS) as worker:
        worker._process.kill()
        with pytest.raises(SetupError, match="ended with code -9"):
            worker.ask("versions")


def test_runtime_without_a_compiler(tmp_path):
    """A process that only runs a library."""
    path = exported(tmp_path)
    program = (
        "import sys, numpy, tvm, tvm_dnnl\n"
        "assert tvm._RUNTIME_ONLY and not hasattr(tvm_dnnl, 'partition_for_dnnl')\n"
        "try:\n"
        "    tvm_dnnl.compile\n"
        "except AttributeError as error:\n"
        "    assert 'TVM_USE_RUNTIME_LIB is set' in str(error)\n"
        "assert 'load_model' in dir(tvm_dnnl) and tvm_dnnl.dnnl_version()\n"
        "model = tvm_dnnl.load_model(sys.argv[1])\n"
        "numpy.save(sys.argv[2], model(numpy.ones((2, 6, 9, 9), 'float32')))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, path, tmp_path / "y.npy"],
        env={**os.environ, "TVM_USE_RUNTIME_LIB": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wanted,) = run(module(conv_bias_relu, X4), np.ones((2, 6, 9, 9), "float32"))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, rtol=1e-5, atol=1e-5)


def test_the_compiler_side_is_imported_at_its_first_use():
    """It takes a third of a second, which a process that only runs a library has no use for."""
    program = (
        "import sys, tvm, tvm_dnnl\n"
        "tvm_dnnl.load_model\n"
        "assert 'tvm.contrib.onednn.ops.table' not in sys.modules\n"
        "assert tvm.get_global_func('relax.ext.dnnl')\n"
        "from tvm_dnnl import *\n"
        "partition_for_dnnl, load_model\n"
        "assert 'tvm.contrib.onednn.ops.table' in sys.modules\n"
        "assert not hasattr(tvm_dnnl, 'no_such_name')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def exported(folder):
    """Return a library with a partition."""
    mod = compiled(tvm_dnnl.partition_for_dnnl(module(conv_bias_relu, X4), prune=False))
    tvm_dnnl.export_library(tvm.compile(mod, target="llvm"), folder / "model.so")
    return folder / "model.so"


def test_library_without_the_plugin_says_so(tmp_path):
    path = exported(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", "import sys, tvm; tvm.runtime.load_module(sys.argv[1])", path],
        # TVM's switch for what has an entry point, as the installed plug-in does.
        env={**os.environ, "TVM_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode != 0
    assert "dnnl_json" in done.stderr


def test_the_patch_set_knows_the_sources_of_this_tvm():
    """The wheel carries those of the runtime, and the Python that the patches hook into."""
    package, patch_set = Path(tvm.__file__).parent, PatchSet(kind=RELAX)
    header = package / "include/tvm/runtime/base.h"
    assert re.search('define TVM_VERSION "0.27.0"', header.read_text())
    known = 0
    for path, hashes in patch_set.upstream.items():
        if (package / path).exists():
            assert hashlib.sha256((package / path).read_bytes()).hexdigest() in hashes, path
            known += 1
    assert known == 6
    for patch in patch_set.patches("v0.27.0"):
        file = package / patch.path.removeprefix("python/tvm/")
        if patch.path.startswith("python/tvm/"):
            assert patch.apply(file.read_bytes()) != file.read_bytes()
