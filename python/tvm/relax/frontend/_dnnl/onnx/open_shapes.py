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
"""TVM's ONNX importer for models whose shapes are computed from open dimensions.

TVM's own fails for some of these models: it knows computed shapes as `relax.ShapeExpr`, which most
converters reject, or as tensors, of which no sizes are known. Here they are `ShapeValue`s, and
tensors of unknown sizes are given symbols, so that later converters have a shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.contrib.onednn.frontend import unrolled_layers
from tvm.contrib.onednn.frontend.protobuf import fixed_size
from tvm.contrib.onednn.frontend.types import unsupported_type

from ..attention_parts import is_equal
from ..backend import ATTR, Record, is_constant, size_from, value_of
from .attributes import refuse_unread
from .branches import BranchImporter
from .least_sizes import LeastSizes
from .open_resize import resized_to_open_sizes, with_sizes
from .quiet import QuietImporter
from .shape_values import (
    ShapeValue,
    bounds_from_start,
    ends_at_sizes,
    evaluate,
    range_of,
    reshaped,
    tiled,
)

# The inputs that converters of TVM accept as a shape, by op.
_SHAPES = {"ConstantOfShape": [0], "Expand": [1], "Slice": [1, 2, 3, 4]}

# Elementwise ops of several tensors, which broadcast them.
_BROADCAST = frozenset(
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less "
    "LessOrEqual Max Mean Min Mod Mul Or Pow PRelu Sub Sum Where Xor".split()
)


def import_model(model) -> tvm.IRModule:
    """Import a prepared model, and record which layers are unrolled."""
    with unrolled_layers.noted() as notes:
        mod = _imported(model)
    return mod.with_attr(ATTR, Record(unrolled=[*notes]).to_json()) if notes else mod


def _imported(model) -> tvm.IRModule:
    """Import a model with TVM's importer, if that is able to."""
    opsets = {each.domain: each.version for each in model.opset_import}
    opset = opsets.get("", opsets.get("ai.onnx", 1))
    for node in model.graph.node:
        if node.op_type in ("Loop", "Scan"):
            raise tvm.error.OpNotImplemented(
                f"ONNX {node.op_type}, node {node.name or node.output[0]}: the number of "
                "iterations is not constant or too large; fix the shapes of the inputs"
            )
    # TVM converts from powers of two, but not to them.
    message = unsupported_type(model.graph, ("FLOAT8E8M0",))
    if message:
        raise tvm.error.OpNotImplemented(message)
    # TVM 0.26 would import an input without a shape as a scalar.
    unknown = {
        each.name: None for each in model.graph.input if not each.type.tensor_type.HasField("shape")
    }
    for dim in _dimensions(model.graph):
        if fixed_size(dim) == 0:
            dim.dim_param = "0"  # TVM takes the number for an open size, and computes names
    try:
        # Not `onnx_frontend.from_onnx`: it serializes all weights, to check the model.
        mod = QuietImporter(unknown, "float32").from_onnx(model.graph, opset)
        has_branches = any(node.op_type == "If" for node in model.graph.node)
        if not has_branches and _is_complete(mod["main"]):
            return mod
    except tvm.error.OpNotImplemented:
        raise
    except Exception:  # of whatever kind: the importer checks little
        mod = None
    # Each import but the last finds two names to be one, or the least sizes.
    least: Mapping[str, int] = {}
    for _ in (*_dimensions(model.graph), None, None):
        try:
            importer = OpenShapeImporter(unknown, "float32")
            importer.least = least
            return importer.from_onnx(model.graph, opset)
        except _MoreIsKnown as error:
            least = error.args[0]
        except _EqualSizes as error:
            for dim in _dimensions(model.graph):
                if dim.dim_param == error.args[0]:
                    dim.dim_param = error.args[1]
        except Exception:
            if mod is None:
                raise
            break
    return mod


def _dimensions(graph) -> list:
    """Return the dimensions of the inputs of a graph."""
    return [dim for each in graph.input for dim in each.type.tensor_type.shape.dim]


