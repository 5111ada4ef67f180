/*
 * Licensed to the Apache Software Foundation (ASF) under one
 * or more contributor license agreements.  See the NOTICE file
 * distributed with this work for additional information
 * regarding copyright ownership.  The ASF licenses this file
 * to you under the Apache License, Version 2.0 (the
 * "License"); you may not use this file except in compliance
 * with the License.  You may obtain a copy of the License at
 *
 *   http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing,
 * software distributed under the License is distributed on an
 * "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
 * KIND, either express or implied.  See the License for the
 * specific language governing permissions and limitations
 * under the License.
 */

/*!
 * \file tests/cpp-runtime/dnnl/tvm/json_runtime_test.cc
 * \brief The module of a subgraph: bad arguments, and several threads.
 */
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/registry.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/cpp-runtime/harness/arrays.h"
#include "tests/cpp-runtime/harness/test.h"

namespace {

using tvm::runtime::Array;
using tvm::runtime::Module;
using tvm::runtime::NDArray;
using tvm::runtime::PackedFunc;
using tvm::runtime::Registry;
using tvm::runtime::String;
using tvm_test::Floats;
using tvm_test::Values;

/*! \brief y = relu(x + c) of four elements, or of any number. */
Module AddRelu(const std::string& size = "4") {
  const std::string type = R"("shape": [[[SIZE]]], "dtype": [["float32"]])";
  std::string text = R"({
  "nodes": [
    {"op": "input", "name": "x", "attrs": {TYPE}},
    {"op": "const", "name": "c", "attrs": {"shape": [[[1]]], "dtype": [["float32"]]}},
    {"op": "kernel", "name": "add", "inputs": [[0, 0, 0], [1, 0, 0]],
     "attrs": {"num_inputs": "2", "num_outputs": "1", TYPE}},
    {"op": "kernel", "name": "nn.relu", "inputs": [[2, 0, 0]],
     "attrs": {"num_inputs": "1", "num_outputs": "1", TYPE}}
  ],
  "arg_nodes": [0, 1], "heads": [[3, 0, 0]], "node_row_ptr": [0, 1, 2, 3, 4]
})";
  for (const auto& [word, value] :
       {std::make_pair(std::string("TYPE"), type), std::make_pair(std::string("SIZE"), size)}) {
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word)) {
      text.replace(at, word.size(), value);
    }
  }
  const PackedFunc* create = Registry::Get("runtime.DNNLJSONRuntimeCreate");
  return (*create)(String("sym"), String(text), Array<String>{"c"});
}

void Init(Module module) { module.GetFunction("__init_sym")(Array<NDArray>{Floats({1})}); }

TEST(DNNLJSONRuntime, ArgumentsThatAreDamaged) {
  Module module = AddRelu();
  Init(module);
  PackedFunc run = module.GetFunction("sym");
  NDArray x = Floats({-2, 0, 1, 2}), y = Floats({0, 0, 0, 0});
  DLTensor tensor = *x.operator->();
  tensor.ndim = -1;
  EXPECT_THROWS(run(&tensor, y), "sym: input x must be float32 [4], but is float32 of rank -1");
  tensor.ndim = 1 << 30;
  EXPECT_THROWS(run(&tensor, y), "but is float32 of rank 1073741824");
  tensor = *x.operator->();
  tensor.dtype.code = 77;
  EXPECT_THROWS(run(&tensor, y), "sym: input x must be float32 [4]", "[4], but is type77_32 [4]");
  tensor = *x.operator->();
  tensor.shape = nullptr;
  EXPECT_THROWS(run(&tensor, y), "but is float32 of rank 1");
  run(x, y);
  EXPECT_EQ(Values(y), (std::vector<float>{0, 1, 2, 3}));
}

/*! \brief Who looks at a plan while another thread makes it waits, or is told that there is none.
 */
TEST(DNNLJSONRuntime, IsLookedAtWhileItIsInitialised) {
  for (int round = 0; round < 20; ++round) {
    Module module = AddRelu();
    PackedFunc get_plan = module.GetFunction("get_plan");
    std::thread other([&get_plan]() {
      for (bool is_there = false; !is_there;) {
        try {
          const String plan = get_plan();
          EXPECT_TRUE(std::string(plan).find("\"symbol\": \"sym\"") != std::string::npos);
          is_there = true;
        } catch (const std::exception& error) {
          const std::string text = error.what();
          EXPECT_TRUE(text.find("after the first run or __init_sym") != std::string::npos);
        }
      }
    });
    Init(module);
    other.join();
  }
}

}  // namespace
