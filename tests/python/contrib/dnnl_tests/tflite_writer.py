# SPDX-License-Identifier: Apache-2.0
"""Writes small TFLite models, op by op; it needs the package tflite, and no TVM."""

from typing import NamedTuple

import flatbuffers
import numpy as np
import tflite

_TYPES = {
    "float32": tflite.TensorType.FLOAT32,
    "float16": tflite.TensorType.FLOAT16,
    "bool": tflite.TensorType.BOOL,
    "complex64": tflite.TensorType.COMPLEX64,
    "uint8": tflite.TensorType.UINT8,
    "int8": tflite.TensorType.INT8,
    "int32": tflite.TensorType.INT32,
}


class Steps(NamedTuple):
    """How integers represent floating-point values: scale * (q - zero_point)."""

    scale: object
    zero_point: int = 0
    axis: int = 0


class Writer:
    """Writes a TFLite model."""

    def __init__(self):
        self.builder = flatbuffers.Builder(1024)
        self.tensors, self.buffers, self.operators, self.codes = [], [self._buffer(b"")], [], []

    def _vector(self, start, values, prepend):
        start(self.builder, len(values))
        for value in reversed(values):
            prepend(value)
        return self.builder.EndVector()

    def _offsets(self, start, offsets):
        return self._vector(start, offsets, self.builder.PrependUOffsetTRelative)

    def _buffer(self, data):
        vector = self._vector(tflite.BufferStartDataVector, data, self.builder.PrependByte)
        tflite.BufferStart(self.builder)
        tflite.BufferAddData(self.builder, vector)
        return tflite.BufferEnd(self.builder)

    def _parameters(self, steps):
        builder, scales = self.builder, np.atleast_1d(np.float32(steps.scale)).tolist()
        zeros = [steps.zero_point] * len(scales)
        start = tflite.QuantizationParametersStartScaleVector
        scale = self._vector(start, scales, builder.PrependFloat32)
        start = tflite.QuantizationParametersStartZeroPointVector
        zero = self._vector(start, zeros, builder.PrependInt64)
        tflite.QuantizationParametersStart(builder)
        tflite.QuantizationParametersAddScale(builder, scale)
        tflite.QuantizationParametersAddZeroPoint(builder, zero)
        tflite.QuantizationParametersAddQuantizedDimension(builder, max(steps.axis, 0))
        return tflite.QuantizationParametersEnd(builder)

    def tensor(self, shape, dtype="float32", steps=None, values=None):
        """Add a tensor, a constant if there are values; return its number."""
        builder, name = self.builder, self.builder.CreateString(f"t{len(self.tensors)}")
        parameters = None if steps is None else self._parameters(steps)
        dims = self._vector(tflite.TensorStartShapeVector, shape, builder.PrependInt32)
        if values is not None:
            self.buffers.append(self._buffer(np.asarray(values, dtype).tobytes()))
        tflite.TensorStart(builder)
        tflite.TensorAddShape(builder, dims)
        tflite.TensorAddType(builder, _TYPES[dtype])
        tflite.TensorAddBuffer(builder, 0 if values is None else len(self.buffers) - 1)
        tflite.TensorAddName(builder, name)
        if parameters is not None:
            tflite.TensorAddQuantization(builder, parameters)
        self.tensors.append(tflite.TensorEnd(builder))
        return len(self.tensors) - 1

    def constant(self, values, dtype="float32", steps=None):
        """Add a constant; return its number."""
        return self.tensor(np.shape(values), dtype, steps, values)

    def op(self, code, inputs, output, table=None, **options):
        """Add an operator, such as "CONV_2D" with a table "Conv2D" of options; return its output.

        A code that is no operator of TFLite is that of a custom one.
        """
        builder, parameters = self.builder, None
        if table is not None:
            getattr(tflite, f"{table}OptionsStart")(builder)
            for key, value in options.items():
                getattr(tflite, f"{table}OptionsAdd{key}")(builder, value)
            parameters = getattr(tflite, f"{table}OptionsEnd")(builder)
        inputs = self._vector(tflite.OperatorStartInputsVector, inputs, builder.PrependInt32)
        outputs = [output] if isinstance(output, int) else output
        outputs = self._vector(tflite.OperatorStartOutputsVector, outputs, builder.PrependInt32)
        if code not in self.codes:
            self.codes.append(code)
        tflite.OperatorStart(builder)
        tflite.OperatorAddOpcodeIndex(builder, self.codes.index(code))
        tflite.OperatorAddInputs(builder, inputs)
        tflite.OperatorAddOutputs(builder, outputs)
        if parameters is not None:
            kind = getattr(tflite.BuiltinOptions, f"{table}Options")
            tflite.OperatorAddBuiltinOptionsType(builder, kind)
            tflite.OperatorAddBuiltinOptions(builder, parameters)
        self.operators.append(tflite.OperatorEnd(builder))
        return output

    def _code(self, code):
        builder, number = self.builder, getattr(tflite.BuiltinOperator, code, None)
        custom = builder.CreateString(code) if number is None else None
        number = tflite.BuiltinOperator.CUSTOM if number is None else number
        tflite.OperatorCodeStart(builder)
        tflite.OperatorCodeAddBuiltinCode(builder, number)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, min(number, 127))
        if custom is not None:
            tflite.OperatorCodeAddCustomCode(builder, custom)
        tflite.OperatorCodeAddVersion(builder, 1)
        return tflite.OperatorCodeEnd(builder)

    def model(self, source, result):
        """Return the bytes of the model of one input, or of a list of these, and one output."""
        source = source if isinstance(source, list) else [source]
        builder = self.builder
        tensors = self._offsets(tflite.SubGraphStartTensorsVector, self.tensors)
        ops = self._offsets(tflite.SubGraphStartOperatorsVector, self.operators)
        inputs = self._vector(tflite.SubGraphStartInputsVector, source, builder.PrependInt32)
        outputs = self._vector(tflite.SubGraphStartOutputsVector, [result], builder.PrependInt32)
        tflite.SubGraphStart(builder)
        tflite.SubGraphAddTensors(builder, tensors)
        tflite.SubGraphAddOperators(builder, ops)
        tflite.SubGraphAddInputs(builder, inputs)
        tflite.SubGraphAddOutputs(builder, outputs)
        graph = tflite.SubGraphEnd(builder)
        codes = [self._code(code) for code in self.codes]
        codes = self._offsets(tflite.ModelStartOperatorCodesVector, codes)
        graphs = self._offsets(tflite.ModelStartSubgraphsVector, [graph])
        buffers = self._offsets(tflite.ModelStartBuffersVector, self.buffers)
        tflite.ModelStart(builder)
        tflite.ModelAddVersion(builder, 3)
        tflite.ModelAddOperatorCodes(builder, codes)
        tflite.ModelAddSubgraphs(builder, graphs)
        tflite.ModelAddBuffers(builder, buffers)
        builder.Finish(tflite.ModelEnd(builder), b"TFL3")
        return bytes(builder.Output())
