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
"""Prepares ONNX models for TVM's importers: fixes dimensions, infers shapes, folds constants."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Optional, Union

import numpy as np

from ..arguments import check_mapping, model_error, path_of
from ..environment import utf8_path
from .fold import fold
from .messages import check_model
from .protobuf import clone, fixed_size, initializer_names

if TYPE_CHECKING:
    import onnx

#: A size, the name of an open dimension, or None for what the model has.
Dimension = Optional[Union[int, str]]

#: The shape of an input, or the size of a named dimension.
Shape = Union[Sequence[Dimension], int]


def prepare(
    model: onnx.ModelProto | str | os.PathLike,
    shape: Mapping[str, Shape] | None = None,
    constants: Mapping[str, object] | None = None,
) -> onnx.ModelProto:
    """Return a model with fixed dimensions, in which everything that is constant is folded.

    Only nodes of the standard domain are folded, and no `QuantizeLinear` or `DequantizeLinear`:
    weights stay in 8 bits. An `If` with a constant condition is replaced with its branch, and nodes
    that no output depends on are removed. Everything else stays as it is, including the names,
    order and types of inputs and outputs. Open dimensions without a name get one, because TVM would
    assume that they are all equal.

    Parameters
    ----------
    model : onnx.ModelProto | str | os.PathLike
        The model, or its file. It is not modified. Files may have external data.
    shape : Mapping[str, Sequence[int | str | None] | int] | None
        Shapes of inputs by name, such as ``{"x": (1, 3, 48, "width")}``: a number fixes a
        dimension, a name leaves it open, and None leaves it as it is in the model. Also sizes of
        named dimensions, such as ``{"batch": 1}``. Other dimensions stay as they are.
    constants : Mapping[str, object] | None
        Values of inputs by name, such as ``{"sr": 16000}``, which the model then no longer has: an
        array, or a number for every element.

    Returns
    -------
    prepared : onnx.ModelProto
        The prepared model.

    Raises
    ------
    ImportError
        The package `onnx` is not installed.
    OSError
        The file cannot be read.
    ValueError
        The file is not an ONNX model, or an invalid one; or `shape` or `constants` names an input
        or dimension that the model does not have, or does not fit the input.
    """
    model = with_inputs(model, shape, constants)
    check_model(model)
    fold(model)
    return model


def with_inputs(model, shape=None, constants=None) -> onnx.ModelProto:
    """Return a model with the shapes and values of inputs that are given; see `prepare`."""
    check_mapping("shape", shape)
    check_mapping("constants", constants)
    model = load(model)
    set_shapes(model, shape or {})
    _set_constants(model, constants or {})
    return model


def load(model) -> onnx.ModelProto:
    """Return a model that may be modified."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError("ONNX models require the package onnx: pip install onnx") from error
    if isinstance(model, onnx.ModelProto):
        for tensor in model.graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                raise ValueError(
                    f"the data of {tensor.name} is in another file and not loaded: pass the path "
                    "of the model, or load it with onnx.load"
                )
        return clone(model)
    if not isinstance(model, (str, os.PathLike)):
        raise model_error(model, "a path or an onnx.ModelProto")
    path = path_of(model, "model")
    try:
        loaded = onnx.load(path, load_external_data=False)
    except OSError:
        raise
    except Exception as error:  # of the parser of any of its formats
        raise ValueError(f"{path} is not an ONNX model: {_hint(path) or error}") from error
    if not loaded.HasField("graph"):
        raise ValueError(f"{path} is not an ONNX model: {_hint(path) or 'it has no graph'}")
    onnx.load_external_data_for_model(loaded, utf8_path(os.path.dirname(path)))
    return loaded