def _is_complete(func) -> bool:
    """Whether TVM knows the sizes of all tensors, and no result is a shape."""

    def has_sizes(type_):
        if isinstance(type_, relax.TupleType):
            return all(map(has_sizes, type_.fields))
        return not isinstance(type_, relax.TensorType) or type_.shape is not None

    types = [binding.var.ty for block in func.body.blocks for binding in block.bindings]
    return all(map(has_sizes, types)) and not _has_shapes(func.ret_ty)


def _has_shapes(type_) -> bool:
    """Whether a result is a shape, where the model has a tensor."""
    if isinstance(type_, relax.TupleType):
        return any(map(_has_shapes, type_.fields))
    return not isinstance(type_, relax.TensorType)


def _named(error: Exception, node) -> Exception:
    """Return an error that begins with the node that it is about.

    Of exceptions that say nothing to a user, such as those of assertions, it is OpNotImplemented.
    """
    text, name = str(error).strip(), node.name or node.output[0]
    is_named = node.op_type in text and name in text
    text = text if is_named else f"ONNX {node.op_type}, node {name}: {text}"
    if isinstance(error, (tvm.error.OpError, ValueError, MemoryError)):
        error.args = (text,)
        return error
    return tvm.error.OpNotImplemented(f"{text} ({type(error).__name__})")


