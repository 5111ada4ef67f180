// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/tile_matmul_test.cc
 * \brief Rows in bfloat16 by constants, on the kernel for AMX.
 */
#include "src/runtime/contrib/dnnl/core/kernels/tile_matmul.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/runtime/contrib/dnnl/core/flat_attrs.h"
#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "tests/cpp-runtime/harness/bfloat16.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::tile_matmul {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr DLDataType kBFloat16{kDLBfloat, 16, 1}, kFloat32{kDLFloat, 32, 1};
constexpr const char* kVariant = "AMX, weights packed once";

/*! \brief Numbers that bfloat16 has exactly. */
std::vector<uint16_t> Halves(const std::vector<float>& values) {
  std::vector<uint16_t> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(), UpperHalf);
  return result;
}

/*! \brief A dense layer with a bias, then other post-ops: a unary one, or the sum of a residual. */
struct Layer {
  int64_t rows, inner, columns;
  std::string unary;
  bool has_residual;
  DLDataType type;
  std::vector<float> data, weights, bias, residual;

  Layer(int64_t rows, int64_t inner, int64_t columns, std::string unary = "",
        bool has_residual = false, DLDataType type = kBFloat16)
      : rows(rows),
        inner(inner),
        columns(columns),
        unary(unary),
        has_residual(has_residual),
        type(type) {
    for (int64_t i = 0; i < rows * inner; ++i) data.push_back(static_cast<float>(i % 7 - 3));
    // Multiples of 1/64: sums of products are exact.
    for (int64_t i = 0; i < columns * inner; ++i) {
      weights.push_back(static_cast<float>(i % 11 - 5) / 64);
    }
    for (int64_t i = 0; i < columns; ++i) bias.push_back(static_cast<float>(i % 5 - 2) / 4);
    for (int64_t i = 0; i < rows * columns; ++i) residual.push_back(static_cast<float>(i % 9 - 4));
  }

  /*! \brief A plan of its graph. */
  std::shared_ptr<const Plan> MakePlanOf() {
    half_weights = Halves(weights);
    half_bias = Halves(bias);
    const auto constant = [](void* values) { return std::shared_ptr<void>(values, [](void*) {}); };
    Graph graph;
    graph.symbol = graph.name = "main";
    graph.inputs = {{{0, 0}, {"x", {{rows, inner}, kBFloat16}}}};
    graph.constants = {
        {{{1, 0}, {"weights", {{columns, inner}, kBFloat16}}}, constant(half_weights.data())},
        {{{2, 0}, {"bias", {{columns}, type}}},
         constant(type.bits == 16 ? static_cast<void*>(half_bias.data()) : bias.data())}};
    const TensorType result = {{rows, columns}, type};
    Node node{4, "dnnl.dense_fused", {}, {{0, 0}, {1, 0}, {2, 0}}, {result}};
    node.attrs["root_op"] = "nn.dense";
    if (type.bits == 32) node.attrs["out_dtype"] = "float32";
    node.attrs["post_ops.0.operand"] = "2";
    std::vector<std::string> post_ops = {"add"};
    if (!unary.empty()) {
      post_ops.push_back(unary);
      node.attrs["post_ops.1.alpha"] = "1";
    }
    if (has_residual) {
      graph.inputs.push_back({{3, 0}, {"residual", result}});
      node.attrs["post_ops." + std::to_string(post_ops.size()) + ".operand"] = "3";
      post_ops.push_back("add");
      node.inputs.push_back({3, 0});
    }
    node.attrs["post_ops"] = post_ops;
    NestAttrs(&node.attrs);
    graph.nodes = {node};
    graph.outputs = {{{4, 0}, {"output 0", result}}};
    return MakePlan(graph);
  }

  /*! \brief The results of a plan. */
  std::vector<float> Run(const std::shared_ptr<const Plan>& plan) const {
    std::vector<uint16_t> half_data = Halves(data), half_residual = Halves(residual);
    std::vector<uint16_t> halves(rows * columns);
    std::vector<float> floats(rows * columns), own_residual = residual;
    const bool is_half = type.bits == 16;
    void* const other = is_half ? static_cast<void*>(half_residual.data()) : own_residual.data();
    void* const result = is_half ? static_cast<void*>(halves.data()) : floats.data();
    std::vector<void*> addresses = {half_data.data()};
    if (has_residual) addresses.push_back(other);
    addresses.push_back(result);
    Context(plan).Run(addresses, nullptr);
    for (size_t i = 0; is_half && i < halves.size(); ++i) floats[i] = FromBFloat16(halves[i]);
    return floats;
  }