def _hint(path: str) -> str | None:
    """Return what a file is that is no ONNX model, if that is known."""
    with open(path, "rb") as file:
        begin = file.read(40)
    if not begin:
        return "it is empty"
    if begin.startswith(b"version https://git-lfs"):
        return "it is a pointer of Git LFS, whose file `git lfs pull` fetches"
    if begin.startswith(b"PK") or begin[4:8] == b"TFL3" or path.endswith((".pt2", ".tflite")):
        return (
            "programs of PyTorch (.pt2) and TFLite models are read by tvm_dnnl, the plug-in for "
            "Relax, if the file is intact"
        )
    if begin.startswith(b"\x7fELF"):
        return "it is a library, which `load_model` loads"
    if begin.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return "it is a web page; download the file itself"
    if all(32 <= byte < 127 or byte in b"\t\r\n" for byte in begin):
        return f"it is a text that begins with {begin.decode()!r}"
    return "it is cut off or damaged, or has another format; export or copy it again"


def inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that are not weights."""
    weights = initializer_names(model.graph)
    return [value for value in model.graph.input if value.name not in weights]


def shapes_by_name(
    model: onnx.ModelProto, shapes: Iterable[tuple[str, Sequence[Dimension]]]
) -> dict[str, Shape]:
    """Return shapes of a command line as `prepare` takes them.

    One size is that of a named dimension if no input has the name.
    """
    names = {value.name for value in inputs(model)}

    def shape(name: str, sizes: Sequence[Dimension]) -> Shape:
        first = sizes[0] if len(sizes) == 1 and name not in names else None
        return first if isinstance(first, int) else sizes

    return {name: shape(name, sizes) for name, sizes in shapes}


def _text(value: onnx.ValueInfoProto) -> str:
    """Return the name, rank and shape of an input, such as "x of rank 2 (batch, 3)"."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return f"{value.name} of unknown rank"
    sizes = ["?" if (size := _size(dim)) is None else str(size) for dim in tensor.shape.dim]
    return f"{value.name} of rank {len(sizes)} ({', '.join(sizes)})"


def _size(dim) -> Dimension:
    """Return what a model says about a dimension: a size, a name, or None."""
    # Some exporters write a number or "?" as the name of a dimension that they do not know.
    is_name = not re.fullmatch(r"-?\d*|\?", dim.dim_param)
    return dim.dim_param if is_name else fixed_size(dim)


def set_shapes(model: onnx.ModelProto, shape: Mapping[str, Shape]) -> None:
    """Set the shapes of inputs, in place, and give each open dimension a name.

    Parameters and errors are those of `prepare`.
    """
    values = {value.name: value for value in inputs(model)}
    shapes, sizes = _checked(values, shape)
    is_resized = False
    for name, given in shapes.items():
        tensor = values[name].type.tensor_type
        if not tensor.HasField("shape"):
            tensor.shape.SetInParent()
            for _ in given:
                tensor.shape.dim.add()
        for dim, size in zip(tensor.shape.dim, given):
            old = _size(dim)
            if size is None or size == old:
                continue
            is_resized |= isinstance(old, int)
            if isinstance(old, str) and isinstance(size, int):
                # The name stands for one size everywhere, unless it was given several.
                sizes[old] = size if sizes.get(old, size) == size else None
            _set(dim, size)
    if is_resized:
        # They were inferred for another size.
        del model.graph.value_info[:]
        for value in model.graph.output:
            for dim in value.type.tensor_type.shape.dim:
                dim.Clear()
    others = [*model.graph.output, *model.graph.value_info]
    for value in others:
        for dim in value.type.tensor_type.shape.dim:
            if fixed_size(dim) == 0:  # or one that the exporter does not know; it is inferred
                dim.Clear()
    _substitute([*values.values(), *others], sizes)
    _name_open_dimensions(values.values(), others)


