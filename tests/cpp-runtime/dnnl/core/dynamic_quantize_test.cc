// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/dynamic_quantize_test.cc
 * \brief Matmuls whose data is quantized as the model runs, against ONNX's definition in float64.
 */
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "quantized_graph.h"

namespace dnnl_test::dynamic_quantize {

struct Case {
  int64_t rows{3}, summed{40}, columns{24};
  DLDataType weights{kInt8};
  int weights_zero{0};
  int largest{127};  // of the weights less their zero point
  bool per_channel{false}, has_bias{false}, has_gelu{false};
  double low{-1}, high{3};  // of the data
  double epsilon{0};
};

/*! \brief The integers and the scale that ONNX's DynamicQuantizeLinear computes, in float32. */
double QuantizeDynamically(Array* data, int* zero_point, double epsilon = 0) {
  float low = 0, high = 0;
  for (double value : data->values) {
    low = std::min(low, static_cast<float>(value));
    high = std::max(high, static_cast<float>(value));
  }
  const float scale = low == high && epsilon == 0
                          ? 1.f
                          : std::max((high - low) / 255.f, static_cast<float>(epsilon));
  *zero_point = static_cast<int>(std::nearbyint(std::min(255.f, std::max(0.f, 0.f - low / scale))));
  for (double& value : data->values) {
    const float steps = std::nearbyint(static_cast<float>(value) / scale);
    value = std::min(255.f, std::max(0.f, steps + static_cast<float>(*zero_point)));
  }
  return scale;
}

Array Expected(const Case& c, Array data, const Array& weights, const Array& scale,
               const Array& bias) {
  int zero_point = 0;
  const double data_scale = QuantizeDynamically(&data, &zero_point, c.epsilon);
  Array result{{1, c.rows, c.columns}, kFloat, {}};
  for (int64_t m = 0; m < c.rows; ++m) {
    for (int64_t n = 0; n < c.columns; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < c.summed; ++k) {
        sum += (data.values[m * c.summed + k] - zero_point) *
               (weights.values[n * c.summed + k] - c.weights_zero);
      }
      double real = sum * data_scale * scale.values[c.per_channel ? n : 0];
      if (c.has_bias) real += bias.values[n];
      if (c.has_gelu)
        real *= 0.5 * (1 + std::tanh(0.7978845608 * (real + 0.044715 * real * real * real)));
      result.values.push_back(real);
    }
  }
  return result;
}

/*! \brief Build, run and compare; the step of the matmul. */
StepInfo Check(const Case& c, const std::string& text) {
  QuantizedGraph graph;
  const Array data = Noise({1, c.rows, c.summed}, kFloat, c.low, c.high);
  const double lowest = c.weights.code == kDLUInt ? 0 : -128;
  const Array weights =
      Noise({c.columns, c.summed}, c.weights,
            std::max(lowest, static_cast<double>(c.weights_zero - c.largest)),
            std::min(lowest + 255, static_cast<double>(c.weights_zero) + c.largest), 3);
  const Array scale = c.per_channel ? Noise({c.columns}, kFloat, 0.0005, 0.02, 5) : Scalar(0.003f);
  const Array bias = Noise({c.columns}, kFloat, -3, 3, 9);
  const Array expected = Expected(c, data, weights, scale, bias);
  Node* node = graph.Add("dnnl.dynamic_quantized_dense",
                         {graph.Input(data), graph.Constant(weights), graph.Constant(scale),
                          graph.Constant(ZeroPoint(c.weights_zero))},
                         expected.shape, kFloat);
  if (c.epsilon > 0) node->attrs["epsilon"] = std::vector<std::string>{std::to_string(c.epsilon)};
  if (c.has_bias) {
    node->inputs.push_back(graph.Constant(bias));
    graph.AddPostOp(node, "add", 4, true);
  }
  if (c.has_gelu) graph.AddPostOp(node, "dnnl.gelu_tanh");
  // The sums are exact; a product of scales is rounded, and so is a bias.
  ExpectNear(graph.Run(), expected, 1e-5, 0.01, text);
  EXPECT_EQ(graph.Count("dynamic_quantize"), 1);
  const StepInfo step = graph.Find("matmul");
  return step.kind.empty() ? graph.Find("inner_product") : step;
}

bool IsInt8(const StepInfo& step) {
  return step.types == "u8s8f32" && !IsInFloat32(step) && !IsReference(step);
}

TEST(DNNLDynamicQuantize, RowsScalesAndPostOps) {
  for (int64_t rows : {1, 3, 70}) {
    for (bool per_channel : {false, true}) {
      Case c;
      c.rows = rows;
      c.per_channel = c.has_bias = per_channel;
      c.has_gelu = rows == 3;
      c.largest = 64;
      EXPECT_TRUE(IsInt8(Check(c, std::to_string(rows) + " rows")));
    }
  }
}

