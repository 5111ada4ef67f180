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
 * \file tests/cpp-runtime/dnnl/core/int8_matmul_test.cc
 * \brief Matrix multiplications of quantized tensors against sums of exact products.
 */
#include <string>
#include <vector>

#include "quantized_graph.h"

namespace dnnl_test::int8_matmul {

struct Case {
  std::string op{"nn.dense"};
  DLDataType src{kUInt8};
  int src_zero{0};
  DLDataType weights{kInt8};
  int weights_zero{0};
  int largest{64};  // of the weights
  bool is_constant{true};
  bool per_channel{false};
  bool has_bias{false};
  bool has_gelu{false};
  bool has_residual{false};
  DLDataType dst{kUInt8};
  int dst_zero{0};
  int64_t rows{5};
  /*! \brief Whether scale and zero point of the source are computed, as in dynamic quantization. */
  bool is_dynamic{false};

  std::string Text() const {
    return op + " of " + ToText(src) + " less " + std::to_string(src_zero) + ", " +
           ToText(weights) + " less " + std::to_string(weights_zero) + " to " +
           std::to_string(largest) + (is_constant ? "" : " computed") +
           (per_channel ? " per channel" : "") + (has_bias ? ", bias" : "") +
           (has_gelu ? ", gelu" : "") + (has_residual ? ", residual" : "") + ", to " + ToText(dst) +
           " plus " + std::to_string(dst_zero);
  }
};

constexpr int64_t kBatch = 3, kSummed = 40, kColumns = 24;

/*! \brief Rows by columns of the second matrix, which is transposed. */
Array Multiplied(const Array& src, const Array& weights, int64_t rows, bool is_batch) {
  Array dst{{kBatch, rows, kColumns}, kFloat, {}};
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t n = 0; n < kColumns; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < kSummed; ++k) {
          sum += src.values[(b * rows + m) * kSummed + k] *
                 weights.values[((is_batch ? b : 0) * kColumns + n) * kSummed + k];
        }
        dst.values.push_back(sum);
      }
    }
  }
  return dst;
}

/*! \brief Build, run and compare; what the plan's step is. */
StepInfo Check(const Case& c) {
  QuantizedGraph graph;
  const bool is_batch = c.op == "nn.batch_matmul";
  const Array src = Bytes({kBatch, c.rows, kSummed}, c.src);
  const Shape shape = is_batch ? Shape{kBatch, kColumns, kSummed} : Shape{kColumns, kSummed};
  const Array weights = Weights(shape, c.weights, c.weights_zero, c.largest);
  const int axis = is_batch ? 1 : 0;
  const Array scale = c.per_channel ? Noise({kColumns}, kFloat, 0.0005, 0.02, 5) : Scalar(0.003f);
  const Array src_scale = Scalar(0.02f), src_zero = ZeroPoint(c.src_zero);
  Array real =
      Multiplied(Dequantized(src, src_scale, src_zero),
                 Dequantized(weights, scale, ZeroPoint(c.weights_zero), axis), c.rows, is_batch);
  const Entry second = c.is_constant ? graph.Constant(weights) : graph.Input(weights);
  const Array residual = Noise(real.shape, kInt8, -128, 127, 11);
  Node* node = graph.Add(c.op, {graph.Input(src), second}, real.shape, c.dst);
  node->attrs["root_op"] = c.op;
  node->attrs["transpose_b"] = "1";
  const Array bias = Noise({kColumns}, kFloat, -3, 3, 9);
  int next = 2;
  if (c.has_bias) node->inputs.push_back(graph.Constant(bias));
  if (c.has_residual) node->inputs.push_back(graph.Input(residual));
  graph.computes_scales = c.is_dynamic;
  graph.Dequantize(node, 0, src_scale, src_zero);
  graph.computes_scales = false;
  graph.Dequantize(node, 1, scale, ZeroPoint(c.weights_zero), axis);
  if (c.has_bias) {
    graph.AddPostOp(node, "add", next++, true);
    for (size_t i = 0; i < real.values.size(); ++i) real.values[i] += bias.values[i % kColumns];
  }
  if (c.has_residual) {
    graph.AddPostOp(node, "add", next);
    graph.Dequantize(node, next, Scalar(0.01f), ZeroPoint(-7));
    const Array added = Dequantized(residual, Scalar(0.01f), ZeroPoint(-7));
    for (size_t i = 0; i < real.values.size(); ++i) real.values[i] += added.values[i];
  }
  if (c.has_gelu) {
    graph.AddPostOp(node, "dnnl.gelu_erf");
    for (double& x : real.values) x *= 0.5 * (1 + std::erf(x / std::sqrt(2)));
  }
  const Array expected = Result(&graph, node, real, Scalar(0.07f), ZeroPoint(c.dst_zero), c.dst);
  ExpectNear(graph.Run(), expected, c.dst.code == kDLFloat ? 1e-5 : 1, 0.01, c.Text());
  for (const char* kind : {"matmul", "inner_product"}) {
    if (graph.Count(kind) > 0) return graph.Find(kind);
  }
  return {};
}

