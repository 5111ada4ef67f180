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
 * \file tests/cpp-runtime/dnnl/core/int8_conv_test.cc
 * \brief Convolutions of quantized tensors against sums of exact products.
 */
#include <string>
#include <vector>

#include "quantized_graph.h"

namespace dnnl_test::int8_conv {

/*! \brief A convolution (N, C, H, W) with what is fused to it. */
struct Case {
  DLDataType src{kUInt8};
  int src_zero{0};
  DLDataType weights{kInt8};
  int weights_zero{0};
  int largest{64};  // of the weights
  bool per_channel{false};
  int64_t groups{1};
  int64_t kernel{3};
  int64_t stride{1};
  int64_t pad{1};
  bool is_transposed{false};
  bool has_bias{false};
  bool has_relu{false};
  bool has_fake{false};
  /*! \brief Of an addition of 8-bit numbers; no addition without bits. */
  DLDataType residual{kDLUInt, 0, 1};
  int residual_zero{0};
  bool residual_first{false};
  std::string residual_op{"add"};
  DLDataType dst{kUInt8};
  int dst_zero{0};
  bool computes_scales{false};
  double dst_scale{0.3};

  std::string Text() const {
    return ToText(src) + " less " + std::to_string(src_zero) + ", " + ToText(weights) + " less " +
           std::to_string(weights_zero) + " to " + std::to_string(largest) +
           (per_channel ? " per channel" : "") + ", groups " + std::to_string(groups) +
           ", kernel " + std::to_string(kernel) + (is_transposed ? ", transposed" : "") +
           (has_bias ? ", bias" : "") + (has_relu ? ", relu" : "") + (has_fake ? ", fake" : "") +
           ", " + residual_op + " " + ToText(residual) + ", to " + ToText(dst) + " plus " +
           std::to_string(dst_zero);
  }
};

constexpr int64_t kChannels = 16, kSize = 6;

/*! \brief The real result of the convolution alone. */
Array Convolved(const Array& src, const Array& weights, const Case& c, int64_t out_size) {
  Array dst{{2, kChannels, out_size, out_size}, kFloat, {}};
  dst.values.assign(SizeOf(dst.shape), 0);
  const int64_t per_group = kChannels / c.groups, in_channels = src.shape[1];
  const int64_t in_group = in_channels / c.groups;
  const auto add = [&](int64_t n, int64_t o, int64_t y, int64_t x, int64_t i, int64_t iy,
                       int64_t ix, int64_t ky, int64_t kx) {
    if (iy < 0 || ix < 0 || iy >= kSize || ix >= kSize) return;
    if (y < 0 || x < 0 || y >= out_size || x >= out_size) return;
    const int64_t channel = o / per_group * in_group + i;
    // (O, I/G, ...), or (I, O/G, ...) of a transposed one.
    const int64_t first = c.is_transposed ? channel : o;
    const int64_t second = c.is_transposed ? o % per_group : i;
    const int64_t width = weights.shape[1];
    dst.values[((n * kChannels + o) * out_size + y) * out_size + x] +=
        src.values[((n * in_channels + channel) * kSize + iy) * kSize + ix] *
        weights.values[((first * width + second) * c.kernel + ky) * c.kernel + kx];
  };
  const int64_t steps = c.is_transposed ? kSize : out_size;
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t o = 0; o < kChannels; ++o)
      for (int64_t a = 0; a < steps; ++a)
        for (int64_t b = 0; b < steps; ++b)
          for (int64_t i = 0; i < in_group; ++i)
            for (int64_t ky = 0; ky < c.kernel; ++ky)
              for (int64_t kx = 0; kx < c.kernel; ++kx) {
                const int64_t y = a * c.stride - c.pad + ky, x = b * c.stride - c.pad + kx;
                c.is_transposed ? add(n, o, y, x, i, a, b, ky, kx)
                                : add(n, o, a, b, i, y, x, ky, kx);
              }
  return dst;
}

