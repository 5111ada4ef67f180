// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/float32_operands_test.cc
 * \brief Post-ops of bfloat16 whose operands are float32.
 */
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/desc.h"
#include "src/runtime/contrib/dnnl/core/error.h"
#include "src/runtime/contrib/dnnl/core/infer.h"
#include "src/runtime/contrib/dnnl/core/library.h"
#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "tests/cpp-runtime/dnnl/core/open_graph.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::float32_operands {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr DLDataType kBFloat16{kDLBfloat, 16, 1};
constexpr DLDataType kFloat16{kDLFloat, 16, 1};
constexpr int64_t kRows = 6, kSize = 24, kChannels = 40;
// bfloat16 has 1 in its place.
constexpr float kFactor = 1.0038F;

Entry Counting(Builder* b, Shape shape, float first, float step) {
  const Entry entry = b->Constant(std::move(shape), 0);
  const Constant& constant = b->graph.constants.back();
  auto* values = static_cast<float*>(constant.data.get());
  const int64_t count = SizeOf(constant.edge.argument.type.shape);
  for (int64_t i = 0; i < count; ++i) values[i] = first + step * static_cast<float>(i);
  return entry;
}

/*! \brief (data * weights + bias) * factor * bias in a type, of data in float32. */
Graph GraphOf(const std::string& root, DLDataType dtype, bool is_input_wide = false) {
  Builder b;
  const bool is_conv = root == "nn.conv2d";
  const Shape image = {1, kSize, kRows, kRows}, kernel = {kChannels, kSize, 1, 1};
  const Shape data = is_conv ? image : Shape{kRows, kSize};
  const Shape weights = is_conv ? kernel : Shape{kChannels, kSize};
  const Shape result = is_conv ? Shape{1, kChannels, kRows, kRows} : Shape{kRows, kChannels};
  const Shape channels = is_conv ? Shape{kChannels, 1, 1} : Shape{kChannels};
  const std::string name = dtype.code == kDLBfloat ? "bfloat16" : "float16";
  const auto narrow = [&](const Entry& entry, const Shape& shape) {
    const Entry cast = b.Add("cast", {entry}, shape, {{"dtype", name}});
    b.graph.nodes.back().outputs[0].dtype = dtype;
    return cast;
  };
  const Entry x = b.Input("x", data);
  const Entry w = b.Constant(weights, 3);
  const Entry bias = Counting(&b, channels, 0.7F, 0.013F);
  const std::vector<Entry> inputs = {narrow(x, data), is_input_wide ? w : narrow(w, weights), bias,
                                     Counting(&b, {}, kFactor, 0), bias};
  std::map<std::string, tvm::runtime::json::JSONAttr> attrs = {
      {"root_op", root},           {"post_ops", Texts{"add", "multiply", "multiply"}},
      {"post_ops.0.operand", "2"}, {"post_ops.0.is_bias", "1"},
      {"post_ops.1.operand", "3"}, {"post_ops.2.operand", "4"}};
  const Entry fused = b.Add("dnnl.fused", inputs, result, attrs);
  b.graph.nodes.back().outputs[0].dtype = dtype;
  b.Output(b.Add("cast", {fused}, result, {{"dtype", "float32"}}));
  return b.graph;
}