@refuse_unread
class OpenShapeImporter(BranchImporter):
    """Imports a graph, with the shapes that `prepare` has inferred in its `value_info`.

    Attributes
    ----------
    least : Mapping[str, int]
        The least numbers that open dimensions may be, as far as another import found them.
    """

    least: Mapping[str, int] = MappingProxyType({})

    def _parse_graph_input(self, graph):
        self._input_sizes = {dim.dim_param for dim in _dimensions(graph) if dim.dim_param}
        super()._parse_graph_input(graph)
        types = [each.ty for each in self._inputs.values() if isinstance(each, relax.Var)]
        sizes = [size_from(size) for type_ in types for size in type_.shape or ()]
        self._least = LeastSizes(sizes, self.least)

    def _construct_nodes(self, graph):
        infos = {info.name: info.type.tensor_type for info in (*graph.value_info, *graph.output)}
        for node in graph.node:
            if node.op_type == "Split" and self._split(node):
                continue
            # Node by node: what follows sees the sizes that are known after each.
            try:
                if node.op_type == "If":
                    self._if(node)
                else:
                    super()._construct_nodes(SimpleNamespace(node=[node]))
            except (_EqualSizes, _MoreIsKnown):
                raise
            except Exception as error:
                raise _named(error, node) from error
            for name in filter(None, node.output):
                value = self._nodes.get(name)
                if isinstance(value, relax.Expr) and _lacks_shape(value):
                    value = self._nodes[name] = self._with_shape(node, value, infos.get(name))
                for size in getattr(getattr(value, "ty", None), "shape", None) or ():
                    self._least.observe(size_from(size))
        for output in graph.output:
            self._nodes[output.name] = self._tensor(self._nodes[output.name])
        if not self.least and (lacking := self._least.lacking()):
            raise _MoreIsKnown(lacking)

    def _convert(self, op_name, inputs, attrs, opset):
        if op_name == "Shape" and inputs[0] is not None:
            return self._shape_of(inputs[0], attrs)
        if any(isinstance(each, ShapeValue) for each in inputs):
            result = evaluate(op_name, list(inputs), attrs, self._least)
            if result is not None:
                return result
        if op_name == "Range":
            result = range_of(self.bb, self._least, *inputs)
            if result is not None:
                return result
        shape = inputs[1] if op_name == "Reshape" else None
        # A zero is a size, not that of the data.
        has_zero = attrs.get("allowzero", 0) and isinstance(shape, ShapeValue) and shape.has_zero
        if isinstance(shape, ShapeValue) and not has_zero:
            return reshaped(self.bb, self._tensor(inputs[0]), shape)
        if op_name == "Tile" and isinstance(shape := inputs[1], ShapeValue):
            return tiled(self.bb, self._tensor(inputs[0]), shape.dims())
        if op_name == "Resize":
            inputs = with_sizes(inputs)
            if isinstance(inputs[3], ShapeValue):
                resized = resized_to_open_sizes(self._tensor(inputs[0]), inputs[3].elements, attrs)
                return self.bb.normalize(resized)
        if op_name == "Slice" and isinstance(inputs[1], ShapeValue):
            inputs[2] = ends_at_sizes(inputs[2], inputs[0], inputs[3], inputs[4])
        for number in (1, 2) if op_name == "Slice" else ():
            if isinstance(inputs[number], ShapeValue):
                bounds = bounds_from_start(inputs[number], inputs[0], inputs[3], self._least)
                inputs[number] = self._tensor(inputs[number]) if bounds is None else bounds
        for number, value in enumerate(inputs):
            if isinstance(value, ShapeValue):
                is_shape = number in _SHAPES.get(op_name, ()) and value.elements.ndim == 1
                inputs[number] = value.shape() if is_shape else self._tensor(value)
        if op_name == "Squeeze":
            inputs[0] = self._squeezable(inputs[0], attrs, inputs[1])
        if op_name in _BROADCAST:
            inputs = self._align(inputs)
        elif op_name == "Concat":
            inputs = self._align(inputs, attrs.get("axis", 0) % inputs[0].ty.ndim)
        elif op_name in ("Gemm", "MatMul"):
            inputs = self._align_products(inputs, attrs)
        return super()._convert(op_name, inputs, attrs, opset)

    def _split(self, node) -> bool:
        """Split a shape into shapes; a converter could only return a tuple of tensors."""
        data = self._nodes.get(node.input[0])
        if not isinstance(data, ShapeValue):
            return False
        attrs = self._parse_attr(node.attribute)
        given = self._nodes[node.input[1]] if len(node.input) > 1 else None
        sizes = value_of(given) if given is not None and is_constant(given) else attrs.get("split")
        if sizes is None:
            sizes = [-(-len(data.elements) // len(node.output))] * len(node.output)
        parts = np.split(data.elements, np.cumsum(sizes)[:-1])
        for name, part in zip(node.output, parts):
            self._nodes[name] = ShapeValue.of(part, data.dtype)
        return True

    def _shape_of(self, data, attrs):
        """Return the shape of a tensor; `_construct_nodes` has given it one."""
        is_value = isinstance(data, ShapeValue)
        if not is_value and data.ty.shape is None:
            raise ValueError("the rank of the input of Shape is not known")
        sizes = list(data.elements.shape if is_value else data.ty.shape)
        result = ShapeValue.of(sizes[attrs.get("start", 0) : attrs.get("end")])
        return result.tensor(self.bb) if result.is_constant else result

    def _with_shape(self, node, value, info):
        """Return a tensor with the sizes that are known, and symbols for the others."""
        rank = value.ty.ndim
        if rank < 0:
            if info is None or not info.HasField("shape"):
                return value
            rank = len(info.shape.dim)
        known: list = [None] * rank
        if info is not None and info.HasField("shape") and len(info.shape.dim) == rank:
            known = list(map(fixed_size, info.shape.dim))
        sizes = [
            tirx.Var(f"{node.op_type.lower()}_{axis}", "int64") if size is None else size
            for axis, size in enumerate(known)
        ]
        return self._cast(value, sizes)

    def _cast(self, value, sizes):
        """Return a tensor with sizes that TVM does not know; they are checked at run time."""
        value = value if isinstance(value, relax.Var) else self.bb.emit(value)
        return self.bb.match_cast(value, relax.TensorType(sizes, value.ty.dtype))

    def _squeezable(self, data, attrs, axes):
        """Return a tensor in which the axes to squeeze have the size 1."""
        wanted = value_of(axes).tolist() if is_constant(axes) else attrs.get("axes")
        if wanted is None or data.ty.shape is None:
            return data
        sizes = list(data.ty.shape)
        for axis in wanted:
            if not isinstance(sizes[axis], tirx.IntImm):
                sizes[axis] = 1
        return data if sizes == list(data.ty.shape) else self._cast(data, sizes)

    def _align(self, inputs, free_axis=None):
        """Give tensors that are combined elementwise equal sizes, checked at run time.

        TVM would not know the shape of the result, nor compile the op. Sizes that are 1 when the
        model is imported are broadcast; an open size that turns out to be 1 is not.
        """
        types = [each.ty for each in inputs]
        if any(not isinstance(each, relax.TensorType) or each.shape is None for each in types):
            return inputs
        rank = max(each.ty.ndim for each in inputs)
        result: list = [None] * rank
        for each in inputs:
            for axis, size in enumerate(each.ty.shape, rank - each.ty.ndim):
                is_broadcast = free_axis is None and _is_one(size)
                if not is_broadcast and _precedence(size) > _precedence(result[axis]):
                    result[axis] = size
        aligned = []
        for each in inputs:
            old = list(each.ty.shape)
            new = [
                size if axis == free_axis or (free_axis is None and _is_one(size)) else result[axis]
                for axis, size in enumerate(old, rank - len(old))
            ]
            new = [self._equal_size(*pair) for pair in zip(old, new)]
            is_same = all(map(is_equal, old, new))
            aligned.append(each if is_same else self._cast(each, new))
        return aligned

    def _align_products(self, inputs, attrs):
        """Give the operands of a matmul equal inner sizes and batches, and its summand its size."""
        types = [each.ty for each in inputs if each is not None]
        if any(type_.shape is None or type_.ndim < 2 for type_ in types[:2]):
            return inputs
        a, b = (list(type_.shape) for type_ in types[:2])
        inner = -2 if attrs.get("transA", 0) else -1, -1 if attrs.get("transB", 0) else -2
        self._equalize(a, b, [inner, *((k, k) for k in range(-min(len(a), len(b)), -2))])
        new = [a, b]
        if len(types) > 2 and types[2].shape is not None:
            new.append(list(types[2].shape))
            result = [a[-3 - inner[0]], b[-3 - inner[1]]]
            self._equalize(result, new[2], [(k, k) for k in range(-min(len(new[2]), 2), 0)])
            a[-3 - inner[0]], b[-3 - inner[1]] = result
        for k, (each, sizes) in enumerate(zip(inputs, new)):
            if not all(map(is_equal, each.ty.shape, sizes)):
                inputs[k] = self._cast(each, sizes)
        return inputs

    def _equalize(self, a, b, pairs):
        """Replace the sizes in two lists that have to be equal by the one that is known best."""
        for i, j in pairs:
            are_known = isinstance(a[i], tirx.IntImm) and isinstance(b[j], tirx.IntImm)
            if are_known or _is_one(a[i]) or _is_one(b[j]):
                continue
            if _precedence(a[i]) >= _precedence(b[j]):
                b[j] = self._equal_size(b[j], a[i])
            else:
                a[i] = self._equal_size(a[i], b[j])

    def _equal_size(self, size, other):
        """Return the size to check one for, given the other that it must be equal to."""
        if size is other or not isinstance(other, tirx.Var):
            return other
        # A check against a symbol would redefine it, in CanonicalizeBindings.
        names = [getattr(each, "name", None) for each in (size, other)]
        if names[0] != names[1] and self._input_sizes.issuperset(names):
            raise _EqualSizes(*names)
        return size


class _EqualSizes(Exception):
    """Two named dimensions of inputs must be equal."""


class _MoreIsKnown(Exception):
    """Sizes that were computed early need what later ones tell of open dimensions."""


def _precedence(size) -> int:
    """Return which of several sizes is kept: numbers, else expressions, else symbols."""
    kinds = (size is not None, not isinstance(size, tirx.Var), isinstance(size, tirx.IntImm))
    return sum(kinds) if size is not None else 0


def _is_one(size) -> bool:
    return isinstance(size, (int, tirx.IntImm)) and int(size) == 1


def _lacks_shape(value) -> bool:
    return isinstance(value.ty, relax.TensorType) and value.ty.shape is None