/*! \brief Build, run and compare; what the plan's step is. */
StepInfo Check(const Case& c, double tolerance = 1) {
  QuantizedGraph graph;
  graph.computes_scales = c.computes_scales;
  const Array src = Bytes({2, 16, kSize, kSize}, c.src);
  const int64_t in_group = 16 / c.groups;
  const Array weights =
      Weights({16, in_group, c.kernel, c.kernel}, c.weights, c.weights_zero, c.largest);
  const int axis = c.is_transposed ? 1 : 0;
  const Array scale =
      c.per_channel ? Noise({weights.shape[axis]}, kFloat, 0.0005, 0.02, 5) : Scalar(0.003f);
  const int64_t out = c.is_transposed ? (kSize - 1) * c.stride - 2 * c.pad + c.kernel
                                      : (kSize + 2 * c.pad - c.kernel) / c.stride + 1;
  const Array src_scale = Scalar(0.02f), src_zero = ZeroPoint(c.src_zero);
  Array real = Convolved(Dequantized(src, src_scale, src_zero),
                         Dequantized(weights, scale, ZeroPoint(c.weights_zero), axis), c, out);
  const Shape shape = real.shape;
  // The residual is an intermediate of the graph, so that the sum may be in its memory.
  Entry residual{0, 0};
  Array residual_value;
  if (c.residual.bits > 0) {
    residual_value = Bytes(shape, c.residual, 7);
    Array as_float = residual_value;
    as_float.dtype = kFloat;
    Node* quantize =
        graph.Add("qnn.quantize",
                  {graph.Input(as_float), graph.Constant(Scalar(1)), graph.Constant(ZeroPoint(0))},
                  shape, c.residual);
    quantize->attrs["out_dtype"] = ToText(c.residual);
    residual = {quantize->id, 0};
  }
  Node* node = graph.Add(c.is_transposed ? "nn.conv2d_transpose" : "nn.conv2d",
                         {graph.Input(src), graph.Constant(weights)}, shape, c.dst);
  const auto both = [](int64_t value) {
    return std::vector<std::string>{std::to_string(value), std::to_string(value)};
  };
  node->attrs["strides"] = both(c.stride);
  node->attrs["padding"] = both(c.pad);
  node->attrs["groups"] = c.groups;
  if (c.is_transposed) node->attrs["kernel_layout"] = "IOHW";
  const Array bias = Noise({16, 1, 1}, kFloat, -3, 3, 9);
  if (c.has_bias) node->inputs.push_back(graph.Constant(bias));
  if (c.residual.bits > 0) node->inputs.push_back(residual);
  graph.Dequantize(node, 0, src_scale, src_zero);
  graph.Dequantize(node, 1, scale, ZeroPoint(c.weights_zero), axis);
  int next = 2;
  if (c.has_bias) {
    graph.AddPostOp(node, "add", next++, true);
    for (size_t i = 0; i < real.values.size(); ++i) {
      real.values[i] += bias.values[CoordinateOf(shape, i, 1)];
    }
  }
  if (c.residual.bits > 0) {
    const Array added = Dequantized(residual_value, Scalar(0.05f), ZeroPoint(c.residual_zero));
    graph.AddPostOp(node, c.residual_op, next);
    if (c.residual_first) node->attrs[graph.LastPostOp(node) + "operand_first"] = "1";
    graph.Dequantize(node, next, Scalar(0.05f), ZeroPoint(c.residual_zero));
    for (size_t i = 0; i < real.values.size(); ++i) {
      double &x = real.values[i], y = added.values[i];
      x = c.residual_op == "add"        ? x + y
          : c.residual_op == "multiply" ? x * y
          : c.residual_first            ? y - x
                                        : x - y;
    }
  }
  if (c.has_fake) {
    graph.Quantize(node, Scalar(0.25f), ZeroPoint(90), kUInt8);
    graph.AddPostOp(node, "qnn.dequantize");
    graph.SetScale(node, graph.LastPostOp(node), Scalar(0.25f), ZeroPoint(90));
    real = Dequantized(Quantized(real, Scalar(0.25f), ZeroPoint(90), kUInt8), Scalar(0.25f),
                       ZeroPoint(90));
  }
  if (c.has_relu) {
    graph.AddPostOp(node, "nn.relu");
    for (double& value : real.values) value = std::max(value, 0.);
  }
  const Array expected =
      Result(&graph, node, real, Scalar(c.dst_scale), ZeroPoint(c.dst_zero), c.dst);
  // A fake quantization that falls on the other side of a half is a whole step of its own.
  const double share = c.has_fake ? 0.02 : 0.01;
  ExpectNear(graph.Run(), expected, c.dst.code == kDLFloat ? (c.has_fake ? 0.05 : 1e-5) : tolerance,
             share, c.Text());
  for (const char* kind : {"convolution", "deconvolution"}) {
    if (graph.Count(kind) > 0) return graph.Find(kind);
  }
  return {};
}

void ExpectInt8(const Case& c, double tolerance = 1) {
  const StepInfo step = Check(c, tolerance);
  if (!EXPECT_TRUE(!step.kind.empty() && !IsInFloat32(step) && !IsReference(step))) {
    std::cerr << c.Text() << ": " << step.impl << ", " << step.variant << std::endl;
  }
}

