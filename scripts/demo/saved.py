# SPDX-License-Identifier: Apache-2.0
"""Saves what the demo compiled, and loads it again without compiling.

A directory holds `dnnl_demo.json`, and for each model a library and the inputs and outputs of one
run, by which a later run can tell that the library still gives the same.
"""

import json
import platform
import zipfile
from pathlib import Path

import numpy as np
import tvm
from dnnl_tests.models import ocr
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from scripts.errors import SetupError
from scripts.files import replaced_at_end, write_atomically

INDEX = "dnnl_demo.json"
FORMAT = "dnnl-demo-1"
KEYS = ("format", "machine", "target", "onednn", "models")
MODEL_KEYS = ("name", "title", "input", "shape", "partitions")


def check_target(folder):
    """Refuse a directory that has files of others, before the models are compiled."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise SetupError(f"--save: {folder} is a file", "name a directory.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / INDEX).is_file():
        raise SetupError(
            f"--save: {folder} has files that the demo did not write", "name an empty directory."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"--save: cannot make the directory {folder}: {error.strerror}", "name another one."
        ) from error


def save(folder, results, image):
    """Write the libraries of `results` (list of show.Result) and the line's image."""
    try:
        _save(Path(folder), results, image)
    except (OSError, RuntimeError) as error:  # the second is what TVM says of the linker
        reason = getattr(error, "strerror", None) or str(error).strip().splitlines()[-1]
        raise SetupError(
            f"--save: cannot write to {folder}: {reason}",
            "make room there or name another directory.",
        ) from error


def _save(folder, results, image):
    models = []
    for result in results:
        row = result.workload
        dnnl.export_library(result.lib, folder / f"{row.name}.so")
        arrays = {f"output{i}": output for i, output in enumerate(result.outputs)}
        with replaced_at_end(folder / f"{row.name}.npz") as file:
            np.savez(file, input=result.inputs[row.input_name], **arrays)
        models.append(
            {
                "name": row.name,
                "title": row.title,
                "input": row.input_name,
                "shape": row.shape,
                "partitions": result.report.partitions,
            }
        )
    index = {
        "format": FORMAT,
        "machine": platform.machine(),
        "target": str(testing.host_target()),
        "onednn": dnnl.dnnl_version(),
        "models": models,
    }
    if any(model["name"] == "rec" for model in models):
        # The dictionary, so that loading needs no ONNX.
        index["classes"] = ocr.characters()
    with replaced_at_end(folder / "line.png") as file:
        image.save(file)
    # Written last: without it the directory is not one of ours.
    text = json.dumps(index, ensure_ascii=False, indent=1)
    write_atomically(folder / INDEX, text)


def read_index(folder):
    """Return the index of a saved directory, checked, or raise SetupError."""
    folder = Path(folder)
    path, remedy = folder / INDEX, "save one with `./dev.py demo --save DIR`."
    if not folder.is_dir():
        raise SetupError(f"--load: there is no directory {folder}", remedy)
    if not path.is_file():
        raise SetupError(f"--load: {folder} was not saved by the demo: it has no {INDEX}", remedy)
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SetupError(f"--load: cannot read {path}: {error}", remedy) from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise SetupError(f"--load: {path} is not of the format {FORMAT}", remedy)
    entries = [(index, KEYS), *((model, MODEL_KEYS) for model in index.get("models", ()))]
    if len(entries) == 1 or not all(set(keys) <= set(entry) for entry, keys in entries):
        raise SetupError(f"--load: {path} is damaged: entries are missing", remedy)
    if index["machine"] != platform.machine():
        raise SetupError(
            f"--load: {folder} was compiled for {index['machine']}, "
            f"but this machine is {platform.machine()}",
            "save it again on this machine.",
        )
    for name in (model["name"] + suffix for model in index["models"] for suffix in (".so", ".npz")):
        if not (folder / name).is_file():
            raise SetupError(f"--load: {folder} lacks {name}", remedy)
    return index


class Saved:
    """One saved model, loaded.

    Parameters
    ----------
    folder : path
        The directory.
    model : dict
        Its entry in the index.
    """

    def __init__(self, folder, model):
        self.name, self.title = model["name"], model["title"]
        self.input_name, self.shape = model["input"], tuple(model["shape"])
        path = Path(folder) / self.name
        remedy = "save it again here with `./dev.py demo --save DIR`."
        try:
            lib = tvm.runtime.load_module(f"{path}.so")
            self.runner = testing.Runner(lib, "graph")
        except (OSError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[-1]
            raise SetupError(f"--load: cannot load {path}.so: {reason}", remedy) from error
        self.partitions = len(testing.dnnl_modules(lib))
        try:
            with np.load(f"{path}.npz") as arrays:
                self.input = arrays["input"]
                self.expected = [arrays[f"output{i}"] for i in range(len(arrays.files) - 1)]
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise SetupError(f"--load: cannot read {path}.npz: {error}", remedy) from error

    def check(self):
        """Run on the saved input; return the outputs and their difference from the saved ones."""
        outputs = self.runner({self.input_name: self.input})
        return outputs, testing.difference(outputs, self.expected)
