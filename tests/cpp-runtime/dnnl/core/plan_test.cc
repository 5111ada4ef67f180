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
 * \file tests/cpp-runtime/dnnl/core/plan_test.cc
 * \brief Graphs that become plans, and plans that run, without TVM.
 */
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/error.h"
#include "src/runtime/contrib/dnnl/core/exec/profile.h"
#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "tests/cpp-runtime/harness/test.h"

namespace {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr DLDataType kFloat{kDLFloat, 32, 1};

TensorType Floats(std::vector<int64_t> shape) { return {std::move(shape), kFloat}; }

/*! \brief Data (1, 2, 3, 3), a convolution with weights of ones and what is fused to it. */
Graph ConvGraph() {
  static std::vector<float> weights(2 * 2, 1.f);
  Graph graph;
  graph.symbol = graph.name = "main";
  graph.inputs = {{{0, 0}, {"input data", Floats({1, 2, 3, 3})}}};
  graph.constants = {{{{1, 0}, {"weights", Floats({2, 2, 1, 1})}}, {weights.data(), [](void*) {}}}};
  Node conv{2, "dnnl.conv2d_relu", {}, {{0, 0}, {1, 0}}, {Floats({1, 2, 3, 3})}};
  conv.attrs["root_op"] = "nn.conv2d";
  conv.attrs["post_ops"] = std::vector<std::string>{"nn.relu"};
  graph.nodes = {conv};
  graph.outputs = {{{2, 0}, {"output 0", Floats({1, 2, 3, 3})}}};
  return graph;
}

TEST(DNNLPlan, RunsWithoutTVM) {
  const auto plan = MakePlan(ConvGraph());
  std::vector<float> data(18, -1.f), result(18, 9.f);
  data[0] = 5.f;
  Context(plan).Run({data.data(), result.data()}, nullptr);
  EXPECT_EQ(result[0], 4.f);
  EXPECT_EQ(result[1], 0.f);
}

TEST(DNNLPlan, IsDescribedAsJSON) {
  const std::string text = DescribePlan("ma\"in", *MakePlan(ConvGraph()));
  for (const char* part : {"{\"symbol\": \"ma\\\"in\", ", "\"op\": \"nn.conv2d\"",
                           "\"post_ops\": [\"eltwise_relu\"]", "\"threads\": "}) {
    if (!EXPECT_TRUE(text.find(part) != std::string::npos)) std::cerr << text << std::endl;
  }
}

TEST(DNNLPlan, ErrorsNameTheNode) {
  Graph graph = ConvGraph();
  graph.nodes[0].attrs["strides"] = "wide";
  EXPECT_THROWS(MakePlan(graph), "main, node 2 nn.conv2d of dnnl.conv2d_relu",
                "attribute strides is [[\"wide\"]], expected: list of integer");
  graph = ConvGraph();
  graph.nodes[0].name = "nn.unheard_of";
  graph.nodes[0].attrs.clear();
  EXPECT_THROWS(MakePlan(graph), "main, node 2 nn.unheard_of", "has no op nn.unheard_of");
  graph = ConvGraph();
  graph.nodes[0].outputs[0].dtype = {kDLFloat, 64, 1};
  EXPECT_THROWS(MakePlan(graph), "main, node 2 nn.conv2d", "oneDNN has no data type float64");
  graph = ConvGraph();
  graph.nodes[0].inputs[0] = {7, 1};
  EXPECT_THROWS(MakePlan(graph), "output 1 of node 7 is not computed");
}

TEST(DNNLError, SaysWhereAndWhat) {
  try {
    CORE_CHECK(1 + 1 == 3) << "node " << 4;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "Check failed: (1 + 1 == 3) is false: node 4");
    EXPECT_TRUE(std::string(error.file()).find("plan_test.cc") != std::string::npos);
    EXPECT_TRUE(error.line() > 0);
    return;
  }
  EXPECT_TRUE(false);
}

}  // namespace
