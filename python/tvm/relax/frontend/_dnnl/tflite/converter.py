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
"""TVM's converter of TFLite operators, with repairs.

It reads the values of operands that the file computes from constants or from shapes, which TVM
takes from the file only, and shapes as they are inferred, of which a file may have others: they
are those of the sizes that it was exported with.
"""

from __future__ import annotations

import numpy as np
import tvm
from tflite.BatchMatMulOptions import BatchMatMulOptions
from tflite.BuiltinOperator import BuiltinOperator
from tflite.SqueezeOptions import SqueezeOptions
from tflite.TensorType import TensorType
from tvm import relax
from tvm.relax.frontend.tflite import tflite_frontend

from ..backend import constant_results, is_constant, sizes, value_of

#: Operators that keep a state between runs, which a function of Relax cannot.
_VARIABLES = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")


#: Operators that move elements, in 8 bits as they are if all tensors have one scale and zero point.
_MOVES = (
    "DEPTH_TO_SPACE",
    "EXPAND_DIMS",
    "GATHER",
    "PACK",
    "PAD",
    "PADV2",
    "RESIZE_NEAREST_NEIGHBOR",
    "REVERSE_V2",
    "SLICE",
    "SPACE_TO_DEPTH",
    "SPLIT",
    "SPLIT_V",
    "SQUEEZE",
    "STRIDED_SLICE",
    "TILE",
    "TRANSPOSE",
    "UNPACK",
)


class _AsFloat32:
    """A quantized weight, as an operator sees it that computes in float32."""

    def __init__(self, tensor):
        self._tensor = tensor

    def Type(self):  # pylint: disable=invalid-name
        """Return the type of its values."""
        return TensorType.FLOAT32

    def __getattr__(self, name):
        return getattr(self._tensor, name)


class _NoExpression(Exception):
    """An operator that sets a value itself, such as DENSIFY."""


