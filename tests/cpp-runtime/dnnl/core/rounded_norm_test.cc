// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/rounded_norm_test.cc
 * \brief Normalizations of float32 that write bfloat16, as the cast after them would.
 */
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "tests/cpp-runtime/dnnl/core/open_graph.h"
#include "tests/cpp-runtime/harness/bfloat16.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::rounded_norm {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr DLDataType kBFloat16{kDLBfloat, 16, 1};
constexpr int64_t kRows = 5, kColumns = 150;

/*! \brief A normalization, what it returns in float32 if `is_read_twice`, and rounded. */
Graph NormGraph(const std::string& op, bool is_read_twice) {
  Builder b;
  const Shape shape = {kRows, kColumns};
  std::vector<Entry> inputs = {b.Input("x", shape), b.Constant({kColumns}, 3)};
  if (op == "nn.layer_norm") inputs.push_back(b.Constant({kColumns}, 4));
  const Entry norm = b.Add(op, inputs, shape, {{"axis", "-1"}, {"epsilon", "0.01"}});
  const Entry rounded = b.Add("cast", {norm}, shape, {{"dtype", "bfloat16"}});
  b.graph.nodes.back().outputs[0].dtype = kBFloat16;
  b.Output(rounded);
  if (is_read_twice) b.Output(norm);
  return b.graph;
}

/*! \brief The number in float32, and of the same bytes the first one in bfloat16. */
float Widened(const std::vector<float>& values, size_t index) {
  uint16_t half;
  std::memcpy(&half, reinterpret_cast<const char*>(values.data()) + 2 * index, sizeof(half));
  return FromBFloat16(half);
}

/*! \brief Whether the elements of the first output are those of the second one, rounded. */
bool IsRounded(const std::vector<float>& rounded, const std::vector<float>& exact) {
  for (size_t i = 0; i < exact.size(); ++i) {
    // Half a unit in the last place of 8 bits, and the primitives' own difference.
    if (!(std::abs(Widened(rounded, i) - exact[i]) <= std::abs(exact[i]) / 256 + 1e-6F)) {
      return false;
    }
  }
  return true;
}

void ExpectOneStep(const std::string& op, const std::string& types) {
  const auto plan = MakePlan(NormGraph(op, false)), both = MakePlan(NormGraph(op, true));
  EXPECT_EQ(plan->steps.size(), size_t{1});
  EXPECT_EQ(plan->steps[0].info.op, op);
  EXPECT_EQ(plan->steps[0].info.types, types);
  EXPECT_EQ(both->steps.size(), size_t{2});
  const auto rounded = Call(*plan, 1, 7).Run(plan), exact = Call(*both, 1, 7).Run(both);
  EXPECT_TRUE(IsRounded(rounded[1], exact[2]));
  EXPECT_TRUE(IsRounded(exact[1], exact[2]));
}

TEST(DNNLRoundedNorm, LayerNorm) { ExpectOneStep("nn.layer_norm", "f32bf16"); }

/*! \brief Data in bfloat16 are read as they are, too. */
TEST(DNNLRoundedNorm, OfBFloat16IsOneStep) {
  for (const char* op : {"nn.layer_norm", "dnnl.rms_norm"}) {
    Graph graph = NormGraph(op, true);
    graph.nodes.erase(graph.nodes.begin() + 1);
    graph.outputs.erase(graph.outputs.begin());
    graph.outputs[0].argument.name = "output 0";
    for (auto& input : graph.inputs) input.argument.type.dtype = kBFloat16;
    for (auto& constant : graph.constants) constant.edge.argument.type.dtype = kBFloat16;
    graph.nodes[0].outputs[0].dtype = graph.outputs[0].argument.type.dtype = kBFloat16;
    const auto plan = MakePlan(graph);
    EXPECT_EQ(plan->steps.size(), size_t{1});
    EXPECT_EQ(plan->steps[0].info.types, "bf16bf16");
  }
}

TEST(DNNLRoundedNorm, RMSNorm) { ExpectOneStep("dnnl.rms_norm", "f32bf16"); }

}  // namespace dnnl_test::rounded_norm