void ExpectInt8(const Case& c) {
  const StepInfo step = Check(c);
  if (!EXPECT_TRUE(step.kind == "matmul" && !IsInFloat32(step) && !IsReference(step))) {
    std::cerr << c.Text() << ": " << step.impl << ", " << step.variant << std::endl;
  }
}

TEST(DNNLInt8MatMul, ZeroPointsScalesAndTypes) {
  for (const char* op : {"nn.dense", "nn.matmul", "nn.batch_matmul"}) {
    for (DLDataType src : {kUInt8, kInt8}) {
      for (DLDataType dst : {kUInt8, kInt8, kFloat}) {
        for (bool per_channel : {false, true}) {
          Case c;
          c.op = op;
          c.src = src;
          c.src_zero = per_channel ? 100 : 0;
          c.per_channel = per_channel;
          c.dst = dst;
          c.dst_zero = per_channel ? 10 : 0;
          c.has_bias = per_channel;
          c.rows = src.code == kDLUInt ? 1 : 70;
          ExpectInt8(c);
        }
      }
    }
  }
}

TEST(DNNLInt8MatMul, PostOps) {
  for (const char* op : {"nn.dense", "nn.batch_matmul"}) {
    Case c;
    c.op = op;
    c.has_bias = true;
    c.has_gelu = true;
    c.src_zero = 128;
    ExpectInt8(c);
    c.has_residual = true;
    ExpectInt8(c);
    c.dst = kFloat;
    ExpectInt8(c);
  }
}

TEST(DNNLInt8MatMul, DynamicQuantization) {
  for (DLDataType dst : {kFloat, kUInt8}) {
    Case c;
    c.is_dynamic = true;
    c.src_zero = 117;
    c.per_channel = true;
    c.has_bias = true;
    c.dst = dst;
    ExpectInt8(c);
  }
}

TEST(DNNLInt8MatMul, WeightsThatAreNotSymmetric) {
  for (DLDataType weights : {kUInt8, kInt8}) {
    for (const char* op : {"nn.dense", "nn.batch_matmul"}) {
      for (int zero : {5, 60, 128}) {
        if (weights.code == kDLInt && zero == 128) continue;
        for (bool is_constant : {true, false}) {
          Case c;
          c.op = op;
          c.weights = weights;
          c.weights_zero = zero;
          c.is_constant = is_constant;
          c.src_zero = 9;
          c.largest = weights.code == kDLInt ? 127 - zero : 255;
          const StepInfo step = Check(c);
          EXPECT_TRUE(!HasExactMatrices() || !IsInFloat32(step));
        }
      }
    }
  }
}

TEST(DNNLInt8MatMul, ElementsThatWouldSaturate) {
  for (DLDataType src : {kUInt8, kInt8}) {
    for (bool is_constant : {false, true}) {
      for (int largest : {64, 127}) {
        Case c;
        c.src = src;
        c.largest = largest;
        c.is_constant = is_constant;
        c.dst = kFloat;
        const bool is_exact = HasExactMatrices() || (is_constant && largest == 64);
        const StepInfo step = Check(c);
        if (!EXPECT_EQ(IsInFloat32(step), !is_exact)) std::cerr << c.Text() << step.variant;
      }
    }
  }
}