class Converter(tflite_frontend.OperatorConverter):
    """Convert the operators of a TFLite graph to Relax."""

    def __init__(self, *args):
        super().__init__(*args)
        self._reads_float32 = False

    def check_unsupported_ops(self):
        """Raise an error that names all operators that cannot be converted."""
        refused: dict[str, dict[str, None]] = {}
        for op in self._operators():
            name, custom = self._name_of(op)
            if custom:
                name = f"{custom.decode(errors='replace')} (custom)"
            reason = self._refusal(op, name)
            if reason:
                refused.setdefault(reason, {})[name] = None
        if refused:
            listed = "; ".join(f"{', '.join(names)}: {why}" for why, names in refused.items())
            raise tvm.error.OpNotImplemented(f"TFLite operators that cannot be imported: {listed}")

    def _refusal(self, op, name: str) -> str:
        if name in _VARIABLES:
            return "a state that the model keeps between runs has to be its input and output"
        if name not in self.convert_map:
            return "no converter"
        if not self._is_quantized(op) or name in self._SUPPORTED_QUANTIZED_OPS:
            return ""
        if name not in _MOVES:
            return "no converter for 8 bits"
        tensors = self.get_input_tensors(op) + self.get_output_tensors(op)
        first, *others = (tensor for tensor in tensors if tensor.qnn_params is not None)
        is_one = all(self.has_same_qnn_params(first, other) for other in others)
        return "" if is_one else "moves elements between different scales or zero points"

    def convert_op_to_relax(self):
        """Convert all operators; those whose operands are constants are computed."""
        for number, op in enumerate(self._operators()):
            name, _ = self._name_of(op)
            self._reads_float32 = False
            outputs = self.get_output_tensors(op)
            self._reads_float32 = self._has_float32_data(op, outputs)
            try:
                values = self._computed(op, name) if self._is_known(op) else None
                result = self.convert_map[name](op=op) if values is None else values
            except Exception as error:
                names = [
                    tflite_frontend.get_tensor_name(self.subgraph, output.tensor_idx)
                    for output in outputs
                ]
                where = f"operator {number} {name} ({', '.join(names)})"
                # The types that TVM raises differ, for the same reasons.
                raise ValueError(f"{where}: {error or type(error).__name__}") from error
            if result is not None:
                self._set(outputs, self.bb.normalize(result) if values is None else result)

    def _operators(self):
        return (self.subgraph.Operators(i) for i in range(self.subgraph.OperatorsLength()))

    def _set(self, outputs, result: relax.Expr | list[np.ndarray]) -> None:
        is_one = len(outputs) == 1 and not isinstance(result, list)
        fields = [result] if is_one else [result[i] for i in range(len(outputs))]
        for tensor, field in zip(outputs, fields):
            if isinstance(field, np.ndarray) or is_constant(field):
                # As a value of the file: converters take an expression for an unknown value.
                value = field if isinstance(field, np.ndarray) else value_of(field)
                self.set_prefetched_node(tensor.tensor_idx, value)
            else:
                name = tflite_frontend.get_tensor_name(self.subgraph, tensor.tensor_idx)
                self.exp_tab.set_expr(name, field)

    def _computed(self, op, name: str) -> list[np.ndarray] | None:
        """Return the results of an operator whose operands are constants, if they are known."""
        builder, known = self.bb, dict(self.prefetched_nodes)

        def build(own):
            self.bb = own
            result = self.convert_map[name](op=op)
            if result is None:
                raise _NoExpression
            return result

        try:
            return constant_results(build)
        except _NoExpression:
            self.prefetched_nodes = known  # the operator is converted again
            return None
        finally:
            self.bb = builder

    def _is_known(self, op) -> bool:
        """Whether the results of an operator are computed here, as its operands are constants.

        The dequantize of a weight stays, which may be multiplied by in 8 bits.
        """
        if self._is_quantized(op):
            return False
        tensors = [tensor for tensor in self.get_input_tensors(op) if tensor.tensor_idx >= 0]
        return not any(self.has_expr(tensor.tensor_idx) for tensor in tensors)

    def _name_of(self, op) -> tuple[str, bytes]:
        """Return the name of an operator, and of a custom one that TVM does not know its own."""
        code = self.model.OperatorCodes(op.OpcodeIndex())
        number = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())
        custom = code.CustomCode() or b"without a name"
        if number == BuiltinOperator.CUSTOM:
            return (
                ("DETECTION_POSTPROCESS", b"")
                if custom == b"TFLite_Detection_PostProcess"
                else ("CUSTOM", custom)
            )
        return self.builtin_op_code.get(number, f"operator {number}"), b""

    def _is_quantized(self, op) -> bool:
        data = self.get_input_tensors(op)[:1] + self.get_output_tensors(op)
        return any(tensor.qnn_params is not None for tensor in data)

    def _has_float32_data(self, op, outputs) -> bool:
        """Whether an operator computes in float32, also if its weights are quantized.

        Files of dynamic-range quantization have such; the interpreter quantizes the data, too.
        """
        data = [tensor for tensor in self.get_input_tensors(op)[:1] if tensor.tensor_idx >= 0]
        types = [tensor.tensor.Type() for tensor in [*data, *outputs]]
        return bool(data) and all(each == TensorType.FLOAT32 for each in types)

    def get_tensors(self, tensors_idx_list):
        """Return tensors; weights in float32 if the operator computes in it."""
        tensors = super().get_tensors(tensors_idx_list)
        return [self._in_float32(each) if self._reads_float32 else each for each in tensors]

    def _in_float32(self, wrapper):
        if wrapper.qnn_params is None or wrapper.tensor.Type() == TensorType.FLOAT32:
            return wrapper
        scale, zero_point = (value_of(wrapper.qnn_params[k]) for k in ("scale", "zero_point"))
        values = super().get_tensor_value(wrapper).astype("float32")
        if scale.ndim:
            shape = [1] * values.ndim
            shape[wrapper.qnn_params["axis"]] = -1
            scale = scale.reshape(shape)
        self.set_prefetched_node(wrapper.tensor_idx, (values - zero_point) * scale)
        return tflite_frontend.TensorWrapper(
            wrapper.tensor_idx, _AsFloat32(wrapper.tensor), wrapper.buffer
        )

    def get_expr(self, input_tensor_idx):
        """Return the expression of a tensor, also of one with a known value."""
        if self.has_expr(input_tensor_idx):
            return super().get_expr(input_tensor_idx)
        (tensor,) = self.get_tensors([input_tensor_idx])
        return self.get_tensor_expr(tensor)

    def get_tensor_value(self, tensor_wrapper, is_sparse=False):
        """Return the value of a constant, also of one that the graph computes."""
        index = tensor_wrapper.tensor_idx
        if self.has_expr(index):
            raise ValueError("an operand must be constant, but depends on the inputs")
        if self.is_prefetched(index):
            return self.get_prefetched_node(index)
        if not tensor_wrapper.buffer.DataLength():
            # numpy of flatbuffers has no array without elements.
            shape = [int(size) for size in super().get_tensor_shape(tensor_wrapper)]
            if np.prod(shape):
                raise ValueError(f"operand {index} has no value")
            return np.zeros(shape, self.get_tensor_type_as_numpy(tensor_wrapper))
        return super().get_tensor_value(tensor_wrapper, is_sparse)

    def get_tensor_shape(self, tensor_wrapper):
        """Return the shape that was inferred; that of the file for a constant or a result."""
        index = tensor_wrapper.tensor_idx
        if self.is_prefetched(index):
            return np.array(self.get_prefetched_node(index).shape, "int32")
        known = sizes(self.bb.normalize(self.get_expr(index)).ty) if self.has_expr(index) else None
        if known is None or None in known:
            return super().get_tensor_shape(tensor_wrapper)
        is_complex = tensor_wrapper.tensor.Type() == TensorType.COMPLEX64
        return np.array(known[:-1] if is_complex else known, "int32")

    def convert_shape(self, op):
        """Convert SHAPE, of known sizes to a constant."""
        (tensor,) = self.get_input_tensors(op)
        (output,) = self.get_output_tensors(op)
        known = sizes(self.bb.normalize(self.get_tensor_expr(tensor)).ty)
        if known is None or None in known:
            return super().convert_shape(op)
        return relax.const(np.array(known), self.get_tensor_type_str(output.tensor.Type()))

    def convert_expand_dims(self, op):
        """Convert EXPAND_DIMS; TVM 0.27 passes one argument too many."""
        data, axis = self.get_input_tensors(op)
        number = int(np.ravel(self.get_tensor_value(axis))[0])
        return relax.op.expand_dims(self.get_tensor_expr(data), number)

    def convert_select(self, op):
        """Convert SELECT and SELECT_V2; conditions of SELECT may be a vector, one for each row."""
        condition, *others = self.get_input_tensors(op)
        values = [self.get_tensor_expr(each) for each in (condition, *others)]
        rank = len(self.get_tensor_shape(others[0]))
        is_vector = self._name_of(op)[0] == "SELECT" and len(self.get_tensor_shape(condition)) == 1
        if is_vector and rank > 1:
            values[0] = relax.op.expand_dims(values[0], list(range(1, rank)))
        return relax.op.where(*values)

    def convert_batch_matmul(self, op):
        """Convert BATCH_MATMUL; TVM 0.27 fails where one operand broadcasts the other."""
        options = BatchMatMulOptions()
        options.Init(op.BuiltinOptions().Bytes, op.BuiltinOptions().Pos)
        operands = []
        for tensor, is_transposed in zip(
            self.get_input_tensors(op), (options.AdjX(), options.AdjY()), strict=True
        ):
            operand, rank = self.get_tensor_expr(tensor), len(self.get_tensor_shape(tensor))
            axes = [*range(rank - 2), rank - 1, rank - 2]
            operands.append(relax.op.permute_dims(operand, axes) if is_transposed else operand)
        return relax.op.matmul(*operands)

    def convert_cast(self, op):
        """Convert CAST; of a complex tensor it returns the real part, and TVM both."""
        types = [each[0].tensor.Type() for each in self._data_and_result(op)]
        is_real_part = types[0] == TensorType.COMPLEX64 != types[1]
        return self.convert_real(op) if is_real_part else super().convert_cast(op)

    def convert_squeeze(self, op):
        """Convert SQUEEZE; TVM counts negative axes of a complex tensor with the axis of parts."""
        (data,), (result,) = self._data_and_result(op)
        if TensorType.COMPLEX64 not in (data.tensor.Type(), result.tensor.Type()):
            return super().convert_squeeze(op)
        options = SqueezeOptions()
        options.Init(op.BuiltinOptions().Bytes, op.BuiltinOptions().Pos)
        shape = list(self.get_tensor_shape(data))
        given = options.SqueezeDimsAsNumpy() if options.SqueezeDimsLength() else ()
        axes = [int(axis) % len(shape) for axis in given]
        axes = axes or [axis for axis, size in enumerate(shape) if size == 1]
        return relax.op.squeeze(self.get_tensor_expr(data), axes)

    def _data_and_result(self, op):
        return self.get_input_tensors(op)[:1], self.get_output_tensors(op)

    def convert_rfft2d(self, op):
        """Convert RFFT2D to matmuls by the cosines and sines of the transform.

        The result has a last axis of the real and the imaginary part.
        """
        data, length = self.get_input_tensors(op)
        rows, columns = (int(size) for size in self.get_tensor_value(length))
        given = [int(size) for size in self.get_tensor_shape(data)[-2:]]
        # A longer transform is that of the data followed by zeros, a shorter one of its begin.
        used = [min(each) for each in zip(given, (rows, columns))]
        x, emit = self.get_tensor_expr(data), self.bb.emit
        if used != given:
            x = emit(relax.op.strided_slice(x, [-2, -1], [0, 0], used))
        cos, sin = _matrices(columns, used[1], columns // 2 + 1)
        real, imag = emit(relax.op.matmul(x, cos)), emit(relax.op.matmul(x, sin))
        if rows > 1:
            cos, sin = _matrices(rows, rows, used[0])
            parts = [[emit(relax.op.matmul(m, each)) for m in (cos, sin)] for each in (real, imag)]
            (real_cos, real_sin), (imag_cos, imag_sin) = parts
            real, imag = relax.op.subtract(real_cos, imag_sin), relax.op.add(imag_cos, real_sin)
        return relax.op.stack([real, imag], -1)


def _matrices(size: int, rows: int, columns: int) -> tuple[relax.Expr, relax.Expr]:
    """Return the real and the imaginary part of a part of the matrix of a transform of a size."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % size
    factors = np.exp(-2j * np.pi / size * turns)
    return relax.const(factors.real.astype("float32")), relax.const(factors.imag.astype("float32"))
