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
"""The way of a small model to the accelerator: python example.py libtvm_tutorial.so [C_SRC]."""

import sys

import numpy as np
import tutorial
import tvm
from tvm import relay
from tvm.contrib import graph_executor
from tvm.testing.dnnl import host_target

tutorial.load_library(sys.argv[1])
codegen = sys.argv[2] if len(sys.argv) > 2 else "JSON"

# A model: clip(x . weight + bias), then tanh, which stays on TVM, then an addition.
rng = np.random.default_rng(0)
x, weight, bias = (rng.standard_normal(s, "float32") for s in [(2, 4), (3, 4), (3,)])
data = relay.var("x", shape=x.shape)
dense = relay.nn.bias_add(relay.nn.dense(data, relay.const(weight)), relay.const(bias))
clipped = relay.clip(dense, -1.0, 1.0)
mod = tvm.IRModule.from_expr(relay.add(relay.tanh(clipped), clipped))

mod = tutorial.partition_for_tutorial(mod)
print(mod)

with tvm.transform.PassContext(opt_level=3, config={"relay.ext.tutorial.codegen": codegen}):
    lib = relay.build(mod, target=host_target())
for module in lib.get_lib().imported_modules:
    if module.type_key == "tutorial_json":
        print(module.get_source("json"))
    elif module.type_key == "c":
        print(module.get_source())

# The options are for the C source; a library without any accepts them, too.
lib.export_library("model.so", options=["-O2", *tutorial.c_source_options()])

loaded = tvm.runtime.load_module("model.so")
executor = graph_executor.GraphModule(loaded["default"](tvm.cpu()))
executor.run(x=x)
got = executor.get_output(0).numpy()
clipped = np.clip(x @ weight.T + bias, -1, 1)
np.testing.assert_allclose(got, np.tanh(clipped) + clipped, rtol=1e-5, atol=1e-6)
print("the loaded library gives\n", got)
