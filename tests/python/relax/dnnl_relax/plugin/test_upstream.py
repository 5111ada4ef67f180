# SPDX-License-Identifier: Apache-2.0
"""The offers of patches/upstream, applied to the TVM that is installed.

Each patch has tests for TVM. They run in a copy of the package, with the patches and without: they
must pass with them, and each must fail without.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tvm

UPSTREAM = Path(__file__).parents[5] / "patches" / "upstream"

#: What the files of TVM have to which the tests are added, as far as these use it.
_PRELUDE = """
import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax


def _run(mod, inputs):
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, inputs))
"""
_PRELUDES = {
    "onnx": _PRELUDE
    + """
import onnxruntime
from onnx import TensorProto, helper
from tvm.relax.frontend.onnx import from_onnx


def make_constant_node(name, dtype, shape, values):
    value = helper.make_tensor(name, dtype, shape, values)
    return helper.make_node("Constant", [], [name], value=value)


def run_in_tvm(model, inputs, opset):
    model.opset_import[0].version = opset
    mod = from_onnx(model, opset=opset)
    return _run(mod, [inputs[each.name] for each in mod["main"].params])


def check_correctness(model, inputs, opset=14, rtol=1e-7, atol=1e-5, check_dtypes=False):
    results = run_in_tvm(model, inputs, opset)
    model.ir_version = 8
    session = onnxruntime.InferenceSession(model.SerializeToString())
    results = [results] if hasattr(results, "numpy") else results
    for result, expected in zip(results, session.run(None, inputs), strict=True):
        assert result.numpy().dtype == expected.dtype
        tvm.testing.assert_allclose(result.numpy(), expected, rtol=rtol, atol=atol)
""",
    "torch": _PRELUDE
    + """
import torch
from torch.export import export
from torch.nn import Module
from tvm.relax.frontend.torch import from_exported_program


def verify_model_numerically(model, args, rtol=1e-7, atol=1e-7):
    (result,) = _run(from_exported_program(export(model, args=args)), [x.numpy() for x in args])
    expected = model(*args).numpy()
    assert result.numpy().shape == expected.shape
    tvm.testing.assert_allclose(result.numpy(), expected, rtol=rtol, atol=atol)
""",
}


def _added_tests(patch: str) -> str:
    """Return the functions that a patch adds to the tests, with their decorators."""
    new_file = patch.partition("\n--- /dev/null\n+++ b/tests/")[2]
    if new_file:
        return "\n".join(re.findall(r"^\+(.*)", new_file, re.MULTILINE))
    hunks = patch.partition("\n--- a/tests/")[2].split("\n@@ ")
    added = ("\n".join(re.findall(r"^\+(.*)", hunk, re.MULTILINE)) for hunk in hunks[1:])
    return "\n\n".join(each for each in added if each.startswith(("@pytest", "def ")))


def _copied_package(folder: Path, patches: list[Path]) -> None:
    """Link the installed `tvm` into a folder, with copies of what patches change."""
    installed = Path(tvm.__file__).parent
    parts = [Path(), *map(Path, ("relax", "relax/frontend", "relax/backend"))]
    for part in parts:
        (folder / "tvm" / part).mkdir(parents=True, exist_ok=True)
    for part in parts:
        for each in (installed / part).iterdir():
            if not (link := folder / "tvm" / part / each.name).exists():
                link.symlink_to(each)
    for part in ("relax/frontend/onnx", "relax/frontend/torch", "relax/backend/contrib"):
        copy = folder / "tvm" / part
        copy.unlink()
        copy.mkdir()
        for each in (installed / part).glob("*.py"):
            (copy / each.name).write_bytes(each.read_bytes())
    for patch in patches:
        command = ["git", "apply", "-p2", "--include=tvm/*", str(patch)]
        subprocess.run(command, cwd=folder, check=True)


def _outcomes(folder: Path, prelude: str, patches: list[Path], applied: list[Path]) -> dict:
    """Run the tests of patches; return the outcomes of each function by its name."""
    _copied_package(folder, applied)
    tests = [prelude, *(_added_tests(each.read_text()) for each in patches)]
    (folder / "test_offer.py").write_text("\n\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--rootdir", str(folder), "test_offer.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    outcomes: dict = {}
    for outcome, name in re.findall(
        r"^(PASSED|FAILED|ERROR) test_offer.py::(\w+)", done.stdout, re.MULTILINE
    ):
        outcomes.setdefault(name, set()).add(outcome)
    assert outcomes, done.stdout + done.stderr
    return outcomes


@pytest.mark.parametrize("frontend", _PRELUDES)
def test_repairs(frontend, tmp_path):
    if importlib.util.find_spec(frontend) is None:
        pytest.skip(f"{frontend} is not installed")
    patches = sorted((UPSTREAM / f"{frontend}-importer-repairs").glob("*.patch"))
    assert len(patches) >= 9
    with_patches = _outcomes(tmp_path / "patched", _PRELUDES[frontend], patches, patches)
    without = _outcomes(tmp_path / "own", _PRELUDES[frontend], patches, [])
    assert {name: each for name, each in with_patches.items() if each != {"PASSED"}} == {}
    assert with_patches.keys() == without.keys() and len(without) >= len(patches)
    assert [name for name, each in without.items() if "FAILED" not in each] == []


def test_partitioner(tmp_path):
    """The plug-in runs what TVM's own partitioner for DNNL would hand to it."""
    patches = sorted((UPSTREAM / "dnnl-partitioner").glob("*.patch"))
    outcomes = _outcomes(tmp_path, "", patches, patches)
    assert {name: each for name, each in outcomes.items() if each != {"PASSED"}} == {}
    assert {"test_conv2d", "test_layouts", "test_constants_are_arguments"} <= outcomes.keys()
