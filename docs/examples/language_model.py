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
"""Generates tokens with a decoder in ONNX on Relax and oneDNN: the most probable ones.

    python language_model.py MODEL.onnx TOKEN...

The model has the inputs and outputs that Optimum exports: `input_ids`, `attention_mask`,
`position_ids`, and `past_key_values.N.key` and `.value`; `logits` and the same keys and values.
"""

import sys

import numpy as np
import onnx
import tvm
import tvm_dnnl
from tvm import relax

COUNT = 8


def decoder(model):
    """Compile a model; return a function that runs it on tensors of TVM."""
    compiled = tvm_dnnl.compile(model, append_in_place=True)
    report = compiled.report
    print(f"{report.offloaded} of {report.total} ops on oneDNN, partitions: {report.partitions}")
    # The default allocator would keep the keys and values of every length for reuse.
    return relax.VirtualMachine(compiled.library, tvm.cpu(), memory_cfg="naive")["main"]


def generate(model, prompt, count):
    """Return new tokens. Keys and values stay in TVM's tensors from run to run."""
    run, tensor, total, tokens = decoder(model), tvm.runtime.tensor, 0, []
    shapes = [
        [dim.dim_value for dim in each.type.tensor_type.shape.dim]
        for each in model.graph.input
        if each.name.startswith("past_key_values")
    ]
    # Before the first token they are empty.
    cache = [tensor(np.zeros((1, heads, 0, size), "float32")) for _, heads, _, size in shapes]
    new = list(prompt)
    for _ in range(count):
        positions, total = range(total, total + len(new)), total + len(new)
        inputs = {
            "input_ids": [new],
            "attention_mask": [[1] * total],
            "position_ids": [list(positions)],
        }
        given = [each.name for each in model.graph.input if each.name in inputs]
        arrays = [tensor(np.array(inputs[name], "int64")) for name in given]
        logits, *cache = run(*arrays, *cache)
        new = [int(logits.numpy()[0, -1].argmax())]
        tokens += new
    return tokens


if __name__ == "__main__":
    print(*generate(onnx.load(sys.argv[1]), map(int, sys.argv[2:]), COUNT))
