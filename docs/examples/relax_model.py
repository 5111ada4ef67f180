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
"""An ONNX file through Relax, with oneDNN and without: the times and the difference.

Open sizes in the file are 1 here.
"""

import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import tvm
import tvm_dnnl
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

# Instructions of this machine, for what is compiled by TVM; oneDNN chooses its own.
LEVEL = "v4" if "avx512vl" in Path("/proc/cpuinfo").read_text() else "v3"


def random_inputs(model):
    """Return inputs in [-1, 1], and integers of 0 and 1."""
    random, weights = np.random.default_rng(0), {each.name for each in model.graph.initializer}
    inputs = []
    for each in model.graph.input:
        if each.name not in weights:
            tensor = each.type.tensor_type
            shape = [dim.dim_value or 1 for dim in tensor.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            low = -1 if dtype.kind == "f" else 0
            value = random.uniform(low, 1, shape)
            inputs.append((value if low else value.round()).astype(dtype))
    return inputs


def run(mod, inputs):
    """Compile and run a module; return the milliseconds of a run, and the outputs."""
    target = tvm.target.Target({"kind": "llvm", "mcpu": f"x86-64-{LEVEL}"})
    main = relax.VirtualMachine(tvm.compile(mod, target=target), tvm.cpu())["main"]
    arguments = [tvm.runtime.tensor(value) for value in inputs]
    result, seconds = main(*arguments), []
    # Ten runs, or as many as three seconds have.
    while len(seconds) < 10 and sum(seconds) < 3:
        start = time.perf_counter()
        main(*arguments)
        seconds.append(time.perf_counter() - start)
    outputs = [result] if isinstance(result, tvm.runtime.Tensor) else result
    return 1e3 * statistics.median(seconds), [each.numpy() for each in outputs]


def largest_difference(outputs, others):
    """Return the largest difference, as a part of the largest number of the same output."""
    pairs = zip(outputs, others)
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def main(path):
    """Print the comparison."""
    model = onnx.load(path)
    inputs = random_inputs(model)
    mod = from_onnx(model, keep_params_in_input=False)
    partitioned = tvm_dnnl.partition_for_dnnl(mod)
    report = tvm_dnnl.offload_report(partitioned)
    alone, expected = run(relax.get_pipeline("zero")(mod), inputs)
    ours, outputs = run(relax.transform.RunCodegen()(partitioned), inputs)
    print(f"TVM alone    {alone:9.2f} ms")
    print(
        f"with oneDNN  {ours:9.2f} ms, {report.offloaded} of {report.total} ops in "
        f"{report.partitions} partition{'s' if report.partitions != 1 else ''}"
    )
    print(f"largest difference {largest_difference(outputs, expected):.1e}")


if __name__ == "__main__":
    main(sys.argv[1])
