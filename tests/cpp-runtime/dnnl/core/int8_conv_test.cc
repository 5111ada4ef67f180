// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/int8_conv_test.cc
 * \brief Convolutions of quantized tensors in other layouts and dimensions, and at their bounds.
 *
 * `fusion/test_quantized.py` and random quantized graphs compare types, scales and post-ops.
 */
#include <string>
#include <vector>

#include "quantized_graph.h"

namespace dnnl_test::int8_conv {

/*! \brief The elements with the axes in another order. */
Array Permuted(const Array& array, const std::vector<int>& axes) {
  Array result{{}, array.dtype, {}};
  for (int axis : axes) result.shape.push_back(array.shape[axis]);
  for (int64_t i = 0; i < SizeOf(array.shape); ++i) {
    std::vector<int64_t> at(axes.size());
    for (size_t k = 0; k < axes.size(); ++k) {
      at[axes[k]] = CoordinateOf(result.shape, i, static_cast<int>(k));
    }
    int64_t index = 0;
    for (size_t k = 0; k < at.size(); ++k) index = index * array.shape[k] + at[k];
    result.values.push_back(array.values[index]);
  }
  return result;
}

TEST(DNNLInt8Conv, ChannelsLastIsTheSame) {
  for (int64_t groups : {1, 16}) {
    Array results[2];
    for (bool is_last : {false, true}) {
      QuantizedGraph graph;
      const auto order = [&](const Array& array, const std::vector<int>& axes) {
        return is_last ? Permuted(array, axes) : array;
      };
      const Array src = order(Noise({1, 16, 6, 6}, kUInt8, 0, 255), {0, 2, 3, 1});
      const Array weights = order(Noise({16, 16 / groups, 3, 3}, kInt8, -64, 64, 2), {2, 3, 1, 0});
      const Array added = order(Noise({1, 16, 4, 4}, kInt8, -128, 127, 3), {0, 2, 3, 1});
      Node* node =
          graph.Add("nn.conv2d", {graph.Input(src), graph.Constant(weights), graph.Input(added)},
                    is_last ? Shape{1, 4, 4, 16} : Shape{1, 16, 4, 4}, kUInt8);
      if (is_last) node->attrs["data_layout"] = "NHWC";
      if (is_last) node->attrs["kernel_layout"] = "HWIO";
      node->attrs["groups"] = groups;
      graph.Dequantize(node, 0, Scalar(0.02f), ZeroPoint(9));
      graph.Dequantize(node, 1, Noise({16}, kFloat, 0.001, 0.01, 4), ZeroPoint(0),
                       is_last ? -1 : 0);
      graph.AddPostOp(node, "add");
      node->attrs["post_ops.0.operand"] = 2;
      graph.Dequantize(node, 2, Scalar(0.05f), ZeroPoint(4));
      graph.Quantize(node, Scalar(0.1f), ZeroPoint(100), kUInt8);
      results[is_last] = graph.Run();
      EXPECT_TRUE(!IsInFloat32(graph.Find("convolution")));
    }
    ExpectNear(results[1], Permuted(results[0], {0, 2, 3, 1}), 0, 0, "channels last");
  }
}

/*! \brief A convolution of ones over 1 or 3 spatial dimensions of the source, without padding. */
void CheckOnes(const std::string& op, size_t spatial, int64_t groups) {
  QuantizedGraph graph;
  Shape src = {1, 8}, weights = {8, 8 / groups}, dst = {1, 8};
  for (size_t i = 0; i < spatial; ++i) {
    src.push_back(6);
    weights.push_back(3);
    dst.push_back(4);
  }
  Node* node = graph.Add(
      op, {graph.Input(Noise(src, kUInt8, 7, 7)), graph.Constant(Noise(weights, kInt8, 2, 2))}, dst,
      kUInt8);
  node->attrs["groups"] = groups;
  graph.Dequantize(node, 0, Scalar(0.5f), ZeroPoint(5));
  graph.Dequantize(node, 1, Noise({8}, kFloat, 0.25, 0.25), ZeroPoint(0), 0);
  const double sum = 0.5 * std::pow(3, spatial) * 8 / groups;
  graph.Quantize(node, Scalar(sum / 50), ZeroPoint(3), kUInt8);
  const Array expected{dst, kUInt8, std::vector<double>(SizeOf(dst), 53)};
  ExpectNear(graph.Run(), expected, 0, 0, op);
  // For volumes with groups some CPUs have slow code only.
  EXPECT_TRUE((spatial == 3 && groups > 1) || !IsInFloat32(graph.Find("convolution")));
}

TEST(DNNLInt8Conv, OneAndThreeDimensions) {
  for (int64_t groups : {1, 8}) {
    CheckOnes("nn.conv1d", 1, groups);
    CheckOnes("nn.conv3d", 3, groups);
  }
}

/*! \brief A quantization, a convolution of one position and a dequantization, of row-major images.
 */
std::vector<std::string> OpsOfQuantizedConv(int source_zero_point, int result_zero_point) {
  const Array data = Noise({1, 16, 6, 6}, kFloat, -3, 3);
  const Array weights = Noise({16, 16, 1, 1}, kInt8, -64, 64, 2);
  Array real = Dequantized(Quantized(data, Scalar(0.02f), ZeroPoint(source_zero_point), kUInt8),
                           Scalar(0.02f), ZeroPoint(source_zero_point));
  Array sums{data.shape, kFloat, std::vector<double>(16 * 36, 0)};
  for (int o = 0; o < 16; ++o) {
    for (int i = 0; i < 16; ++i) {
      for (int at = 0; at < 36; ++at) {
        sums.values[o * 36 + at] += 0.01 * weights.values[o * 16 + i] * real.values[i * 36 + at];
      }
    }
  }
  const Array expected =
      Dequantized(Quantized(sums, Scalar(0.1137f), ZeroPoint(result_zero_point), kUInt8),
                  Scalar(0.1137f), ZeroPoint(result_zero_point));
  QuantizedGraph graph;
  Node* quantize = graph.Add("qnn.quantize",
                             {graph.Input(data), graph.Constant(Scalar(0.02f)),
                              graph.Constant(ZeroPoint(source_zero_point))},
                             data.shape, kUInt8);
  quantize->attrs["out_dtype"] = "uint8";
  Node* conv =
      graph.Add("nn.conv2d", {{quantize->id, 0}, graph.Constant(weights)}, data.shape, kUInt8);
  graph.Dequantize(conv, 0, Scalar(0.02f), ZeroPoint(source_zero_point));
  graph.Dequantize(conv, 1, Scalar(0.01f), ZeroPoint(0));
  graph.Quantize(conv, Scalar(0.1137f), ZeroPoint(result_zero_point), kUInt8);
  graph.Add("qnn.dequantize",
            {{conv->id, 0},
             graph.Constant(Scalar(0.1137f)),
             graph.Constant(ZeroPoint(result_zero_point))},
            data.shape, kFloat);
  ExpectNear(graph.Run(), expected, 0.01, 1, "images");
  std::vector<std::string> ops;
  for (const Step& step : graph.plan->steps) ops.push_back(step.info.op);
  return ops;
}

TEST(DNNLInt8Conv, ImagesChangeTheirLayoutInEightBits) {
  // Of the two steps of a dequantization the first is a cast.
  const std::vector<std::string> expected = {"qnn.quantize",   "reorder",        "nn.conv2d",
                                             "qnn.dequantize", "qnn.dequantize", "reorder"};
  EXPECT_EQ(OpsOfQuantizedConv(0, 0), expected);
  EXPECT_EQ(OpsOfQuantizedConv(128, 120), expected);
}

TEST(DNNLInt8Conv, AllElementsAtTheirBounds) {
  // 9 * 16 products of 255 and the bound: pairs of them would not fit into 16 bits.
  for (int bound : {64, 127, -128, -64}) {
    QuantizedGraph graph;
    Array src = Noise({2, 16, 6, 6}, kUInt8, 255, 255);
    Array weights = Noise({16, 16, 3, 3}, kInt8, bound, bound);
    Node* node =
        graph.Add("nn.conv2d", {graph.Input(src), graph.Constant(weights)}, {2, 16, 4, 4}, kFloat);
    node->attrs["root_op"] = "nn.conv2d";
    graph.Dequantize(node, 0, Scalar(1), ZeroPoint(0));
    graph.Dequantize(node, 1, Scalar(1), ZeroPoint(0));
    const Array expected{{2, 16, 4, 4}, kFloat, std::vector<double>(512, 144. * 255 * bound)};
    ExpectNear(graph.Run(), expected, 0, 0, "weights of " + std::to_string(bound));
    EXPECT_EQ(IsInFloat32(graph.Find("convolution")), !HasExactMatrices() && std::abs(bound) > 64);
  }
}

TEST(DNNLInt8Conv, NothingIsWrittenBehindTheResult) {
  // As many positions as three tiles of AMX hold, and no more channels than there is room for.
  constexpr int64_t kIn = 64;
  const Array src = Noise({1, kIn, 6, 6}, kUInt8, 0, 255);
  const Array weights = Noise({1, kIn, 1, 1}, kInt8, -64, 64, 3);
  QuantizedGraph graph;
  Node* node =
      graph.Add("nn.conv2d", {graph.Input(src), graph.Constant(weights)}, {1, 1, 6, 6}, kUInt8);
  // oneDNN itself adds a zero point that is computed.
  graph.computes_scales = true;
  graph.Dequantize(node, 0, Scalar(0.02f), ZeroPoint(120));
  graph.computes_scales = false;
  graph.Dequantize(node, 1, Scalar(0.003f), ZeroPoint(0), 0);
  graph.Quantize(node, Scalar(0.1f), ZeroPoint(7), kUInt8);
  graph.Run();
  EXPECT_TRUE(graph.Find("convolution").impl.find("jit_1x1:avx512_core_amx") == std::string::npos);
}

TEST(DNNLInt8Conv, SumsThat32BitsDoNotHold) {
  // Of groups and taps: 3 * 3 * 8000 products for each result.
  for (const char* op : {"nn.conv2d", "nn.conv2d_transpose"}) {
    QuantizedGraph graph;
    const bool is_transposed = std::string(op) == "nn.conv2d_transpose";
    const Array weights =
        Noise(is_transposed ? Shape{16000, 1, 3, 3} : Shape{2, 8000, 3, 3}, kInt8, 127, 127);
    Node* node = graph.Add(
        op, {graph.Input(Noise({1, 16000, 3, 3}, kUInt8, 255, 255)), graph.Constant(weights)},
        is_transposed ? Shape{1, 2, 5, 5} : Shape{1, 2, 1, 1}, kFloat);
    node->attrs["root_op"] = op;
    node->attrs["groups"] = "2";
    node->attrs["channels"] = "2";
    graph.Dequantize(node, 0, Scalar(0x1p-20f), ZeroPoint(0));
    graph.Dequantize(node, 1, Scalar(1), ZeroPoint(0));
    const Array result = graph.Run();
    const double expected = 0x1p-20 * 72000 * 255 * 127;
    const double middle = result.values[is_transposed ? 12 : 0];
    // So much float32 may err that adds equal numbers, each half a step off.
    EXPECT_TRUE(std::abs(middle - expected) < 72000 * 0x1p-24 * expected);
    const StepInfo step = graph.Find(is_transposed ? "deconvolution" : "convolution");
    // The other reason is that of CPUs without VNNI.
    if (!EXPECT_TRUE(step.variant.find("may exceed 32 bits") != std::string::npos ||
                     step.variant.find("would saturate") != std::string::npos)) {
      std::cerr << op << ": " << step.impl << ", " << step.variant << std::endl;
    }
  }
}

}  // namespace dnnl_test::int8_conv