  /*! \brief Whether the results are those of float64, rounded. */
  bool IsRight(const std::vector<float>& results, const std::function<double(double)>& function,
               double error) const {
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t n = 0; n < columns; ++n) {
        double sum = bias[n];
        for (int64_t k = 0; k < inner; ++k) sum += data[m * inner + k] * weights[n * inner + k];
        double right = function(sum);
        if (has_residual) right += residual[m * columns + n];
        const double rounding = type.bits == 16 ? 0x1p-8 * std::abs(right) : 0;
        if (!(std::abs(results[m * columns + n] - right) <= rounding + error)) return false;
      }
    }
    return true;
  }

 private:
  std::vector<uint16_t> half_weights, half_bias;
};

double Same(double x) { return x; }

/*! \brief Whether one step of the kernel computes a layer rightly. */
bool RunsOnTiles(Layer layer, const std::function<double(double)>& function = Same,
                 double error = 0) {
  const auto plan = layer.MakePlanOf();
  return plan->steps.size() == 1 && plan->steps[0].info.variant == kVariant &&
         plan->steps[0].info.post_ops.size() == 1u + !layer.unary.empty() + layer.has_residual &&
         layer.IsRight(layer.Run(plan), function, error);
}

TEST(DNNLTileMatMul, AnyNumberOfRows) {
  if (!HasTileMatMul()) return;
  for (int64_t rows : {32, 33, 47, 48, 49, 64, 197, 512}) {
    EXPECT_TRUE(RunsOnTiles(Layer(rows, 512, 128)));
    EXPECT_TRUE(RunsOnTiles(Layer(rows, 512, 160, "nn.relu", true),
                            [](double x) { return std::max(x, 0.); }));
  }
  EXPECT_TRUE(RunsOnTiles(Layer(100, 1056, 96, "", true)));
}

TEST(DNNLTileMatMul, ResultsInFloat32) {
  if (!HasTileMatMul()) return;
  for (int64_t rows : {32, 40, 90}) {
    EXPECT_TRUE(RunsOnTiles(Layer(rows, 512, 128, "", false, kFloat32)));
    EXPECT_TRUE(RunsOnTiles(Layer(rows, 512, 128, "", true, kFloat32)));
  }
}

TEST(DNNLTileMatMul, Functions) {
  if (!HasTileMatMul()) return;
  // An error of 5e-7 of erf or tanh, times half of a sum of up to 30.
  constexpr double kError = 1e-5;
  const auto gelu = [](double x) { return x / 2 * (1 + std::erf(x * std::sqrt(.5))); };
  const auto gelu_tanh = [](double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.)) * (x + 0.044715 * x * x * x)));
  };
  const auto swish = [](double x) { return x / (1 + std::exp(-x)); };
  // Of large numbers, too.
  const auto layer = [](const char* unary) {
    Layer result(65, 512, 128, unary);
    result.bias[3] = -0x1p80F;
    result.bias[4] = 0x1p80F;
    return result;
  };
  EXPECT_TRUE(RunsOnTiles(layer("dnnl.gelu_erf"), gelu, kError));
  EXPECT_TRUE(RunsOnTiles(layer("dnnl.gelu_tanh"), gelu_tanh, kError));
  EXPECT_TRUE(RunsOnTiles(layer("dnnl.swish"), swish, kError));
}

TEST(DNNLTileMatMul, OthersRunOnOneDNN) {
  const auto runs_on_tiles = [](Layer layer) {
    const auto plan = layer.MakePlanOf();
    for (const Step& step : plan->steps) {
      if (step.info.variant == kVariant) return true;
    }
    return false;
  };
  // Few and many rows, columns and sums that are no whole panels, few weights.
  EXPECT_TRUE(!runs_on_tiles(Layer(31, 512, 128)));
  EXPECT_TRUE(!runs_on_tiles(Layer(1024, 512, 128)));
  EXPECT_TRUE(!runs_on_tiles(Layer(64, 512, 144)));
  EXPECT_TRUE(!runs_on_tiles(Layer(64, 528, 128)));
  EXPECT_TRUE(!runs_on_tiles(Layer(64, 64, 64)));
  // A function that the kernel lacks.
  EXPECT_TRUE(!runs_on_tiles(Layer(64, 512, 128, "tanh")));
}

}  // namespace dnnl_test::tile_matmul
