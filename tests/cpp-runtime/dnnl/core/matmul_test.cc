// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/matmul_test.cc
 * \brief Which of oneDNN's primitives multiplies rows by a constant matrix.
 */
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/exec/threads.h"
#include "src/runtime/contrib/dnnl/core/flat_attrs.h"
#include "src/runtime/contrib/dnnl/core/implementation.h"
#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::matmul {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr int64_t kRows = 37, kSummed = 64, kColumns = 48;

using Shape = std::vector<int64_t>;

TensorType Floats(Shape shape) { return {std::move(shape), {kDLFloat, 32, 1}}; }

/*! \brief Rows by one constant matrix, (columns, summed) or, not transposed, the other way. */
Graph MatMulGraph(const std::string& op, bool transpose_b, int64_t rows = kRows) {
  static std::vector<float> weights;
  weights.clear();
  for (int64_t n = 0; n < kColumns; ++n) {
    for (int64_t k = 0; k < kSummed; ++k) weights.push_back(static_cast<float>(n - k % 5));
  }
  if (!transpose_b) {
    std::vector<float> other(weights.size());
    for (int64_t i = 0; i < kColumns * kSummed; ++i) {
      other[i % kSummed * kColumns + i / kSummed] = weights[i];
    }
    weights = other;
  }
  const bool is_batch = op == "nn.batch_matmul";
  const auto shape = [is_batch](int64_t m, int64_t n) {
    return Floats(is_batch ? std::vector<int64_t>{1, m, n} : std::vector<int64_t>{m, n});
  };
  Graph graph;
  graph.symbol = graph.name = "main";
  graph.inputs = {{{0, 0}, {"input data", shape(rows, kSummed)}}};
  const TensorType matrix = transpose_b ? shape(kColumns, kSummed) : shape(kSummed, kColumns);
  graph.constants = {{{{1, 0}, {"weights", matrix}}, {weights.data(), [](void*) {}}}};
  Node node{2, op, {}, {{0, 0}, {1, 0}}, {shape(rows, kColumns)}};
  if (op != "nn.dense") node.attrs["transpose_b"] = transpose_b ? "1" : "0";
  graph.nodes = {node};
  graph.outputs = {{{2, 0}, {"output 0", shape(rows, kColumns)}}};
  return graph;
}

/*! \brief The kind of the primitive that multiplies, whose numbers are right. */
std::string KindOf(const Graph& graph) {
  const auto plan = MakePlan(graph);
  const std::vector<int64_t> shape = graph.outputs[0].argument.type.shape;
  const int64_t rows = shape[shape.size() - 2];
  std::vector<float> data, result(rows * kColumns);
  for (int64_t i = 0; i < rows * kSummed; ++i) data.push_back(static_cast<float>(i % 7 - 3));
  Context(plan).Run({data.data(), result.data()}, nullptr);
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < kColumns; ++n) {
      float expected = 0;
      for (int64_t k = 0; k < kSummed; ++k) {
        expected += data[m * kSummed + k] * static_cast<float>(n - k % 5);
      }
      // Sums of small integers are exact.
      if (!EXPECT_EQ(result[m * kColumns + n], expected)) return "wrong";
    }
  }
  std::string kind = "none";
  for (const Step& step : plan->steps) {
    if (step.info.kind != "reorder") kind = step.info.kind;
  }
  return kind;
}

/*! \brief What is to multiply many rows: the primitive that oneDNN has blocked code for. */
std::string BlockedKind() {
  using dnnl::memory;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto any = memory::format_tag::any;
  const auto type = memory::data_type::f32;
  const dnnl::matmul::primitive_desc matmul(
      engine, {{kRows, kSummed}, type, memory::format_tag::ab}, {{kSummed, kColumns}, type, any},
      {{kRows, kColumns}, type, any});
  if (IsBlockGemm(matmul)) return "matmul";
  const dnnl::convolution_forward::primitive_desc conv(
      engine, dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      {{1, kSummed, kRows, 1}, type, memory::format_tag::nhwc},
      {{kColumns, kSummed, 1, 1}, type, any},
      {{1, kColumns, kRows, 1}, type, memory::format_tag::nhwc}, {1, 1}, {0, 0}, {0, 0});
  return IsBlockGemm(conv) ? "convolution" : "matmul";
}