float Rounded(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

/*! \brief Whether nothing but the data, the weights and the result is rounded. */
bool IsExact(const std::string& root) {
  const Graph graph = GraphOf(root, kBFloat16);
  const auto plan = MakePlan(graph);
  const auto values = Call(*plan, 1, 7).Run(plan);
  const auto* weights = static_cast<const float*>(graph.constants[0].data.get());
  const auto* bias = static_cast<const float*>(graph.constants[1].data.get());
  const int64_t pixels = root == "nn.conv2d" ? kRows * kRows : 1;
  const int64_t rows = static_cast<int64_t>(values[1].size()) / (pixels * kChannels);
  for (int64_t i = 0; i < static_cast<int64_t>(values[1].size()); ++i) {
    const int64_t row = i / (kChannels * pixels), pixel = i % pixels;
    const int64_t channel = i / pixels % kChannels;
    double sum = bias[channel], magnitude = std::abs(sum);
    for (int64_t k = 0; k < kSize; ++k) {
      const float x = values[0][(row * kSize + k) * pixels + pixel];
      const double product =
          static_cast<double>(Rounded(x)) * Rounded(weights[channel * kSize + k]);
      sum += product;
      magnitude += std::abs(product);
    }
    // Half a unit in the last place of 8 bits, and float32's of the sum.
    const double factor = static_cast<double>(kFactor) * bias[channel];
    const double bound = (std::abs(sum) / 256 + magnitude * 1e-6) * factor;
    if (!(std::abs(values[1][i] - sum * factor) <= bound)) return false;
  }
  return rows > 0;
}

TEST(DNNLFloat32Operands, AreNotRounded) {
  if (!Computes(kBFloat16)) return;
  EXPECT_TRUE(IsExact("nn.dense"));
  EXPECT_TRUE(IsExact("nn.conv2d"));
}

TEST(DNNLFloat32Operands, AreInferredBesideNarrowData) {
  for (const DLDataType dtype : {kBFloat16, kFloat16}) {
    for (const char* root : {"nn.dense", "nn.conv2d"}) {
      const Graph graph = GraphOf(root, dtype);
      const Graph inferred = Infer(graph, InputShapes(graph));
      EXPECT_EQ(ToText(inferred.nodes[2].outputs[0]), ToText(graph.nodes[2].outputs[0]));
    }
  }
}

TEST(DNNLFloat32Operands, StayFloat32ForOtherNodes) {
  if (!Computes(kBFloat16)) return;
  Builder b;
  // Softmax has no post-ops of this type: they are lowered one by one.
  const Shape shape = {kRows, kChannels};
  const Entry x = b.Input("x", shape), factor = Counting(&b, {kChannels}, 0.7F, 0.013F);
  const Entry narrow = b.Add("cast", {x}, shape, {{"dtype", "bfloat16"}});
  b.graph.nodes.back().outputs[0].dtype = kBFloat16;
  const Entry fused = b.Add("dnnl.fused", {narrow, factor, factor}, shape,
                            {{"root_op", "nn.softmax"},
                             {"axis", "-1"},
                             {"post_ops", Texts{"multiply", "multiply"}},
                             {"post_ops.0.operand", "1"},
                             {"post_ops.1.operand", "2"}});
  b.graph.nodes.back().outputs[0].dtype = kBFloat16;
  b.Output(b.Add("cast", {fused}, shape, {{"dtype", "float32"}}));
  b.Output(b.Add("add", {x, factor}, shape));
  const auto plan = MakePlan(b.graph);
  const auto values = Call(*plan, 1, 7).Run(plan);
  const auto* factors = static_cast<const float*>(b.graph.constants[0].data.get());
  for (int64_t row = 0; row < kRows; ++row) {
    double sum = 0;
    const float* given = &values[0][row * kChannels];
    for (int64_t k = 0; k < kChannels; ++k) sum += std::exp(Rounded(given[k]));
    for (int64_t k = 0; k < kChannels; ++k) {
      const double product = std::exp(Rounded(given[k])) / sum * factors[k] * factors[k];
      // Rounded up to five times, to 8 bits.
      EXPECT_TRUE(std::abs(values[1][row * kChannels + k] - product) <= product * 5 / 256);
      EXPECT_TRUE(std::abs(values[2][row * kChannels + k] - (given[k] + factors[k])) <= 1e-6F);
    }
  }
}

TEST(DNNLFloat32Operands, OfTheRootAreRefused) {
  const Graph graph = GraphOf("nn.dense", kBFloat16, /*is_input_wide=*/true);
  EXPECT_THROWS(Infer(graph, InputShapes(graph)), "nn.dense", "float32");
}

}  // namespace dnnl_test::float32_operands
