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
"""The converters for ops of PyTorch that TVM's importer has none for, or a wrong one."""

from __future__ import annotations

import operator

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from tvm import relax, tirx
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from ..backend import Analyzer
from . import (
    attention,
    convolutions,
    indexing,
    matmuls,
    packed_weights,
    quantized,
    recurrent,
    resizes,
    views,
)

#: Files of this folder. Each has `CONVERTERS`, a dict from the op to its converter.
_FAMILIES = attention, convolutions, matmuls, resizes, views
_ANALYZER = Analyzer()


def convert_map(values: dict):
    """Return the converters, for the argument `custom_convert_map` of TVM's importer.

    Those of TVM that have none here are called, too, with the same check of their results.

    Parameters
    ----------
    values : dict[torch.fx.Node, torch.Tensor]
        The values of the constants of the program.
    """
    converters = {name: each for family in _FAMILIES for name, each in family.CONVERTERS.items()}
    for family in (recurrent, indexing, quantized, packed_weights):
        converters.update(family.converters(values))
    names = {**ExportedProgramImporter().convert_map, **converters}
    theirs = {}

    def checked(name):
        def convert(node, importer):
            if not theirs:
                theirs.update(importer.create_convert_map())
            return _converted(node, importer, converters.get(name), theirs.get(name))

        return convert

    return {name: checked(name) for name in names if isinstance(name, str)}


def _converted(node, importer, own, theirs):
    """Convert a node, and refuse a result that has not the type that PyTorch gives it."""
    try:
        if node.target is operator.getitem and node.args[1] != 0:
            _check_is_tuple(importer.env[node.args[0]])
        _share_sizes(node, importer)
        result = own(node, importer) if own else theirs(node)
        if isinstance(result, relax.Call):
            # TVM's pools of an image without a batch return it without a type.
            result = importer.block_builder.emit(result)
        _check_type(result, node.meta.get("val"))
    except Exception as error:
        raise refusal(node, str(error).strip() or type(error).__name__) from error
    return result


def _share_sizes(node, importer) -> None:
    """Give operands of one shape, as PyTorch knows, the sizes of the first: TVM may not see it.

    They are checked at run time.
    """
    first, shape = None, None
    for operand in node.all_input_nodes:
        x, value = importer.env.get(operand), operand.meta.get("val")
        sizes = getattr(getattr(x, "ty", None), "shape", None)
        if not isinstance(value, torch.Tensor) or not isinstance(x, relax.Var) or sizes is None:
            continue
        if first is None:
            first, shape = list(sizes), value.shape
        elif len(shape) == value.dim() and all(map(_is_equal, shape, value.shape)):
            if not all(map(_ANALYZER.can_prove_equal, first, sizes)):
                type_ = relax.TensorType(first, x.ty.dtype)
                importer.env[operand] = importer.block_builder.match_cast(x, type_)


def _is_equal(size, other) -> bool:
    return statically_known_true(size == other)


def refusal(node, reason: str) -> ValueError:
    """Return the error for a node that cannot be imported."""
    reason = reason.splitlines()[-1].removeprefix(f"{node.name}: ")
    is_op = hasattr(node.target, "_schema")
    what = node.target if is_op else f"aten.{getattr(node.target, '__name__', node.target)}"
    return ValueError(
        f"{node.name} ({what}): {reason}. Write this part of the model with other ops, or run "
        "it in PyTorch"
    )


def _check_is_tuple(x):
    if isinstance(x, relax.Expr) and isinstance(x.ty, relax.TensorType):
        raise TypeError("TVM's importer has the first result of this op only")


def _check_type(result, expected):
    if not isinstance(expected, torch.Tensor):
        return
    if not isinstance(result, relax.Expr) or not isinstance(result.ty, relax.TensorType):
        raise TypeError(f"the importer returns a {type(result).__name__} instead of a tensor")
    dtype = str(expected.dtype).removeprefix("torch.")
    if str(result.ty.dtype.dtype) != dtype:
        raise TypeError(f"the importer returns {result.ty.dtype.dtype} instead of {dtype}")
    if result.ty.shape is None:
        return
    dims = list(result.ty.shape)
    if len(dims) != expected.dim() or any(
        isinstance(dim, tirx.IntImm) and isinstance(size, int) and int(dim) != size
        for dim, size in zip(dims, expected.shape)
    ):
        shapes = tuple(dims), tuple(expected.shape)
        raise TypeError(f"the importer returns the shape {shapes[0]} instead of {shapes[1]}")
