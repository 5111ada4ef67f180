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
"""Import of TFLite files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import tvm

#: At offset 4 of a file.
_IDENTIFIER = b"TFL3"


def import_model(model, shape: Mapping[str, Sequence[int]] | None = None) -> tvm.IRModule:
    """Import a model. See :py:func:`tvm.relax.backend.contrib.dnnl.from_tflite`."""
    try:
        import tflite
    except ImportError as error:
        raise ImportError("TFLite models require the package tflite: pip install tflite") from error
    from tvm.relax.frontend import tflite as frontend

    from .converter import Converter

    name = "the model" if isinstance(model, (bytes, tflite.Model)) else os.fspath(model)
    try:
        parsed = model if isinstance(model, tflite.Model) else _parsed(model, name)
        shapes = _checked(parsed, shape or {})
        mod = frontend.from_tflite(parsed, shape_dict=shapes, op_converter=Converter)
    except (tvm.error.OpNotImplemented, OSError, ValueError):
        raise
    except Exception as error:  # of flatbuffers, numpy and TVM, of many types
        raise ValueError(f"{name} cannot be imported, or is damaged: {error}") from error
    # They are copies of the constants of the function, which TVM would keep in each library.
    mod["main"] = mod["main"].without_attr("params")
    return mod


def _parsed(model, name: str):
    import tflite

    if isinstance(model, bytes):
        data = model
    else:
        with open(model, "rb") as file:
            data = file.read()
    if data[4:8] != _IDENTIFIER:
        raise ValueError(f"{name} is not a TFLite model: it does not begin with {_IDENTIFIER!r}")
    return tflite.Model.GetRootAs(data, 0)


def _checked(model, shape: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs; raise a ValueError for one that does not fit the model."""
    graph = model.Subgraphs(0)
    tensors = [graph.Tensors(i) for i in (graph.InputsAsNumpy() if graph.InputsLength() else ())]
    ranks = {tensor.Name().decode(): tensor.ShapeLength() for tensor in tensors}
    for name, sizes in shape.items():
        if name not in ranks:
            names = ", ".join(ranks) or "none"
            raise ValueError(f"shape: the model has no input {name!r}; its inputs are {names}")
        if len(sizes) != ranks[name] or not all(isinstance(each, int) for each in sizes):
            raise ValueError(
                f"shape: {name} has {ranks[name]} dimensions, which must be numbers in a TFLite "
                f"model, not {tuple(sizes)}"
            )
    return {name: tuple(sizes) for name, sizes in shape.items()}