TEST(DNNLInt8MatMul, SmallWeightsOfManyRowsAreLeftToOneDNN) {
  if (!HasInt8Matrices()) return;
  for (int64_t rows : {5, 70}) {
    for (int largest : {64, 127}) {
      Case c;
      c.rows = rows;
      c.largest = largest;
      EXPECT_EQ(Check(c).variant == "products in 16 bits", largest == 127 || rows == 5);
    }
  }
}

TEST(DNNLInt8MatMul, AllElementsAtTheirBounds) {
  for (int source : {127, -128}) {
    for (int bound : {64, 127, -128, -64}) {
      QuantizedGraph graph;
      Node* node = graph.Add("nn.dense",
                             {graph.Input(Noise({4, kSummed}, kInt8, source, source)),
                              graph.Constant(Noise({kColumns, kSummed}, kInt8, bound, bound))},
                             {4, kColumns}, kFloat);
      node->attrs["root_op"] = "nn.dense";
      graph.Dequantize(node, 0, Scalar(1), ZeroPoint(0));
      graph.Dequantize(node, 1, Scalar(1), ZeroPoint(0));
      const double sum = static_cast<double>(kSummed) * source * bound;
      const Array expected{{4, kColumns}, kFloat, std::vector<double>(4 * kColumns, sum)};
      ExpectNear(graph.Run(), expected, 0, 0, "weights of " + std::to_string(bound));
    }
  }
}

TEST(DNNLInt8MatMul, BatchesOfAnyRank) {
  // The heads of attention, between each other in memory; those of rank 5 are copied into order.
  for (size_t ones : {0, 1, 2}) {
    for (bool is_float : {false, true}) {
      const DLDataType type = is_float ? kFloat : kInt8;
      const Array x = Noise({6, 4, 16}, type, -9, 9), y = Noise({7, 4, 16}, type, -9, 9, 2);
      QuantizedGraph graph;
      std::vector<std::string> axes;
      for (size_t i = 0; i < ones; ++i) axes.push_back(std::to_string(i));
      for (size_t i : {1, 0, 2}) axes.push_back(std::to_string(ones + i));
      const auto shape = [&](int64_t a, int64_t b, int64_t c) {
        Shape dims(ones, 1);
        dims.insert(dims.end(), {a, b, c});
        return dims;
      };
      const auto heads = [&](const Array& data) {
        const Array given{shape(data.shape[0], 4, 16), type, data.values};
        Node* node =
            graph.Add("transpose", {graph.Input(given)}, shape(4, data.shape[0], 16), type);
        node->attrs["axes"] = axes;
        return Entry{node->id, 0};
      };
      const Entry a = heads(x), b = heads(y);
      Node* node = graph.Add("nn.batch_matmul", {a, b}, shape(4, 6, 7), kFloat);
      node->attrs["transpose_b"] = "1";
      if (!is_float) {
        node->attrs["root_op"] = "nn.batch_matmul";
        for (int k : {0, 1}) graph.Dequantize(node, k, Scalar(0.5), ZeroPoint(0));
      }
      Array expected{shape(4, 6, 7), kFloat, {}};
      for (int h = 0; h < 4; ++h) {
        for (int m = 0; m < 6; ++m) {
          for (int n = 0; n < 7; ++n) {
            double sum = 0;
            for (int k = 0; k < 16; ++k) {
              sum += x.values[(m * 4 + h) * 16 + k] * y.values[(n * 4 + h) * 16 + k];
            }
            expected.values.push_back(is_float ? sum : sum / 4);
          }
        }
      }
      ExpectNear(graph.Run(), expected, 1e-5, 1, "rank " + std::to_string(ones + 3));
    }
  }
}

