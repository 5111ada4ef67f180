// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/int8_matmul_test.cc
 * \brief Which matmuls of quantized tensors are exact in 8 bits, and how the others are computed.
 *
 * `fusion/test_quantized.py` and random quantized graphs compare types, scales and post-ops.
 */
#include <string>
#include <vector>

#include "quantized_graph.h"

namespace dnnl_test::int8_matmul {

/*! \brief Rows of `src` by weights of int8, whose magnitudes are at most `largest`. */
struct Case {
  DLDataType src{kUInt8};
  int largest{64};
  bool is_constant{true};
  int64_t rows{5};

  std::string Text() const {
    return ToText(src) + " by " + std::to_string(largest) + (is_constant ? "" : " computed");
  }
};

constexpr int64_t kSummed = 40, kColumns = 24;

/*! \brief Rows by columns of the second matrix, which is transposed. */
Array Multiplied(const Array& src, const Array& weights, int64_t rows) {
  Array dst{{rows, kColumns}, kFloat, {}};
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < kColumns; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < kSummed; ++k) {
        sum += src.values[m * kSummed + k] * weights.values[n * kSummed + k];
      }
      dst.values.push_back(sum);
    }
  }
  return dst;
}

/*! \brief Build, run and compare; what the plan's step is. */
StepInfo Check(const Case& c) {
  QuantizedGraph graph;
  const Array src = Bytes({c.rows, kSummed}, c.src);
  const Array weights = Weights({kColumns, kSummed}, kInt8, 0, c.largest);
  const Array src_scale = Scalar(0.02f), scale = Scalar(0.003f), zero = ZeroPoint(0);
  const Array expected =
      Multiplied(Dequantized(src, src_scale, zero), Dequantized(weights, scale, zero), c.rows);
  const Entry second = c.is_constant ? graph.Constant(weights) : graph.Input(weights);
  Node* node = graph.Add("nn.dense", {graph.Input(src), second}, expected.shape, kFloat);
  node->attrs["root_op"] = "nn.dense";
  graph.Dequantize(node, 0, src_scale, zero);
  graph.Dequantize(node, 1, scale, zero);
  ExpectNear(graph.Run(), expected, 1e-5, 0, c.Text());
  return graph.Find(graph.Count("matmul") > 0 ? "matmul" : "inner_product");
}

TEST(DNNLInt8MatMul, ElementsThatWouldSaturate) {
  for (DLDataType src : {kUInt8, kInt8}) {
    for (bool is_constant : {false, true}) {
      for (int largest : {64, 127}) {
        Case c;
        c.src = src;
        c.largest = largest;
        c.is_constant = is_constant;
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

TEST(DNNLInt8MatMul, OnlyTheWeightsAreQuantized) {
  QuantizedGraph graph;
  const Array src = Noise({4, kSummed}, kFloat, -1, 1);
  const Array weights = Noise({kColumns, kSummed}, kInt8, -127, 127, 2);
  Node* node =
      graph.Add("nn.dense", {graph.Input(src), graph.Constant(weights)}, {4, kColumns}, kFloat);
  node->attrs["root_op"] = "nn.dense";
  graph.Dequantize(node, 1, Scalar(0.01f), ZeroPoint(0));
  const Array expected = Multiplied(src, Dequantized(weights, Scalar(0.01f), ZeroPoint(0)), 4);
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
