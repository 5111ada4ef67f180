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
"""A compiled model in another process, which has no use for the code generator."""

import subprocess
import sys

import numpy as np
import tvm
import tvm_dnnl
from dnnl_modules import X4, compiled, composites, conv_bias_relu, module, rand
from tvm import relax

IN_NEW_PROCESS = """
import sys
import numpy as np
import tvm
import tvm_dnnl
from tvm import relax

machine = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
for path in sys.argv[2:]:
    np.save(path, machine["main"](tvm.runtime.tensor(np.load(path))).numpy())
"""


def test_exported(tmp_path):
    name, (_, *sizes), dtype = X4
    partitioned = tvm_dnnl.partition_for_dnnl(module(conv_bias_relu, (name, ("n", *sizes), dtype)))
    assert composites(partitioned) == {"dnnl.conv2d_bias_relu": 1}
    executable = tvm.compile(compiled(partitioned), target="llvm")
    executable.export_library(str(tmp_path / "model.so"))
    machine, expected = relax.VirtualMachine(executable, tvm.cpu()), {}
    for batch in (1, 3):
        x, path = rand(batch, *sizes, seed=batch), str(tmp_path / f"{batch}.npy")
        np.save(path, x)
        expected[path] = machine["main"](tvm.runtime.tensor(x)).numpy()
    command = [sys.executable, "-c", IN_NEW_PROCESS, str(tmp_path / "model.so"), *expected]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    for path, value in expected.items():
        np.testing.assert_array_equal(np.load(path), value)
