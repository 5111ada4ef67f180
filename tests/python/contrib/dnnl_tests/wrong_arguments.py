# SPDX-License-Identifier: Apache-2.0
"""Calls with wrong arguments, which both APIs have: the error names what is wrong."""

import types

import numpy as np
import onnx
import pytest

from dnnl_tests.onnx_models import onnx_model

X = np.zeros((2, 8), "float32")
# Files by name, and what is in them.
FILES = {
    "text": ("text.onnx", b"a text\n"),
    "page": ("page.onnx", b"<!DOCTYPE html><html>"),
    "json": ("model.json", b'{"a": 1}'),
    "noise": ("noise.onnx", bytes(range(128, 256))),
    "empty": ("empty.so", b""),
    "binary": ("other.bin", bytes(range(128, 256))),
}


class Module:
    """A model of PyTorch, as far as it is told apart from others."""

    state_dict = eval = None


def prepared(api, folder):
    """Write files; return their paths, a compiled model and its module as attributes."""
    files = types.SimpleNamespace(api=api, folder=folder, new=str(folder / "new.so"))
    for key, (name, content) in FILES.items():
        (folder / name).write_bytes(content)
        setattr(files, key, str(folder / name))
    proto = onnx_model(["y = MatMul(x, w)"], {"x": [2, 8]}, {"w": X.T}, "y")
    files.onnx, files.library = str(folder / "model.onnx"), str(folder / "model.so")
    onnx.save(proto, files.onnx)
    imported = api.from_onnx(files.onnx)
    files.mod = imported[0] if isinstance(imported, tuple) else imported
    files.model = api.compile(files.onnx, prune=False)
    files.model.export_library(files.library)
    files.cut = str(folder / "cut.so")
    (folder / "cut.so").write_bytes((folder / "model.so").read_bytes()[:5000])
    return files


CASES = {
    "text": (lambda m: m.api.compile(m.text), ValueError, r"a text that begins with 'a text\\n'"),
    "page": (lambda m: m.api.compile(m.page), ValueError, "it is a web page; download the file"),
    "json": (lambda m: m.api.compile(m.json), ValueError, "model.json is not an ONNX model"),
    "noise": (lambda m: m.api.compile(m.noise), ValueError, "it is cut off or damaged"),
    "library": (lambda m: m.api.compile(m.library), ValueError, "which `load_model` loads"),
    "null": (lambda m: m.api.compile("a\0.onnx"), ValueError, r"model: 'a\\x00.onnx' has a null"),
    "folder": (lambda m: m.api.compile(m.folder), IsADirectoryError, "Is a directory"),
    "none": (lambda m: m.api.compile(None), TypeError, "model must be a path.*, not NoneType"),
    "bytes": (lambda m: m.api.compile(b""), TypeError, "onnx.load_from_string"),
    "compiled": (lambda m: m.api.compile(m.model), TypeError, "the model is compiled already"),
    "torch": (lambda m: m.api.compile(Module()), TypeError, "export a model of PyTorch first"),
    "shape": (lambda m: m.api.compile(m.onnx, shape=(2, 8)), TypeError, "shape must be a dict"),
    "constants": (
        lambda m: m.api.compile(m.onnx, constants=["x"]),
        TypeError,
        r"constants must be a dict, such as .*, not \['x'\]",
    ),
    "params": (lambda m: m.api.compile(m.onnx, "w"), TypeError, "params must be a dict of values"),
    "params-size": (
        lambda m: m.api.compile(m.mod, {"x": X[0]}),
        ValueError,
        r"params\['x'\] is float32 of shape \(8,\), but",
    ),
    "option": (
        lambda m: m.api.compile(m.onnx, precison="auto"),
        TypeError,
        "no option 'precison'; did you mean 'precision'",
    ),
    "no-option": (
        lambda m: m.api.verify(m.onnx, opt_level=3),
        TypeError,
        "no option 'opt_level'; the options are prune, exclude, precision, ",
    ),
    "target": (
        lambda m: m.api.compile(m.onnx, target="f"),
        ValueError,
        "target: TVM does not know",
    ),
    "target-kind": (
        lambda m: m.api.compile(m.onnx, target=3),
        TypeError,
        "target must be a .* not 3",
    ),
    "target-gpu": (
        lambda m: m.api.compile(m.onnx, target={"kind": "opencl"}),
        ValueError,
        "target must be a CPU's, such as 'llvm', not",
    ),
    "report": (lambda m: m.api.offload_report(m.onnx), TypeError, "`from_onnx` imports a file"),
    "report-model": (lambda m: m.api.offload_report(m.model), TypeError, "report is model.report"),
    "load": (lambda m: m.api.load_model(m.onnx), ValueError, "model.onnx is not a library: `comp"),
    "load-empty": (lambda m: m.api.load_model(m.empty), ValueError, "empty.so is empty: export"),
    "load-cut": (lambda m: m.api.load_model(m.cut), ValueError, "cut.so is cut off: export"),
    "load-noise": (lambda m: m.api.load_model(m.binary), ValueError, "is not a library"),
    "load-none": (lambda m: m.api.load_model(None), TypeError, "path must be a str"),
    "export-folder": (
        lambda m: m.model.export_library(m.folder / "no/m.so"),
        FileNotFoundError,
        "path: make this folder first: .*/no'",
    ),
    "export-to-folder": (
        lambda m: m.model.export_library(m.folder),
        IsADirectoryError,
        "path: this is a folder; name a file",
    ),
    "export-model": (
        lambda m: m.model.export_library(m.onnx),
        ValueError,
        "model.onnx is the name of a model's file",
    ),
    "export-none": (
        lambda m: m.api.export_library(None, m.new),
        TypeError,
        "compiled must be a compiled model, not NoneType",
    ),
    "run-dict": (lambda m: m.model({"x": X}), TypeError, r"by name as in model\(\*\*inputs\)"),
    "run-text": (lambda m: m.model("x.png"), TypeError, "input x: str .* is not an array"),
}


def parametrized(test):
    """Run a test of a case with each."""
    return pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())(test)


def check(files, case):
    """Assert the error of a case; the file of the model is as it was."""
    call, error, message = case
    with pytest.raises(error, match=message):
        call(files)
    assert onnx.load(files.onnx).graph.node[0].op_type == "MatMul"