def _set_constants(model: onnx.ModelProto, constants: Mapping[str, object]) -> None:
    """Make weights of inputs, in place."""
    import onnx

    values = {value.name: value for value in inputs(model)}
    for name, given in constants.items():
        if name not in values:
            names = ", ".join(values)
            raise ValueError(f"constants: the model has no input {name!r}; its inputs are {names}")
        tensor = values[name].type.tensor_type
        array, sizes = np.asarray(given), [_size(dim) for dim in tensor.shape.dim]
        fixed = [size for size in sizes if isinstance(size, int)]
        if array.ndim == 0 and len(fixed) == len(sizes):
            array = np.full(fixed, array)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        is_known = tensor.HasField("shape")
        fits = len(sizes) == array.ndim and all(
            not isinstance(size, int) or size == actual for size, actual in zip(sizes, array.shape)
        )
        if is_known and not fits:
            raise ValueError(
                f"constants: a value of the shape {array.shape} for the input {_text(values[name])}"
            )
        with np.errstate(all="ignore"):
            converted = array.astype(dtype)
        # Numbers that the type does not have, but for those that are rounded to it.
        if not np.array_equal(converted, array) and not (dtype.kind == array.dtype.kind == "f"):
            raise ValueError(f"constants: {given!r} is not of the type {dtype} of the input {name}")
        model.graph.initializer.append(onnx.numpy_helper.from_array(converted, name))
        model.graph.input.remove(values[name])


def _set(dim, size: Dimension) -> None:
    dim.Clear()
    if isinstance(size, int):
        dim.dim_value = size
    elif size is not None:
        dim.dim_param = size


def _checked(values, shape) -> tuple[dict[str, Sequence[Dimension]], dict[str, Dimension]]:
    """Return the given shapes of inputs and sizes of named dimensions."""
    named = {
        dim.dim_param: None
        for value in values.values()
        for dim in value.type.tensor_type.shape.dim
        if isinstance(_size(dim), str)
    }
    shapes: dict[str, Sequence[Dimension]] = {}
    sizes: dict[str, Dimension] = {}
    for name, given in shape.items():
        is_size = isinstance(given, int) or hasattr(given, "__index__")
        if name not in (named if is_size else values):
            if is_size and name in values:
                raise ValueError(f"shape: {given!r} is no shape of the input {_text(values[name])}")
            raise ValueError(
                f"shape: the model has no {'dimension' if is_size else 'input'} {name!r}; its "
                f"inputs are {', '.join(map(_text, values.values()))}"
            )
        if is_size:
            sizes[name] = _checked_size(name, given)
            continue
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise ValueError(f"shape: {given!r} is not a shape of the input {name}")
        tensor = values[name].type.tensor_type
        if tensor.HasField("shape") and len(given) != len(tensor.shape.dim):
            raise ValueError(
                f"shape: the input {_text(values[name])} cannot have the shape "
                f"({', '.join(map(str, given))}) of rank {len(given)}"
            )
        shapes[name] = [_checked_size(name, size) for size in given]
    return shapes, sizes


def _checked_size(name, size) -> Dimension:
    if size is None or (isinstance(size, str) and size.isidentifier()):
        return size
    if not hasattr(size, "__index__") or isinstance(size, bool) or int(size) < 0:
        raise ValueError(f"shape: {size!r} is not a size of {name}")
    return int(size)


def _name_open_dimensions(values, others) -> None:
    """Name open dimensions of inputs that have no name, or one that TVM reads as arithmetic."""
    dims = [
        (f"{value.name}_{axis}", dim)
        for value in values
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
    ]
    names = {size for _, dim in dims if isinstance(size := _size(dim), str)}
    renamed: dict[str, Dimension] = {}
    for default, dim in dims:
        size = _size(dim)
        if size is None:
            _set(dim, _unique(default, names))
        elif isinstance(size, str) and not all(part in names for part in _terms(size)):
            renamed[size] = renamed.get(size) or _unique(size, names)
            _set(dim, renamed[size])
    _substitute(others, renamed)


def _substitute(values, sizes: Mapping[str, Dimension]) -> None:
    """Replace names of dimensions."""
    for value in values:
        for dim in value.type.tensor_type.shape.dim:
            size = _size(dim)
            _set(dim, sizes.get(size, size) if isinstance(size, str) else size)


def _terms(name: str) -> Iterator[str]:
    return (part for part in re.split(r"[-+*/ ]+", name) if not part.isdecimal())


def _unique(name: str, names: set) -> str:
    name = re.sub(r"\W", "_", name)
    while name in names:
        name += "_"
    names.add(name)
    return name
