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
"""ONNX ops that the standard does not define as functions, written as such.

A decomposition returns the body of a node, or None for a node that stays. It raises ValueError
where operands or sizes that it depends on are not known.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping

import numpy as np

from .einsum import einsum
from .experts import EXPERTS
from .node_info import Decomposition, NodeInfo
from .selections import SELECTIONS

#: The most elements of a constant of a decomposition.
_MAX_ELEMENTS = 2**24


def _lp_normalization(node: NodeInfo):
    norm = f"ReduceL{node.attrs.get('p', 2)}"
    axis, zero = node.attrs.get("axis", -1), node.dtype(0).type(0)
    reduced = node.reduced(norm, "x0", [axis], "axes")
    nodes = f"norm = {reduced} is_zero = Equal(norm, zero) factor = Where(is_zero, one, norm)"
    nodes += " y0 = Div(x0, factor)"
    return node.body(nodes, axes=np.array([axis]), zero=zero, one=zero + zero.dtype.type(1))


def _tensor_scatter(node: NodeInfo):
    """Write an update of a cache at the positions that its sequences have."""
    past, update = node.shape(0), node.shape(1)
    rank, axis = len(past), node.attrs.get("axis", -2) % len(past)
    count = node.known(update[axis], f"axis {axis} of the update")
    is_circular = node.text("mode", "linear") == "circular"
    shape = [-1 if k == axis else 1 for k in range(rank)]
    nodes, constants = "at = Identity(positions)", {}
    if node.has(2):
        nodes = "first = Reshape(x2, rows) at = Add(first, positions)"
        constants["rows"] = np.array([-1] + [1] * (rank - 1))
    if is_circular:
        nodes += " wrapped = Mod(at, length)"
        constants["length"] = np.array(node.known(past[axis], f"axis {axis} of the cache"))
    nodes += f""" sizes = Shape(x1) indices = Expand({"wrapped" if is_circular else "at"}, sizes)
        y0 = ScatterElements <axis = {axis}> (x0, indices, x1)"""
    return node.body(nodes, positions=np.arange(count).reshape(shape), **constants)


def _pad_with_computed_value(node: NodeInfo):
    """Write a Pad whose value is computed."""
    if node.text("mode", "constant") != "constant" or not node.has(2) or node.value(2) is not None:
        return None
    axes = ", , x3" if node.has(3) else ""
    nodes = f"""sizes = Shape(x0) ones = ConstantOfShape <value = int32[1] {{1}}> (sizes)
        inside = Pad(ones, x1{axes}) mask = Cast <to = 9> (inside) data = Pad(x0, x1{axes})
        y0 = Where(mask, data, x2)"""
    return node.body(nodes)


def _cumulative_product(node: NodeInfo):
    """Write the products as those of rows of a triangle."""
    shape = node.shape(0)
    axis = int(node.constant(1, "an axis").reshape(())) % len(shape)
    size = node.known(shape[axis], f"axis {axis}")
    node.require(size <= 1024, f"a product of {size} elements")
    mask = np.tri(size, k=-1 if node.attrs.get("exclusive", 0) else 0, dtype=bool)
    mask = mask[::-1, ::-1] if node.attrs.get("reverse", 0) else mask
    mask = mask.reshape([size, size] + [1] * (len(shape) - axis - 1))
    nodes = """rows = Unsqueeze(x0, axis) kept = Where(mask, rows, one)
        y0 = ReduceProd <keepdims = 0> (kept, next)"""
    one, axes = node.dtype(0).type(1), {"axis": np.array([axis]), "next": np.array([axis + 1])}
    return node.body(nodes, mask=mask, one=one, **axes)


def _matrix(length: int, rows: int, parts: int, node: NodeInfo):
    """Return the matrix of a Fourier transform: (rows, parts, frequencies, parts of the result)."""
    is_inverse, is_onesided = (bool(node.attrs.get(key, 0)) for key in ("inverse", "onesided"))
    columns = length // 2 + 1 if is_onesided and not is_inverse else length
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    angles = 2 * np.pi / length * turns
    # That of half a turn is 0, so that imaginary parts are where the transform of reals has none.
    cos, sin = np.cos(angles), np.where(turns * 2 % length == 0, 0.0, np.sin(angles))
    sin = -sin if is_inverse else sin
    # Rows are the real and the imaginary part of the data, columns those of the result.
    matrix = np.array([[cos, -sin], [sin, cos]]).transpose(2, 0, 3, 1)[:, :parts]
    if is_inverse:
        matrix = matrix / length
        if is_onesided:
            # The other half of the frequencies are conjugates.
            is_own = (np.arange(rows) * 2) % length == 0
            matrix = matrix[..., :1] * np.where(is_own, 1, 2)[:, None, None, None]
    return matrix


def _dft(node: NodeInfo):
    """Write the transform as a matmul by a constant."""
    shape, axis = node.shape(0), node.attrs.get("axis", 1)
    if node.opset >= 20:
        axis = int(node.constant(2, "an axis").reshape(())) if node.has(2) else -2
    axis %= len(shape)
    size = node.known(shape[axis], f"axis {axis}")
    is_half = bool(node.attrs.get("inverse", 0) and node.attrs.get("onesided", 0))
    length = 2 * (size - 1) if is_half else size
    if node.has(1):
        length = int(node.constant(1, "dft_length").reshape(()))
    rows = min(size, length // 2 + 1 if is_half else length)
    parts = node.known(shape[-1], "the last axis")
    node.require(length > 0 and 4 * rows * length <= _MAX_ELEMENTS, f"a length of {length}")
    matrix = _matrix(length, rows, parts, node)
    rank, (columns, results) = len(shape), matrix.shape[2:]
    order = [*(k for k in range(rank - 1) if k != axis), axis, rank - 1]
    nodes = f"""part = Slice(x0, begin, end, axis) turned = Transpose <perm = {order}> (part)
        flat = Reshape(turned, joined) frequencies = MatMul(flat, matrix)
        rows = Reshape(frequencies, split)
        y0 = Transpose <perm = {np.argsort(order).tolist()}> (rows)"""
    outer = [0] * (rank - 2)
    constants = {"begin": [0], "end": [rows], "axis": [axis]}
    constants.update(joined=[*outer, rows * parts], split=[*outer, columns, results])
    matrix = matrix.reshape(rows * parts, columns * results).astype(node.dtype(0))
    return node.body(nodes, matrix=matrix, **{k: np.array(v) for k, v in constants.items()})


def _stft(node: NodeInfo):
    """Write the transforms of all frames as a convolution."""
    shape, step = node.shape(0), int(node.constant(1, "frame_step").reshape(()))
    if node.has(3) or not node.has(2):
        length = int(node.constant(3, "frame_length").reshape(()))
    else:
        length = node.known(node.shape(2)[0], "a window")
    parts = node.known(shape[2], "the last axis") if len(shape) == 3 else 1
    node.require(4 * length**2 <= _MAX_ELEMENTS, f"a length of {length}")
    node.attrs.setdefault("onesided", 1)
    matrix = _matrix(length, length, parts, node)
    columns = matrix.shape[2]
    weight = matrix.transpose(3, 2, 1, 0).reshape(-1, parts, length).astype(node.dtype(0))
    turned = "Reshape(x0, one)" if len(shape) == 2 else "Transpose <perm = [0, 2, 1]> (x0)"
    nodes = f"data = {turned} kernel = {'Mul(weight, x2)' if node.has(2) else 'Identity(weight)'}"
    nodes += f"""signal = Conv <strides = [{step}]> (data, kernel) split = Reshape(signal, sizes)
        y0 = Transpose <perm = [0, 3, 2, 1]> (split)"""
    sizes, one = np.array([0, 2, columns, -1]), np.array([0, 1, -1])
    return node.body(nodes, weight=weight, sizes=sizes, one=one)


def _col2im(node: NodeInfo):
    """Write the sum of blocks as a transposed convolution of each channel's own."""
    image, block = node.constant(1, "image_shape"), node.constant(2, "block_shape")
    columns = node.known(node.shape(0)[1], "axis 1")
    rank, size = len(block), int(np.prod(block))
    strides, dilations = (node.attrs.get(k) or [1] * rank for k in ("strides", "dilations"))
    pads = node.attrs.get("pads") or [0] * (2 * rank)
    channels, counts, more = columns // size, [], []
    for k in range(rank):
        room = image[k] + pads[k] + pads[rank + k] - dilations[k] * (block[k] - 1) - 1
        counts.append(int(room // strides[k] + 1))
        more.append(int(room % strides[k]))
    weight = np.eye(size).reshape(size, 1, *block).astype(node.dtype(0))
    attrs = dict(strides=strides, dilations=dilations, pads=pads, output_padding=more)
    text = ", ".join(f"{name} = {[*map(int, value)]}" for name, value in attrs.items())
    nodes = f"""blocks = Reshape(x0, sizes)
        y0 = ConvTranspose <group = {channels}, {text}> (blocks, weight)"""
    weight = np.tile(weight, [channels] + [1] * (rank + 1))
    return node.body(nodes, sizes=np.array([0, columns, *counts]), weight=weight)


def _determinant(node: NodeInfo):
    """Write a sum over permutations."""
    shape = node.shape(0)
    size = node.known(shape[-1], "the last axis")
    node.require(size <= 3, f"a matrix of {size} columns, more than 3,")
    constants, nodes, terms = {}, ["flat = Reshape(x0, sizes)"], []
    for number, order in enumerate(itertools.permutations(range(size))):
        at = [row * size + column for row, column in enumerate(order)]
        is_odd = sum(a > b for a, b in itertools.combinations(order, 2)) % 2
        constants[f"at{number}"] = np.array(at)
        nodes.append(f"part{number} = Gather <axis = -1> (flat, at{number})")
        reduced = node.reduced("ReduceProd", f"part{number}", [-1], "last", keepdims=0)
        nodes.append(f"product{number} = {reduced}")
        nodes.append(f"term{number} = {'Neg' if is_odd else 'Identity'}(product{number})")
        terms.append(f"term{number}")
    nodes.append(f"y0 = Sum({', '.join(terms)})")
    constants.update(sizes=np.array([0] * (len(shape) - 2) + [size**2]), last=np.array([-1]))
    return node.body(" ".join(nodes), **constants)


def _eye_like(node: NodeInfo):
    import onnx

    rows, columns = (node.known(size, "the input") for size in node.shape(0))
    dtype = node.dtype(0)
    if "dtype" in node.attrs:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(node.attrs["dtype"])
    eye = np.eye(rows, columns, k=node.attrs.get("k", 0), dtype=dtype)
    return node.body("y0 = Identity(eye)", eye=eye)


def _bit_shift(node: NodeInfo):
    """Write a shift by at least the width of the type, or by a negative number, as the standard."""
    if not node.has_type(0):
        return None
    dtype, shift = node.dtype(0), node.value(1)
    width, direction = 8 * dtype.itemsize, node.text("direction")
    if shift is not None and ((shift >= 0) & (shift < width)).all():
        return None
    nodes = "is_long = Greater(x1, last) is_negative = Less(x1, zero) "
    nodes += "is_outside = Or(is_long, is_negative) "
    if direction == "RIGHT" and dtype.kind == "i":
        # The sign fills the result.
        nodes += (
            "shift = Where(is_outside, last, x1) y0 = BitShift <direction = 'RIGHT'> (x0, shift)"
        )
    else:
        nodes += f"""shift = Where(is_outside, zero, x1)
            shifted = BitShift <direction = '{direction}'> (x0, shift)
            y0 = Where(is_outside, zero, shifted)"""
    last, zero = np.array(width - 1, dtype), np.array(0, dtype)
    return node.body(nodes.replace("'", '"'), last=last, zero=zero)


def _floor_mod(node: NodeInfo):
    """Write the remainder of floating-point numbers, which TVM computes from their quotient."""
    if node.attrs.get("fmod", 0) or not node.has_type(0) or node.dtype(0).kind in "iu":
        return None
    nodes = """rest = Mod <fmod = 1> (x0, x1) is_zero = Equal(rest, zero) is_some = Not(is_zero)
        is_negative = Less(rest, zero) is_below = Less(x1, zero)
        is_other = Xor(is_negative, is_below) is_moved = And(is_some, is_other)
        sum = Add(rest, x1) y0 = Where(is_moved, sum, rest)"""
    return node.body(nodes, zero=np.array(0, node.dtype(0)))


def _blocks(node: NodeInfo):
    """Return the axis, and the sizes of a tensor whose blocks are an axis of their own."""
    block, shape = node.attrs["block_size"], node.shape(0)
    axis = node.attrs.get("axis", 1) % len(shape)
    size = node.known(shape[axis], f"axis {axis}")
    node.require(size % block == 0, f"block_size={block} of a size of {size}")
    sizes = [*(0 for _ in shape[:axis]), size // block, block]
    return axis, sizes + [
        node.known(each, "an axis after the blocks") for each in shape[axis + 1 :]
    ]


def _dequantize_blocks(node: NodeInfo):
    if not node.attrs.get("block_size", 0):
        return None
    axis, sizes = _blocks(node)
    dtype = node.dtype(1)
    nodes = f"blocks = Reshape(x0, sizes) wide = Cast <to = {_kind(dtype)}> (blocks)"
    data = "wide"
    if node.has(2):
        nodes += f""" zeros = Unsqueeze(x2, inner) zero = Cast <to = {_kind(dtype)}> (zeros)
            data = Sub(wide, zero)"""
        data = "data"
    nodes += f""" scale = Unsqueeze(x1, inner) real = Mul({data}, scale)
        shape = Shape(x0) y0 = Reshape(real, shape)"""
    return node.body(nodes, sizes=np.array(sizes), inner=np.array([axis + 1]))


def _quantize_blocks(node: NodeInfo):
    import onnx

    if not node.attrs.get("block_size", 0):
        return None
    axis, sizes = _blocks(node)
    kind = node.dtype(2) if node.has(2) else np.dtype("uint8")
    if node.attrs.get("output_dtype", 0):
        kind = onnx.helper.tensor_dtype_to_np_dtype(node.attrs["output_dtype"])
    node.require(kind in ("int8", "uint8", "int16", "uint16"), f"blocks of {kind}")
    dtype, bounds = node.dtype(0), np.iinfo(kind)
    nodes = """blocks = Reshape(x0, sizes) scale = Unsqueeze(x1, inner) part = Div(blocks, scale)
        near = Round(part)"""
    data = "near"
    if node.has(2):
        nodes += f""" zeros = Unsqueeze(x2, inner) zero = Cast <to = {_kind(dtype)}> (zeros)
            data = Add(near, zero)"""
        data = "data"
    nodes += f""" kept = Clip({data}, lowest, highest) values = Cast <to = {_kind(kind)}> (kept)
        shape = Shape(x0) y0 = Reshape(values, shape)"""
    ends = {"lowest": np.array(bounds.min, dtype), "highest": np.array(bounds.max, dtype)}
    return node.body(nodes, sizes=np.array(sizes), inner=np.array([axis + 1]), **ends)


def _kind(dtype) -> int:
    import onnx

    return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _widen(node: NodeInfo):
    """Write constants of 2 or 4 bits, which TVM does not have, in 8 bits."""
    names, values = {}, {}
    for number in (0, 2):
        dtype = node.dtype(number).name if node.has_type(number) else ""
        value = node.value(number) if dtype in ("int2", "int4", "uint2", "uint4") else None
        if value is not None:
            wide = "int8" if dtype.startswith("int") else "uint8"
            names[number], values[f"wide{number}"] = f"wide{number}", value.astype(wide)
    if 0 not in names:
        return None
    inputs = [names.get(k, f"x{k}") for k in range(3 if node.has(2) else 2)]
    attrs = {name: value for name, value in node.attrs.items() if name in ("axis", "block_size")}
    text = ", ".join(f"{name} = {value}" for name, value in attrs.items())
    text = f"<{text}>" if attrs else ""
    return node.body(f"y0 = DequantizeLinear {text} ({', '.join(inputs)})", **values)


_ELEMENTWISE = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")


def _at_axis(op: str, node: NodeInfo):
    """Write an operand whose first axis is a given one, before opset 7, with all axes after it."""
    if "axis" not in node.attrs or node.opset >= 7 or not (node.has_type(0) and node.has_type(1)):
        return None
    shape, axis, rank = node.shape(1), node.attrs["axis"], len(node.shape(0))
    sizes = [*shape, *[1] * (rank - axis % rank - len(shape))]
    if None in sizes:
        return None
    if node.opset < 5:
        operand = f"Reshape <shape = {sizes}> (x1)"
    else:
        operand = "Reshape(x1, sizes)"
    nodes = f"operand = {operand} y0 = {op} <broadcast = 1> (x0, operand)"
    return node.body(nodes, **({"sizes": np.array(sizes)} if node.opset >= 5 else {}))


def _unsqueeze(node: NodeInfo):
    """Write an axis that is a scalar, which TVM does not accept, as a vector."""
    axes = node.value(1)
    if axes is None or axes.ndim:
        return None
    return node.body("y0 = Unsqueeze(x0, axes)", axes=axes.reshape(1))


#: By domain and op.
DECOMPOSITIONS: Mapping[tuple[str, str], Decomposition] = {
    ("", "Col2Im"): _col2im,
    ("", "CumProd"): _cumulative_product,
    ("", "DFT"): _dft,
    ("", "DequantizeLinear"): _dequantize_blocks,
    ("", "Det"): _determinant,
    ("", "EyeLike"): _eye_like,
    ("", "LpNormalization"): _lp_normalization,
    ("", "Pad"): _pad_with_computed_value,
    ("", "QuantizeLinear"): _quantize_blocks,
    ("", "STFT"): _stft,
    ("", "TensorScatter"): _tensor_scatter,
    **EXPERTS,
}

#: Of nodes that TVM reads as others, or rejects without naming the op.
CORRECTIONS: Mapping[tuple[str, str], Decomposition] = {
    **{("", op): functools.partial(_at_axis, op) for op in _ELEMENTWISE},
    ("", "BitShift"): _bit_shift,
    ("", "DequantizeLinear"): _widen,
    ("", "Einsum"): einsum,
    ("", "Mod"): _floor_mod,
    ("", "Unsqueeze"): _unsqueeze,
    **SELECTIONS,
}