TEST(DNNLInt8Conv, ZeroPointsScalesAndTypes) {
  for (int src_zero : {0, 128, 255}) {
    for (bool per_channel : {false, true}) {
      for (DLDataType dst : {kUInt8, kInt8, kFloat}) {
        for (int dst_zero : {0, 100}) {
          Case c;
          c.src_zero = src_zero;
          c.per_channel = per_channel;
          c.dst = dst;
          c.dst_zero = dst_zero;
          c.has_bias = per_channel;
          c.has_relu = dst_zero == 0;
          ExpectInt8(c);
        }
      }
    }
  }
}

TEST(DNNLInt8Conv, GroupsKernelsAndTransposed) {
  for (int64_t groups : {1, 2, 16}) {
    for (int64_t kernel : {1, 3}) {
      for (bool is_transposed : {false, true}) {
        Case c;
        c.src_zero = 77;
        c.groups = groups;
        c.kernel = kernel;
        c.pad = kernel / 2;
        c.stride = kernel == 3 ? 2 : 1;
        c.is_transposed = is_transposed;
        c.per_channel = true;
        c.dst_zero = 100;
        const StepInfo step = Check(c);
        // Relay's scales of a transposed one are those of one group.
        if (!is_transposed) EXPECT_TRUE(!IsInFloat32(step));
      }
    }
  }
}

TEST(DNNLInt8Conv, SignedSourceAndLargeWeights) {
  for (DLDataType src : {kUInt8, kInt8}) {
    for (int largest : {64, 127}) {
      for (int src_zero : {0, -100, 100}) {
        if (src.code == kDLUInt && src_zero < 0) continue;
        Case c;
        c.src = src;
        c.largest = largest;
        c.src_zero = src_zero;
        c.dst = kInt8;
        c.dst_zero = -20;
        const StepInfo step = Check(c);
        const bool is_left_to_onednn = src.code == kDLUInt && largest == 64;
        const bool is_exact = HasExactMatrices() || is_left_to_onednn;
        if (!EXPECT_EQ(IsInFloat32(step), !is_exact)) std::cerr << c.Text() << step.variant;
        const bool is_own = !HasExactSums() && HasInt8Matrices() && !is_left_to_onednn;
        EXPECT_EQ(step.variant == "products in 16 bits", is_own);
      }
    }
  }
}

TEST(DNNLInt8Conv, UnsignedWeights) {
  Case c;
  c.weights = kUInt8;
  c.weights_zero = 128;
  c.src_zero = 3;
  ExpectInt8(c);
  c.weights_zero = 100;
  ExpectInt8(c);
  // Less the zero point these would need nine bits.
  c.weights_zero = 60;
  c.largest = 255;
  EXPECT_TRUE(IsInFloat32(Check(c)));
}

TEST(DNNLInt8Conv, Residuals) {
  for (DLDataType residual : {kUInt8, kInt8}) {
    for (int zero : {0, 30}) {
      for (const char* op : {"add", "subtract", "multiply"}) {
        for (bool is_first : {false, true}) {
          Case c;
          c.residual = residual;
          c.residual_zero = zero;
          c.residual_op = op;
          c.residual_first = is_first;
          c.has_bias = true;
          c.has_relu = true;
          c.src_zero = 100;
          c.dst_scale = std::string(op) == "multiply" ? 5 : 0.3;
          ExpectInt8(c);
          if (residual.code != kDLUInt || std::string(op) != "add") continue;
          // The same memory as the result's.
          const StepInfo step = Check(c);
          EXPECT_TRUE(step.post_ops ==
                      std::vector<std::string>({"bias", "sum", "eltwise_relu", "quantize"}));
        }
      }
    }
  }
}

TEST(DNNLInt8Conv, FakeQuantizationInTheMiddle) {
  Case c;
  c.has_fake = true;
  c.has_bias = true;
  c.has_relu = true;
  // A step of the fake quantization is two of the result's.
  c.dst_scale = 0.13;
  ExpectInt8(c, 2);
  c.residual = kUInt8;
  ExpectInt8(c, 2);
  c.dst = kFloat;
  ExpectInt8(c);
}

TEST(DNNLInt8Conv, ComputedScales) {
  Case c;
  c.computes_scales = true;
  c.src_zero = 20;
  c.dst_zero = 30;
  Check(c);
  c.has_relu = true;
  c.per_channel = true;
  Check(c);
  c.residual = kInt8;
  Check(c);
  c.has_fake = true;
  c.dst_scale = 0.13;
  Check(c, 2);
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
