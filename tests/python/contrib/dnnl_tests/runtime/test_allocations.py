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
"""What a run allocates: nothing, once it has run."""

import os
import pathlib
import platform
import shutil
import subprocess
import sys

import pytest

from dnnl_tests.marks import json_only

SOURCE = pathlib.Path(__file__).with_name("count_allocations.c")
COMPILER = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")

CODE = """
import ctypes, sys
import numpy as np, tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

counter = ctypes.CDLL(None)
x = relay.var("x", shape=(1, 16, 28, 28))
weight = relay.const(np.ones((16, 16, 3, 3), "float32"))
y = relay.nn.relu(relay.nn.conv2d(x, weight, channels=16, kernel_size=(3, 3), padding=(1, 1)))
pools = [relay.nn.max_pool2d(y, (2, 2), (2, 2)), relay.nn.avg_pool2d(y, (2, 2), (2, 2))]
y = relay.concatenate(pools, 1)
mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(relay.nn.softmax(y, 1)))
runner = testing.Runner(testing.build(mod))

def count(runs):
    counter.count_start(sys.argv[1].encode())
    for _ in range(runs):
        runner.invoke()
    return counter.count_stop()

runner.set_inputs({"x": np.ones((1, 16, 28, 28), "float32")})
print(count(1), count(50))
"""


@json_only
@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not COMPILER, reason="needs glibc and a C compiler"
)
@pytest.mark.skipif(
    "TVM_HOME" in os.environ, reason="our code cannot be told from TVM's own in its libtvm.so"
)
def test_a_run_allocates_nothing(tmp_path):
    library = tmp_path / "count.so"
    subprocess.run([COMPILER, "-O1", "-shared", "-fPIC", SOURCE, "-o", library], check=True)
    done = subprocess.run(
        [sys.executable, "-c", CODE, "libtvm_dnnl"],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, later = map(int, done.stdout.split())
    # The first run builds the plan: this shows that allocations are seen.
    assert first > 20
    assert later == 0
