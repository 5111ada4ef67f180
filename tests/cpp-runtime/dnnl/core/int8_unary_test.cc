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
 * \file tests/cpp-runtime/dnnl/core/int8_unary_test.cc
 * \brief Unary ops of quantized tensors, by a table.
 */
#include <cmath>
#include <string>
#include <vector>

#include "quantized_graph.h"

namespace dnnl_test::int8_unary {

/*! \brief A unary op of 8-bit values whose result, if in 8 bits, has the scale 0.0371 and the zero
 * point 11. */
struct UnaryCase {
  std::string op;
  DLDataType src, dst;
  float scale;
  int zero;
  Shape shape{2, 17, 5};
};

double Unary(const std::string& op, double x) {
  return op == "nn.relu"         ? std::max(x, 0.)
         : op == "nn.leaky_relu" ? std::max(x, 0.1 * x)
         : op == "abs"           ? std::abs(x)
         : op == "sigmoid"       ? 1 / (1 + std::exp(-x))
         : op == "exp"           ? std::exp(x)
         : op == "sin"           ? std::sin(x)
         : op == "floor"         ? std::floor(static_cast<float>(x))
                                 : std::tanh(x);
}

/*! \brief Run an op; the plan's steps. */
std::vector<Step> CheckEltwise(const UnaryCase& c) {
  QuantizedGraph graph;
  const Array bytes = Bytes(c.shape, c.src);
  Array real = Dequantized(bytes, Scalar(c.scale), ZeroPoint(c.zero));
  Node* node = graph.Add(c.op, {graph.Input(bytes)}, bytes.shape, c.dst);
  node->attrs["root_op"] = c.op;
  node->attrs["alpha"] = 0.1;
  graph.Dequantize(node, 0, Scalar(c.scale), ZeroPoint(c.zero));
  for (double& x : real.values) x = Unary(c.op, x);
  const Array expected = Result(&graph, node, real, Scalar(0.0371f), ZeroPoint(11), c.dst);
  // With the scale of the source a relu only cuts off integers.
  const bool is_exact = c.scale == 0.0371f && c.zero == 11 && c.op == "nn.relu";
  ExpectNear(graph.Run(), expected, c.dst.code == kDLFloat ? 2e-6 : is_exact ? 0 : 1, 0.02, c.op);
  return graph.plan->steps;
}

TEST(DNNLInt8Eltwise, IsATable) {
  for (const char* op :
       {"nn.relu", "nn.leaky_relu", "abs", "tanh", "sigmoid", "exp", "sin", "floor"}) {
    for (DLDataType type : {kUInt8, kInt8}) {
      for (int zero : {0, 11, 90}) {
        for (float scale : {0.0371f, 0.02f}) {
          for (DLDataType dst : {kUInt8, kInt8, kFloat}) {
            const auto steps = CheckEltwise({op, type, dst, scale, zero});
            EXPECT_EQ(steps.size(), 1u);
            EXPECT_EQ(steps[0].info.variant, "table of results");
          }
        }
      }
    }
  }
}

TEST(DNNLInt8Eltwise, LooksUpEveryByteAtEachPosition) {
  // More than a thread's share, and a rest of no vector.
  for (int64_t size : {1, 31, 127, 128, 129, 4095, 4097, 150001}) {
    for (DLDataType type : {kUInt8, kInt8}) {
      CheckEltwise({"sigmoid", type, kUInt8, 0.0371f, 11, {size}});
      CheckEltwise({"abs", type, kFloat, 0.02f, -5, {size}});
    }
  }
}

TEST(DNNLInt8Eltwise, ComputesScalesThatAreNotConstant) {
  for (const char* op : {"nn.relu", "tanh", "floor"}) {
    QuantizedGraph graph;
    graph.computes_scales = true;
    const Array bytes = Bytes({2, 17, 5}, kUInt8);
    Node* node = graph.Add(op, {graph.Input(bytes)}, bytes.shape, kUInt8);
    node->attrs["root_op"] = op;
    graph.Dequantize(node, 0, Scalar(0.02f), ZeroPoint(90));
    Array real = Dequantized(bytes, Scalar(0.02f), ZeroPoint(90));
    for (double& x : real.values) x = Unary(op, x);
    const Array expected = Result(&graph, node, real, Scalar(0.0371f), ZeroPoint(11), kUInt8);
    ExpectNear(graph.Run(), expected, 1, 0.02, op);
  }
}

}  // namespace dnnl_test::int8_unary