TEST(DNNLMatMul, OfRowsIsThePrimitiveWithBlockedCode) {
  const std::string blocked = BlockedKind();
  for (bool transpose_b : {false, true}) {
    EXPECT_EQ(KindOf(MatMulGraph("nn.matmul", transpose_b)), blocked);
    EXPECT_EQ(KindOf(MatMulGraph("nn.batch_matmul", transpose_b)), blocked);
  }
  EXPECT_EQ(KindOf(MatMulGraph("nn.dense", true, 81)), blocked);
  EXPECT_EQ(KindOf(MatMulGraph("nn.dense", true, 80)), "inner_product");
}

TEST(DNNLMatMul, OfManyRowsIsNotForALargerCacheThanThatOfTheCpu) {
  const auto plan = MakePlan(MatMulGraph("nn.dense", true, 128));
  for (const Step& step : plan->steps) EXPECT_TRUE(step.info.impl != "brgconv_1x1:avx2");
}

/*! \brief Small integers, whose sums of products are exact. */
std::vector<float> SmallNumbers(const Shape& shape, int64_t modulus) {
  std::vector<float> values(NumElements(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % modulus) - 3;
  return values;
}

TEST(DNNLMatMul, OfTransposedDataIsAMatMul) {
  Graph graph = MatMulGraph("nn.matmul", true, kSummed);
  graph.nodes[0].attrs["transpose_a"] = "1";
  const auto plan = MakePlan(graph);
  for (const Step& step : plan->steps) EXPECT_TRUE(step.info.kind != "convolution");
}

TEST(DNNLMatMul, WithAnOperandThatIsNoRowIsAMatMul) {
  static std::vector<float> zeros(kRows, 0.f);
  Graph graph = MatMulGraph("nn.batch_matmul", true);
  graph.constants.push_back(
      {{{3, 0}, {"summand", Floats({1, kRows, 1})}}, {zeros.data(), [](void*) {}}});
  Node& node = graph.nodes[0];
  node.name = "dnnl.batch_matmul_add";
  node.inputs.push_back({3, 0});
  node.attrs["root_op"] = "nn.batch_matmul";
  node.attrs["post_ops"] = std::vector<std::string>{"add"};
  node.attrs["post_ops.0.operand"] = "2";
  NestAttrs(&node.attrs);
  EXPECT_EQ(KindOf(graph), "matmul");
}

/*! \brief oneDNN 3.2.0 on AVX-512 mixes up partial sums of matrices if there are more threads. */
TEST(DNNLMatMul, LongSumsOfTransposedBatches) {
  constexpr int64_t kBatch = 2, kLong = 4096, kSize = 16;
  std::vector<float> src = SmallNumbers({kBatch, kLong, kSize}, 7),
                     weights = SmallNumbers({kBatch, kLong, kSize}, 5),
                     result(kBatch * kSize * kSize);
  Graph graph;
  graph.symbol = graph.name = "main";
  graph.inputs = {{{0, 0}, {"input 0", Floats({kBatch, kLong, kSize})}},
                  {{1, 0}, {"input 1", Floats({kBatch, kLong, kSize})}}};
  const TensorType type = Floats({kBatch, kSize, kSize});
  Node node{2, "nn.batch_matmul", {}, {{0, 0}, {1, 0}}, {type}};
  node.attrs["transpose_a"] = "1";
  node.attrs["transpose_b"] = "0";
  graph.nodes = {node};
  graph.outputs = {{{2, 0}, {"output 0", type}}};
  SetNumThreads(4);
  Context(MakePlan(graph)).Run({src.data(), weights.data(), result.data()}, nullptr);
  SetNumThreads(0);
  for (int64_t i = 0; i < static_cast<int64_t>(result.size()); ++i) {
    const int64_t b = i / (kSize * kSize), m = i / kSize % kSize, n = i % kSize;
    float expected = 0;
    for (int64_t k = b * kLong; k < (b + 1) * kLong; ++k) {
      expected += src[k * kSize + m] * weights[k * kSize + n];
    }
    // Sums of small integers are exact.
    if (!EXPECT_EQ(result[i], expected)) return;
  }
}

}  // namespace dnnl_test::matmul
