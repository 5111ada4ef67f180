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
"""Repairs of ONNX converters that import a node, without an error, as one that computes another.

A repair writes the node in the variant that its converter reads rightly, or refuses it with an
error that names the node.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from tvm.contrib.onednn.frontend import unrolled_layers

from ... import expr as _expr
from ... import op as _op
from ...qnn import op as _qnn
from . import elementwise, indices, reductions, shapes
from .incremental import infer_shape, infer_type
from .indices import replaced
from .integers import conv_integer, matmul_integer, power
from .matmul import gemm, matmul
from .pools import global_lp_pool, locations, pool
from .recurrent import (
    clipped,
    dynamic_quantize_lstm,
    one_op,
    unrolled_reason,
    with_forget_gate,
)
from .refusals import REFUSED, named, refuse
from .scopes import in_scope, loop
from .training import batch_norm, dropout


def repaired(convert_map, opset):
    """Return the converters, with a repair around each that needs one.

    Parameters
    ----------
    convert_map : dict[str, Callable]
        The converters by ONNX op. Each is called with inputs, attributes and parameters.
    opset : int
        The opset of the model.
    """
    repairs = dict(_REPAIRS)
    repairs.update(_BEFORE_13 if opset < 13 else {})
    default = "half_pixel" if opset >= 16 else "output_half_pixel"
    repairs["RoiAlign"] = functools.partial(_roi_align, default)
    repairs["Dropout"] = functools.partial(dropout, opset)
    product = functools.partial(matmul, "MatMul", convert_map["MatMul"])
    repairs["MatMulInteger"] = functools.partial(matmul_integer, product)
    conv = functools.partial(REFUSED["Conv"], "Conv", convert_map["Conv"])
    repairs["ConvInteger"] = functools.partial(conv_integer, conv)
    # Before, a slope was a vector of channels.
    repairs.update({"PRelu": elementwise.prelu} if opset >= 7 else {})
    wrapped = {
        name: functools.partial(repair, name, convert_map[name])
        for name, repair in repairs.items()
        if name in convert_map
    }
    if "LSTM" in wrapped:
        wrapped["DynamicQuantizeLSTM"] = functools.partial(_quantized_lstm, wrapped["LSTM"])
    converters = {**convert_map, **wrapped}
    return {name: functools.partial(named, name, each, opset) for name, each in converters.items()}


def _conv_transpose(name, convert, inputs, attrs, params):
    """Write the padding of `auto_pad` SAME_UPPER or SAME_LOWER as numbers."""
    mode = attrs.get("auto_pad", b"NOTSET")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    if not mode.startswith("SAME"):
        return convert(inputs, attrs, params)
    kernel = attrs.get("kernel_shape") or infer_shape(inputs[1])[2:]
    rank = len(kernel)
    strides, dilations = (attrs.get(key) or [1] * rank for key in ("strides", "dilations"))
    more = attrs.get("output_padding") or [0] * rank
    size, wanted = infer_shape(inputs[0])[2:], attrs.get("output_shape")
    begin, end = [], []
    for k in range(rank):
        # Where all of the result is kept, it is `stride` times as long as the data.
        total = more[k] + (kernel[k] - 1) * dilations[k] + 1 - strides[k]
        if wanted is not None:
            if not isinstance(size[k], int):
                refuse(name, attrs, "output_shape with an input of open size")
            total += strides[k] * size[k] - wanted[-rank:][k]
        if total < 0:
            refuse(name, attrs, f"auto_pad={mode} with a negative padding of {total}")
        begin.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
        end.append(total - begin[-1])
    kept = {key: attrs[key] for key in attrs if key not in ("auto_pad", "output_shape")}
    kept.update(pads=[*begin, *end], strides=list(strides))
    return convert(inputs, kept, params)


def _recurrent(name, convert, inputs, attrs, params):
    """Write a layer as one op, or run a single direction "reverse" over the reversed sequence.

    TVM's converters count the directions and do not look at their name. That of GRU alone knows
    lengths, and none clips or has batches first.
    """
    if attrs.get("input_forget"):
        inputs, attrs = with_forget_gate(inputs, attrs)
    if attrs.get("clip", 1.0) <= 0:
        refuse(name, attrs, f"clip={attrs['clip']}")
    reason = unrolled_reason(name, inputs, attrs)
    if reason is None:
        return one_op(name, inputs, attrs, functools.partial(refuse, name, attrs))
    unrolled_layers.note(name, attrs.get("tvm_custom", {}).get("name") or "", reason)
    if attrs.get("input_forget"):
        refuse(name, attrs, "input_forget in a layer that has to be unrolled")
    if "clip" in attrs:
        convert = clipped(convert, attrs["clip"])
    if attrs.get("layout", 0):
        return _batch_first(name, convert, inputs, attrs, params)
    return _unrolled(name, convert, inputs, attrs, params)


def _batch_first(name, convert, inputs, attrs, params):
    """Unroll a layer with batches first."""
    inputs = type(inputs)(inputs)
    for k in (0, 5, 6):
        if inputs[k] is not None:
            inputs[k] = _op.transpose(inputs[k], [1, 0, 2])
    y, *states = _unrolled(name, convert, inputs, {**attrs, "layout": 0}, params)
    results = [_op.transpose(y, [2, 0, 1, 3]), *(_op.transpose(s, [1, 0, 2]) for s in states)]
    return _expr.TupleWrapper(_expr.Tuple(results), len(results))


def _unrolled(name, convert, inputs, attrs, params):
    """Write a layer with time first as the ops of all steps."""
    steps, lengths = infer_shape(inputs[0])[0], inputs[4]
    if isinstance(lengths, _expr.Constant) and (lengths.data.numpy() == steps).all():
        inputs, lengths = replaced(inputs, 4, None), None
    if lengths is not None and name != "GRU":
        refuse(name, attrs, "sequence_lens other than the constant length of the input")
    if attrs.get("direction", b"forward") not in (b"reverse", "reverse"):
        return convert(inputs, attrs, params)

    def turned(data):
        if lengths is None:
            return _op.reverse(data, 0)
        return _op.reverse_sequence(data, lengths, 0, 1)

    forward = {**attrs, "direction": b"forward"}
    results = list(convert(replaced(inputs, 0, turned(inputs[0])), forward, params))
    # The first is of the shape (steps, directions, batch, hidden).
    results[0] = _op.expand_dims(turned(_op.squeeze(results[0], [1])), 1)
    return _expr.TupleWrapper(_expr.Tuple(results), len(results))


def _quantized_lstm(convert, inputs, attrs, params):
    refused = functools.partial(refuse, "DynamicQuantizeLSTM", attrs)
    return dynamic_quantize_lstm(inputs, attrs, params, convert, refused)


def _softmax(name, convert, inputs, attrs, params):
    """Sum over all dimensions from the axis on."""
    data, shape = inputs[0], infer_shape(inputs[0])
    axis = attrs.get("axis", 1) % len(shape)
    after = shape[axis + 1 :]
    if all(isinstance(size, int) for size in after) and math.prod(after) == 1:
        return convert(inputs, {**attrs, "axis": axis}, params)
    rows = _op.reshape(data, [0] * axis + [-1])
    rows = convert(replaced(inputs, 0, rows), {**attrs, "axis": axis}, params)
    is_known = all(isinstance(size, int) for size in shape)
    return _op.reshape(rows, shape if is_known else _op.shape_of(data, "int64"))


def _lp_pool(name, convert, inputs, attrs, params):
    """Raise the magnitudes to the power."""
    return pool(name, convert, replaced(inputs, 0, _op.abs(inputs[0])), attrs, params)


def _unsqueeze(name, convert, inputs, attrs, params):
    """Count negative axes from the end of the result."""
    given = attrs.get("axes")
    if given is None:
        if not isinstance(inputs[1], _expr.Constant):
            return convert(inputs, attrs, params)
        given = inputs[1].data.numpy().tolist()
    rank = len(infer_shape(inputs[0])) + len(given)
    axes = sorted(axis % rank for axis in given)
    if "axes" in attrs:
        return convert(inputs, {**attrs, "axes": axes}, params)
    return convert(replaced(inputs, 1, _expr.const(axes, "int64")), attrs, params)


def _resize(name, convert, inputs, attrs, params):
    """Refuse what TVM computes from the quotient of both sizes, or without antialiasing."""

    def text(key, default):
        value = attrs.get(key, default)
        return value.decode() if isinstance(value, bytes) else value

    attrs = {"mode": b"nearest", **attrs}
    mode, position = text("mode", "nearest"), text("coordinate_transformation_mode", "half_pixel")
    if attrs.get("antialias", 0):
        refuse(name, attrs, "antialias")
    if attrs.get("axes"):
        refuse(name, attrs, "axes")
    if inputs[2] is None and inputs[3] is not None:
        # TVM's converter of opset 11 expects an empty tensor.
        inputs = replaced(inputs, 2, _expr.const(np.zeros(0), "float32"))
    if mode == "nearest":
        if (position, text("nearest_mode", "")) == ("asymmetric", "round_prefer_ceil"):
            refuse(name, attrs, "nearest_mode=round_prefer_ceil with asymmetric positions")
        return convert(inputs, attrs, params)
    scales, sizes = inputs[2] if len(inputs) > 2 else None, infer_shape(inputs[0])
    factors = scales.data.numpy().tolist() if isinstance(scales, _expr.Constant) else []
    products = [each * by for each, by in zip(sizes, factors) if isinstance(each, int)]
    if position == "align_corners" and any(
        1 <= each < 2 <= size for each, size in zip(products, sizes)
    ):
        refuse(name, attrs, "align_corners to a size of one")
    if position != "align_corners" and any(each != math.floor(each) for each in products):
        refuse(name, attrs, "scales that give a fractional size")
    if position == "half_pixel_symmetric":
        attrs = {**attrs, "coordinate_transformation_mode": b"half_pixel"}
    return convert(inputs, attrs, params)


def _grid_sample(name, convert, inputs, attrs, params):
    """Read the names of modes since opset 20, and volumes."""
    names = {b"linear": b"bilinear", b"cubic": b"bicubic"}
    mode = attrs.get("mode", b"bilinear")
    mode, rank = names.get(mode, mode).decode(), len(infer_shape(inputs[0]))
    if rank == 4:
        return convert(inputs, {**attrs, "mode": mode.encode()}, params)
    if rank != 5 or mode == "bicubic":
        refuse(name, attrs, f"mode={mode} for {rank - 2} spatial dimensions")
    return _op.image.grid_sample(
        inputs[0],
        _op.transpose(inputs[1], [0, 4, 1, 2, 3]),
        mode,
        layout="NCDHW",
        padding_mode=attrs.get("padding_mode", b"zeros").decode(),
        align_corners=bool(attrs.get("align_corners", 0)),
    )


def _roi_align(default, name, convert, inputs, attrs, params):
    if attrs.get("mode", b"avg") not in (b"avg", "avg"):
        refuse(name, attrs, "mode=max")
    mode = attrs.get("coordinate_transformation_mode", default)
    if mode in (b"half_pixel", "half_pixel"):
        refuse(name, attrs, "coordinate_transformation_mode=half_pixel")
    # TVM needs the channels and, to bound the number of samples, height and width.
    _, channels, *sides = infer_shape(inputs[0])
    if not isinstance(channels, int):
        refuse(name, attrs, "an image of an open number of channels")
    if attrs.get("sampling_ratio", 0) <= 0 and not all(isinstance(n, int) for n in sides):
        refuse(name, attrs, "sampling_ratio=0 with an image of open size")
    return convert(inputs, attrs, params)


def _upsample(name, convert, inputs, attrs, params):
    if len(inputs) > 1 and isinstance(inputs[1], _expr.Var) and inputs[1].name_hint not in params:
        refuse(name, attrs, "scales that are an input of the model")
    return convert(inputs, {"mode": b"nearest", **attrs}, params)


def _quantize(name, convert, inputs, attrs, params):
    """Give a tensor without a zero point one of zero, of uint8 by default."""
    if inputs[2] is not None:
        return convert(inputs, attrs, params)
    import onnx  # pylint: disable=import-outside-toplevel

    kind = attrs.get("output_dtype", 0) or onnx.TensorProto.UINT8
    zero = np.zeros(infer_shape(inputs[1]), onnx.helper.tensor_dtype_to_np_dtype(kind))
    return convert(
        type(inputs)([*list(inputs)[:2], _expr.const(zero, str(zero.dtype))]), attrs, params
    )


def _dequantize(name, convert, inputs, attrs, params):
    """Give a tensor without a zero point one of zero."""
    if len(inputs) > 2 and inputs[2] is not None:
        return convert(inputs, attrs, params)
    dtype = infer_type(inputs[0]).checked_type.dtype
    zero = _op.zeros(infer_shape(inputs[1]), dtype)
    return convert(type(inputs)([*list(inputs)[:2], zero]), attrs, params)


def _q_linear(name, convert, inputs, attrs, params):
    """Quantize the result, and give the bias its scale, which the wheel's converters leave out."""
    # The wheel adds an int32 bias to float32.
    result = convert(type(inputs)(inputs[:8]), dict(attrs), params)
    dtype = infer_type(inputs[7]).checked_type.dtype
    if infer_type(result).checked_type.dtype == dtype:
        return result if len(inputs) == 8 else convert(inputs, attrs, params)

    def scalar(value, kind):
        return _op.cast(_op.squeeze(value) if infer_shape(value) else value, kind)

    if len(inputs) > 8:
        scale = scalar(inputs[1], "float32") * scalar(inputs[4], "float32")
        result = _op.nn.bias_add(result, _op.cast(inputs[8], "float32") * scale)
    scale, zero_point = scalar(inputs[6], "float32"), scalar(inputs[7], "int32")
    return _qnn.quantize(result, scale, zero_point, out_dtype=dtype)


