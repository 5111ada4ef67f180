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
"""Shows one stage of a small model on its way to oneDNN: python how_it_works.py STAGE."""

import json
import sys

import numpy as np
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

rng = np.random.default_rng(0)


def constant(*shape):
    """Return a constant of random values."""
    return relay.const(rng.standard_normal(shape, "float32"))


data = relay.var("data", shape=(1, 16, 14, 14))
conv = relay.nn.conv2d(data, constant(16, 16, 3, 3), padding=1, channels=16, kernel_size=(3, 3))
block = relay.nn.relu(relay.nn.bias_add(conv, constant(16)) + data)
# oneDNN has no arctangent: this stays on TVM.
model = tvm.IRModule.from_expr(relay.atan(relay.nn.global_avg_pool2d(block)))
stage = sys.argv[1]

if stage == "model":
    print(relay.transform.InferType()(model)["main"])
    sys.exit()

partitioned = dnnl.partition_for_dnnl(model)
if stage == "partitioned":
    print(partitioned)
    sys.exit()
if stage == "report":
    print(dnnl.offload_report(partitioned))
    sys.exit()

codegen = "C_SRC" if stage == "c" else "JSON"
lib = testing.build(partitioned, codegen=codegen)
if stage == "json":
    print(testing.dnnl_modules(lib)[0].get_source("json"))
if stage == "c":
    text = testing.c_sources(lib)[0]
    print(text[text.index("/* ops[0]") : text.index("/* The data of an argument")])
if stage == "plan":
    runner = testing.Runner(lib)
    runner({"data": rng.standard_normal((1, 16, 14, 14), "float32")})
    print(json.dumps(testing.plans(runner)[0], indent=2))
