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
"""Quantizes an ONNX model with onnxruntime, and runs it on oneDNN beside the float32 model.

The samples are a .npz file: by name of each input, an array of several inputs one after the other.
"""

import argparse

import numpy as np
import onnx
import onnxruntime
import tvm
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process
from tvm import relay
from tvm.contrib import graph_executor
from tvm.relay.op.contrib import dnnl

# QuantizeLinear has scales for channels from this operator set on.
OPSET = 13


class Samples(quantization.CalibrationDataReader):
    """Hands the samples to onnxruntime."""

    def __init__(self, samples):
        self.left = iter(samples)

    def get_next(self):
        """Return the next inputs by name, or None."""
        return next(self.left, None)


def quantize(source, target, samples, ops, leave_out, signed):
    """Write a QDQ model: 8-bit weights with a scale for each channel, 8-bit activations."""
    model = onnx.load(source)
    if max(entry.version for entry in model.opset_import if not entry.domain) < OPSET:
        model = onnx.version_converter.convert_version(model, OPSET)
    # Fold batch normalisations before there are scales between them and their convolutions.
    onnx.save(model, target)
    quant_pre_process(target, target, skip_symbolic_shape=True)
    kinds = quantization.QuantType
    quantization.quantize_static(
        target,
        target,
        Samples(samples),
        quant_format=quantization.QuantFormat.QDQ,
        op_types_to_quantize=ops,
        nodes_to_exclude=leave_out,
        per_channel=True,
        activation_type=kinds.QInt8 if signed else kinds.QUInt8,
        weight_type=kinds.QInt8,
    )


def compile_for_onednn(path, inputs):
    """Return a function that runs a model on oneDNN, and the report of what runs there."""
    shape = {name: value.shape for name, value in inputs.items()}
    mod, params = relay.frontend.from_onnx(onnx.load(path), shape=shape, freeze_params=True)
    mod = dnnl.partition_for_dnnl(mod, params)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=dnnl.host_target())
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))

    def run(inputs):
        executor.run(**inputs)
        return executor.get_output(0).numpy()

    return run, dnnl.offload_report(mod)


def accuracy(outputs, expected):
    """Return the smallest cosine, the largest relative error, and the share of equal classes."""
    cosines, errors, same = [], [], []
    for got, want in zip(outputs, expected):
        cosines.append((got * want).sum() / np.linalg.norm(got) / np.linalg.norm(want))
        errors.append(np.abs(got - want).max() / np.abs(want).max())
        same.append((got.argmax(-1) == want.argmax(-1)).mean())
    return f"cosine {min(cosines):.4f}, error {max(errors):.1e}, same class {np.mean(same):.0%}"


def main():
    """Quantize, compare, and tell what runs on oneDNN."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="the model in float32")
    parser.add_argument("samples", help="a .npz file; half of it calibrates, half of it compares")
    parser.add_argument("target", help="where the quantized model goes")
    parser.add_argument("--ops", default="Conv,Gemm,MatMul,Add", help="types to quantize")
    parser.add_argument("--leave-out", default="", help="names of nodes to leave in float32")
    parser.add_argument("--signed", action="store_true", help="activations in s8 instead of u8")
    args = parser.parse_args()
    with np.load(args.samples) as arrays:
        names, values = zip(*((name, arrays[name]) for name in arrays.files))
    samples = [dict(zip(names, each)) for each in zip(*values)]
    half = len(samples) // 2
    left = [name for name in args.leave_out.split(",") if name]
    ops = args.ops.split(",")
    quantize(args.model, args.target, samples[:half], ops, left, args.signed)

    def session(path):
        opened = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return lambda inputs: opened.run(None, inputs)[0]

    run, report = compile_for_onednn(args.target, samples[0])
    expected = [session(args.model)(inputs) for inputs in samples[half:]]
    for name, runner in (("oneDNN", run), ("onnxruntime", session(args.target))):
        outputs = [runner(inputs) for inputs in samples[half:]]
        print(f"{name}, int8 beside float32: {accuracy(outputs, expected)}")
    print(report)


if __name__ == "__main__":
    main()