_OF_FLOAT32 = (
    "Acos Acosh Asin Asinh Atan Atanh Cosh Elu Selu Sinh Softsign Tan ThresholdedRelu".split()
)
_REPAIRS = {
    **REFUSED,
    **reductions.REPAIRS,
    **dict.fromkeys(_OF_FLOAT32, elementwise.wide),
    **dict.fromkeys(("Add", "Div", "Mul", "Sub"), elementwise.of_scalar),
    "Gelu": elementwise.gelu,
    "GlobalLpPool": global_lp_pool,
    "GridSample": _grid_sample,
    "QLinearConv": _q_linear,
    "QLinearMatMul": _q_linear,
    "QuantizeLinear": _quantize,
    "Resize": _resize,
    "Upsample": _upsample,
    "AveragePool": pool,
    "BatchNormalization": batch_norm,
    "Clip": elementwise.clip,
    "ConvTranspose": _conv_transpose,
    "GRU": _recurrent,
    "DequantizeLinear": _dequantize,
    "EyeLike": indices.eye_like,
    "Gather": indices.gather,
    "GatherElements": indices.gather,
    "GatherND": indices.gather_nd,
    "Gemm": gemm,
    "If": in_scope,
    "LSTM": _recurrent,
    "Loop": loop,
    "LpPool": _lp_pool,
    "MatMul": matmul,
    "MaxPool": pool,
    "MaxPoolLocation": locations,
    "Max": elementwise.extremum,
    "Mean": elementwise.mean,
    "Min": elementwise.extremum,
    "OneHot": indices.one_hot,
    "Pad": shapes.pad,
    "Pow": power,
    "RNN": _recurrent,
    "Reshape": shapes.reshape,
    "ReverseSequence": indices.reverse_sequence,
    "Scatter": indices.gather,
    "ScatterElements": indices.gather,
    "ScatterND": indices.scatter_nd,
    "SequenceInsert": indices.sequence_insert,
    "Shape": indices.shape_between,
    "Slice": shapes.part,
    "Split": indices.split,
    "Tile": shapes.tile,
    "TopK": indices.top_k,
    "Unsqueeze": _unsqueeze,
}
_BEFORE_13 = {"LogSoftmax": _softmax, "Softmax": _softmax}
