// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/recurrent_variants_test.cc
 * \brief Layers with sequence lengths, bfloat16 and int8 weights, and steps divided among threads.
 */
#include <string>
#include <vector>

#include "src/runtime/contrib/dnnl/core/exec/threads.h"
#include "src/runtime/contrib/dnnl/core/infer.h"
#include "tests/cpp-runtime/dnnl/core/recurrent_layer.h"

namespace dnnl_test::recurrent_variants {

TEST(DNNLRecurrentVariants, LengthsHoldTheStates) {
  const std::vector<std::vector<int32_t>> lengths = {{4, 0, 2}, {1, 4, 4}, {0, 0, 0}, {3, 9, 1}};
  for (const auto& [name, is_variant] : kCells) {
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      for (int bits = 0; bits < 4; ++bits) {
        for (const std::vector<int32_t>& each : lengths) {
          Check({name, is_variant, direction, (bits & 1) != 0, (bits & 2) != 0, 4, 3, 7, 21, each});
        }
      }
    }
  }
}

TEST(DNNLRecurrentVariants, PaddingIsNotRead) {
  Layer l{"dnnl.lstm", false, "bidirectional", false, true, 4, 2, 5, 17, {4, 2}};
  std::vector<Values> operands = Draw(l);
  for (int64_t step : {2, 3}) {
    operands[0][(step * 2 + 1) * l.inputs] = std::numeric_limits<float>::quiet_NaN();
  }
  const auto plan = MakePlan(LayerGraph(l, &operands));
  EXPECT_TRUE(ErrorOf(l, RunPlan(l, plan, &operands), operands) < kTolerance);
}

TEST(DNNLRecurrentVariants, WeightsInBFloat16) {
  for (const auto& [name, is_variant] : kCells) {
    for (int64_t batch : {1, 3, 9}) {
      Check({name, is_variant, "bidirectional", false, true, 5, batch, 13, 37, {}, 2});
    }
    Check({name, is_variant, "reverse", true, false, 3, 2, 64, 80, {2, 3}, 2});
    CheckNaN({name, is_variant, "forward", false, true, 4, 1, 5, 17, {}, 2});
  }
}

/*! \brief Rows in [-1.5, 1.5] are rounded to 255 steps, which weights of 1 / sqrt(size) average. */
constexpr double kInt8Tolerance = 0.02;

TEST(DNNLRecurrentVariants, WeightsInInt8) {
  for (bool is_batch_first : {false, true}) {
    for (const char* direction : {"forward", "bidirectional"}) {
      for (int64_t batch : {1, 2, 7}) {
        Check({"dnnl.lstm", false, direction, is_batch_first, true, 6, batch, 118, 165, {}, 1},
              kInt8Tolerance);
      }
    }
  }
  Check({"dnnl.lstm", false, "reverse", false, false, 40, 1, 40, 192, {}, 1}, kInt8Tolerance);
  Check({"dnnl.lstm", false, "reverse", false, false, 3, 2, 40, 192, {1, 3}, 1}, kInt8Tolerance);
  CheckNaN({"dnnl.lstm", false, "forward", false, true, 4, 1, 40, 192, {}, 1});
  // Few weights are dequantized.
  Check({"dnnl.lstm", false, "bidirectional", false, true, 5, 2, 13, 37, {}, 1});
}

TEST(DNNLRecurrentVariants, Int8RunsOnVNNI) {
  const Layer l{"dnnl.lstm", false, "forward", false, false, 2, 1, 40, 192, {}, 1};
  std::vector<Values> operands = Draw(l);
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto vnni = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_vnni);
  const std::string variant = MakePlan(LayerGraph(l, &operands))->steps.back().info.variant;
  EXPECT_EQ(variant == "rows quantized", (isa & vnni) == vnni);
}

/*! \brief Threads that compute panels of one sequence get what one thread gets, bit by bit. */
TEST(DNNLRecurrentVariants, StepsDividedAmongThreads) {
  for (const auto& [name, is_variant] : kCells) {
    for (int bytes : {4, 2, 1}) {
      if (bytes == 1 && name != "dnnl.lstm") continue;
      for (const char* direction : {"forward", "bidirectional"}) {
        for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{}, {3}}) {
          const Layer l{name, is_variant, direction, false, true, 5, 1, 24, 300, lengths, bytes};
          std::vector<Values> operands = Draw(l), results[2];
          for (int i = 0; i < 2; ++i) {
            SetNumThreads(i == 0 ? 1 : 5);
            results[i] = RunPlan(l, MakePlan(LayerGraph(l, &operands)), &operands);
          }
          if (!EXPECT_TRUE(results[0] == results[1])) std::cerr << l.Text() << std::endl;
        }
      }
    }
  }
  SetNumThreads(0);
}

TEST(DNNLRecurrentVariants, Refusals) {
  const auto infer = [](const ValidOp& op) { Infer(GraphOf(op), InputShapes(GraphOf(op))); };
  ValidOp op = Valid("dnnl.lstm");
  op.attrs["has_lengths"] = {"1"};
  EXPECT_THROWS(infer(op), "node 9 dnnl.lstm: has 6 inputs", "has_lengths is 1, which makes it 7");
  op.inputs.push_back(Float32({2}));
  EXPECT_THROWS(infer(op), "input 6, the lengths, is float32 [2], expected: int32");
  op.inputs[6] = {{3}, {kDLInt, 32, 1}};
  EXPECT_THROWS(infer(op), "input 6, the lengths, is int32 [3], expected: shape [2]");
  op = Valid("dnnl.lstm");
  for (int i : {1, 2}) op.inputs[i].dtype = {kDLInt, 8, 1};
  EXPECT_THROWS(infer(op), "has 6 inputs", "the weight is int8, which makes it 10");
  for (int i = 0; i < 2; ++i) {
    op.inputs.push_back(Float32({2, 20}));
    op.inputs.push_back({{2, 20}, {kDLInt, 32, 1}});
  }
  infer(op);
  op.inputs[9].shape = {2, 5};
  EXPECT_THROWS(infer(op), "input 9, the recurrent weight's zero point, is int32 [2, 5]",
                "expected: shape [2, 20]");
  op = Valid("dnnl.gru");
  for (int i : {1, 2}) op.inputs[i].dtype = {kDLInt, 8, 1};
  EXPECT_THROWS(infer(op), "node 9 dnnl.gru: input 1, the weight, is int8");
}

}  // namespace dnnl_test::recurrent_variants
