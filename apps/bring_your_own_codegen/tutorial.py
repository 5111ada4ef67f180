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
"""What the accelerator `tutorial` accepts, and the way of a model to it."""

import ctypes
import math
from pathlib import Path

import tvm
from tvm import relay
from tvm._ffi.libinfo import find_include_path
from tvm.relay.dataflow_pattern import is_op, wildcard

HERE = Path(__file__).resolve().parent


def load_library(path):
    """Open the C++ part: a plugin, TVM itself stays as it is."""
    ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def refusal(call):
    """Say why a call of `nn.dense` or `add` stays on TVM; None if the accelerator accepts it."""
    for tensor in [*call.args, call]:
        tensor_type = tensor.checked_type
        if tensor_type.dtype != "float32":
            return f"a tensor is {tensor_type.dtype}; the accelerator knows float32 only"
        if not all(isinstance(dim, tvm.tir.IntImm) for dim in tensor_type.shape):
            return "a shape is dynamic"
    if call.op.name == "nn.dense" and len(call.args[0].checked_type.shape) != 2:
        return "the data has more than two dimensions"
    if call.op.name == "add" and not tvm.ir.structural_equal(
        call.args[0].checked_type, call.args[1].checked_type
    ):
        return "the shapes differ; the accelerator does not broadcast"
    return None


for _name in ("nn.dense", "add"):
    tvm.ir.register_op_attr(_name, "target.tutorial", lambda call: refusal(call) is None)


def pattern_table():
    """Return (name, pattern, check) of what the accelerator does in one instruction."""
    dense = is_op("nn.dense")(wildcard(), wildcard())
    dense_clip = is_op("clip")(is_op("nn.bias_add")(dense, wildcard()))

    def check(clip):
        bias_add = clip.args[0]
        bounds = (clip.attrs.a_min, clip.attrs.a_max)
        is_along_rows = bias_add.attrs.axis in (1, -1)
        return is_along_rows and all(map(math.isfinite, bounds)) and not refusal(bias_add.args[0])

    return [("tutorial.dense_clip", dense_clip, check)]


def partition_for_tutorial(mod, params=None):
    """Move what the accelerator accepts into functions with Compiler="tutorial"."""
    if params:
        mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    passes = [
        relay.transform.InferType(),
        relay.transform.MergeComposite(pattern_table()),
        relay.transform.AnnotateTarget(["tutorial"]),
        relay.transform.MergeCompilerRegions(),
        relay.transform.PartitionGraph(),
    ]
    return tvm.transform.Sequential(passes)(mod)


def c_source_options():
    """Return what a C compiler needs for the C source of the twin."""
    return [f"-I{folder}" for folder in [HERE, *find_include_path()]]