TEST(DNNLDynamicQuantize, RangesOfTheData) {
  // A range always contains zero; one of 2^24 steps has data that are rounded to halves.
  const std::vector<std::pair<double, double>> ranges = {
      {1, 3}, {-3, -1}, {0, 0}, {-0.5, 0}, {-1e30, 1e30}, {1e-30, 2e-30}, {-2, 253}};
  for (const auto& [low, high] : ranges) {
    Case c;
    c.low = low;
    c.high = high;
    Check(c, std::to_string(low) + " to " + std::to_string(high));
  }
}

TEST(DNNLDynamicQuantize, TheSmallestScale) {
  for (double high : {0., 1., 3.}) {
    Case c;
    c.low = -high;
    c.high = high;
    c.epsilon = 0.015625;
    Check(c, "up to " + std::to_string(high));
  }
}

TEST(DNNLDynamicQuantize, Weights) {
  for (DLDataType type : {kInt8, kUInt8}) {
    for (int zero : {0, 3, 128}) {
      Case c;
      c.weights = type;
      c.weights_zero = type.code == kDLInt ? std::min(zero, 100) : zero;
      c.largest = 255;
      const StepInfo step = Check(c, "zero point " + std::to_string(zero));
      EXPECT_EQ(IsInFloat32(step), !HasExactMatrices());
    }
  }
}

TEST(DNNLDynamicQuantize, LargeData) {
  Case c;
  c.rows = 257;
  c.summed = 1031;
  c.columns = 3;
  Check(c, "several parts, and tails");
}

TEST(DNNLDynamicQuantize, SumsThat32BitsDoNotHold) {
  Case c;
  c.rows = 1;
  c.summed = 40000;
  c.columns = 2;
  EXPECT_TRUE(IsInFloat32(Check(c, "a long sum")));
}

TEST(DNNLDynamicQuantize, ReadersOfOneTensorShareTheQuantizedOne) {
  QuantizedGraph graph;
  const Array weights = Noise({5, 8}, kInt8, -60, 60, 3);
  const Entry data = graph.Input(Noise({2, 8}, kFloat, -1, 1));
  const auto dense = [&]() {
    Node* node = graph.Add(
        "dnnl.dynamic_quantized_dense",
        {data, graph.Constant(weights), graph.Constant(Scalar(0.1f)), graph.Constant(ZeroPoint(0))},
        {2, 5}, kFloat);
    return Entry{node->id, 0};
  };
  const Entry first = dense(), second = dense();
  graph.Add("subtract", {first, second}, {2, 5}, kFloat);
  ExpectNear(graph.Run(), {{2, 5}, kFloat, std::vector<double>(10, 0)}, 0, 0, "equal matmuls");
  EXPECT_EQ(graph.Count("dynamic_quantize"), 1);
}

TEST(DNNLDynamicQuantize, FakeQuantizeAndItsScale) {
  const std::vector<std::pair<double, double>> ranges = {{1, 3}, {-3, -1}, {0, 0}, {-1e30, 1e30}};
  for (const auto& [low, high] : ranges) {
    QuantizedGraph graph;
    // Several blocks of a vector loop, a tail, and several parts.
    const Shape shape = {3, 16411};
    Array data = Noise(shape, kFloat, low, high);
    const Entry input = graph.Input(data);
    Node* values = graph.Add("dnnl.dynamic_fake_quantize", {input}, shape, kFloat);
    Node* scale = graph.Add("dnnl.dynamic_quantize_scale", {input}, {1}, kFloat);
    // In steps, which are integers.
    graph.Add("divide", {Entry{values->id, 0}, Entry{scale->id, 0}}, shape, kFloat);
    int zero_point = 0;
    QuantizeDynamically(&data, &zero_point);
    for (double& value : data.values) value -= zero_point;
    ExpectNear(graph.Run(), data, 1e-6, 1e-3, std::to_string(low) + " to " + std::to_string(high));
    EXPECT_EQ(graph.Count("dynamic_fake_quantize"), 1);
  }
}

TEST(DNNLDynamicQuantize, FakeQuantizeInTheLayoutOfAConvolution) {
  QuantizedGraph graph;
  // 3 channels in blocks of 8 or 16, whose padding is read, too.
  const Shape shape = {1, 3, 5, 7};
  Array data = Noise({1, 3, 5, 7}, kFloat, 1, 3), weights = Noise({3, 3, 1, 1}, kFloat, -1, 1, 3);
  for (int k = 0; k < 9; ++k) weights.values[k] = k % 4 == 0 ? 2 : 0;
  const Node* conv =
      graph.Add("nn.conv2d", {graph.Input(data), graph.Constant(weights)}, shape, kFloat);
  graph.Add("dnnl.dynamic_fake_quantize", {Entry{conv->id, 0}}, shape, kFloat);
  for (double& value : data.values) value *= 2;
  int zero_point = 0;
  const double scale = QuantizeDynamically(&data, &zero_point);
  for (double& value : data.values) value = scale * (value - zero_point);
  ExpectNear(graph.Run(), data, 1e-6, 1e-6, "blocks");
}

}  // namespace dnnl_test::dynamic_quantize
