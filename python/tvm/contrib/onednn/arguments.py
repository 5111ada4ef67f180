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
"""Checks of the API's arguments: each error names the argument and what to pass instead."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Mapping

# What a dict that is passed for an argument holds.
_CONTENTS = {
    "shape": ', such as {"x": (1, 3, 224, 224)}',
    "constants": ', such as {"sr": 16000}',
    "params": " of values by name",
}


def path_of(path, name: str = "path") -> str:
    """Return a path as a string.

    Raises
    ------
    TypeError, ValueError
        It is none, or no file can have that name. The message names the argument.
    """
    try:
        path = os.fsdecode(path)
    except TypeError:
        kind = type(path).__name__
        raise TypeError(f"{name} must be a str or an os.PathLike, not {kind}") from None
    if "\0" in path:
        raise ValueError(f"{name}: {path!r} has a null character, which no file name may have")
    return path


def model_error(model, kinds: str) -> TypeError:
    """Return the error for an object that is no model; `kinds` are those that there are."""
    return TypeError(f"model must be {kinds}, not {_what(model)}")


def _what(value) -> str:
    """Return what an object is that is passed in place of another, and what to do with it."""
    name = type(value).__name__
    if hasattr(value, "state_dict") and hasattr(value, "eval"):
        return (
            f"{name}: export a model of PyTorch first, with torch.export.export(model.eval(), "
            "args) for Relax, or torch.onnx.export"
        )
    if hasattr(value, "export_library") and hasattr(value, "input_names"):
        return f"{name}: the model is compiled already; its report is model.report"
    if isinstance(value, bytes):
        return "bytes: onnx.load_from_string(model) reads an ONNX model"
    return name


def check_module(mod, kind: type) -> None:
    """Raise a TypeError if this is no module of TVM."""
    if not isinstance(mod, kind):
        what = _what(mod)
        if isinstance(mod, (str, os.PathLike)):
            what += ": `from_onnx` imports a file"
        elif ":" not in what:
            what += ": tvm.IRModule.from_expr makes one from an expression or function"
        raise TypeError(f"mod must be a tvm.IRModule, not {what}")


def check_mapping(name: str, value) -> None:
    """Raise a TypeError if an argument that is given is no dict."""
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict{_CONTENTS[name]}, not {_text(value)}")


def _text(value) -> str:
    return repr(value) if isinstance(value, (str, tuple, list)) else type(value).__name__


def check_onnx_only(shape, constants) -> None:
    """Raise a TypeError for arguments that are for ONNX models only."""
    for name, given in (("shape", shape), ("constants", constants)):
        if given is not None:
            raise TypeError(f"{name} is for ONNX models: others have the shapes of their inputs")


def check_options(options: Mapping, partition: Callable) -> None:
    """Raise a TypeError for an option that `partition_for_dnnl` does not have."""
    import inspect  # neither is needed to load a model

    parameters = inspect.signature(partition).parameters.values()
    known = [each.name for each in parameters if each.kind == each.KEYWORD_ONLY] + ["mod_name"]
    for name in options:
        if name not in known:
            names = close_to(name, [*known, "shape", "constants", "target", "verify", "params"])
            raise TypeError(
                f"there is no option {name!r}; "
                + (
                    f"did you mean {names[0]!r}?"
                    if names
                    else f"the options are {', '.join(known)}"
                )
            )


def close_to(name: str, known: Collection[str]) -> list[str]:
    """Return what may be meant by a name that is not known: one of these, or nothing."""
    import difflib

    return difflib.get_close_matches(name, sorted(known), n=1)


def warn_of_unknown(params: Mapping, known: Collection[str], stacklevel: int) -> None:
    """Warn of values for parameters that functions do not have."""
    unknown = sorted(str(name) for name in params if name not in known)
    if unknown:
        warnings.warn(
            f"params has {len(unknown)} of {len(params)} names that main does not have, "
            f"which are ignored: {_first(unknown)}; main has {_first(list(known)) or 'none'}",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def _first(names: list[str], limit: int = 8) -> str:
    """List the first few names."""
    return ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")