TEST(DNNLInt8MatMul, OnlyTheWeightsAreQuantized) {
  QuantizedGraph graph;
  const Array src = Noise({4, kSummed}, kFloat, -1, 1);
  const Array weights = Noise({kColumns, kSummed}, kInt8, -127, 127, 2);
  Node* node =
      graph.Add("nn.dense", {graph.Input(src), graph.Constant(weights)}, {4, kColumns}, kFloat);
  node->attrs["root_op"] = "nn.dense";
  graph.Dequantize(node, 1, Scalar(0.01f), ZeroPoint(0));
  Array padded = src;
  for (int i = 0; i < 2 * 4 * kSummed; ++i) padded.values.push_back(0);
  Array expected = Multiplied(padded, Dequantized(weights, Scalar(0.01f), ZeroPoint(0)), 4, false);
  expected.values.resize(4 * kColumns);
  ExpectNear(graph.Run(), expected, 1e-5, 1, "float32 by int8");
  // They became float32 when the plan was made.
  EXPECT_EQ(graph.plan->steps.size(), 1u);
  EXPECT_EQ(graph.plan->steps[0].info.variant,
            "inner_product, weights packed once, in float32: only one operand is quantized, or "
            "only the result");
}

/*! \brief A matmul of rows by columns of one number each; how it is computed. */
StepInfo CheckLongSum(int64_t summed, DLDataType type, int source, int weight, bool is_constant,
                      int zero_point) {
  QuantizedGraph graph;
  const Array src = Noise({2, summed}, type, source, source);
  const Array weights = Noise({3, summed}, kInt8, weight, weight);
  const Entry second = is_constant ? graph.Constant(weights) : graph.Input(weights);
  Node* node = graph.Add("nn.dense", {graph.Input(src), second}, {2, 3}, kFloat);
  node->attrs["root_op"] = "nn.dense";
  graph.Dequantize(node, 0, Scalar(0x1p-20f), ZeroPoint(zero_point));
  graph.Dequantize(node, 1, Scalar(1), ZeroPoint(0));
  const double sum = 0x1p-20 * summed * (source - zero_point) * weight;
  // So much float32 may err that adds equal numbers, each half a step off.
  const double tolerance = static_cast<double>(summed) * 0x1p-24;
  ExpectNear(graph.Run(), {{2, 3}, kFloat, std::vector<double>(6, sum)}, tolerance, 0,
             std::to_string(summed) + " products");
  const StepInfo step = graph.Find("matmul");
  return step.kind.empty() ? graph.Find("inner_product") : step;
}

TEST(DNNLInt8MatMul, SumsThat32BitsDoNotHold) {
  const std::string reason = "in float32: sums of products may exceed 32 bits";
  const auto exceeds = [&](const StepInfo& step) {
    // The other reason is that of CPUs without VNNI.
    return step.variant.find(reason) != std::string::npos ||
           step.variant.find("would saturate") != std::string::npos;
  };
  // 70000 * 255 * 127 is 2^31.08, and 140000 * 128 * 128 is 2^31.09.
  EXPECT_TRUE(exceeds(CheckLongSum(70000, kUInt8, 255, 127, true, 0)));
  EXPECT_TRUE(exceeds(CheckLongSum(140000, kInt8, -128, -128, true, 0)));
  EXPECT_TRUE(exceeds(CheckLongSum(70000, kUInt8, 255, 127, false, 0)));
  // The zero point makes the products larger.
  EXPECT_TRUE(exceeds(CheckLongSum(40000, kUInt8, 255, 127, true, -255)));
  EXPECT_TRUE(exceeds(CheckLongSum(1000, kUInt8, 255, 127, true, -100000)));
  // What is exact stays in 8 bits, such as the largest layer of VGG.
  EXPECT_EQ(IsInFloat32(CheckLongSum(25088, kUInt8, 255, 64, true, 128)), false);
  EXPECT_EQ(IsInFloat32(CheckLongSum(25088, kUInt8, 255, 127, true, 128)), !HasExactMatrices());
  EXPECT_EQ(IsInFloat32(CheckLongSum(70000, kUInt8, 255, 64, true, 0)), false);
}

}  // namespace dnnl_test::int8_matmul
