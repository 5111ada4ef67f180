// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/few_elements_test.cc
 * \brief Kernels of ours in place of primitives that would take longer to call than to run.
 */
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/cpp-runtime/dnnl/core/open_graph.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::few_elements {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr int64_t kWidth = 64, kHalf = kWidth / 2;

/*! \brief A rotary embedding, whose halves are views, and a swish that is multiplied. */
Graph RotaryGraph() {
  Builder b;
  const Shape rows = {1, kOpen, kWidth}, half = {1, kOpen, kHalf};
  const Entry x = b.Input("x", rows), cosines = b.Input("cosines", rows);
  const auto part = [&](const std::string& begin, const std::string& end) {
    return b.Add("strided_slice", {x}, half,
                 {{"axes", Texts{"2"}},
                  {"begin", Texts{begin}},
                  {"end", Texts{end}},
                  {"strides", Texts{"1"}}});
  };
  const Entry lower = part("0", "32"), upper = part("32", "64");
  const Entry negated = b.Add("negative", {upper}, half);
  const Entry turned = b.Add("concatenate", {negated, lower}, rows, {{"axis", "2"}});
  const Entry sum =
      b.Add("dnnl.multiply_add", {x, cosines, turned}, rows,
            {{"root_op", "multiply"}, {"post_ops", Texts{"add"}}, {"post_ops.0.operand", "2"}});
  b.Output(b.Add("dnnl.swish_multiply", {sum, x}, rows,
                 {{"root_op", "dnnl.swish"},
                  {"alpha", "1.5"},
                  {"beta", "0"},
                  {"post_ops", Texts{"multiply"}},
                  {"post_ops.0.operand", "1"}}));
  return b.graph;
}

/*! \brief How many steps are kernels of ours. */
size_t NumKernels(const Plan& plan) {
  return std::count_if(plan.steps.begin(), plan.steps.end(),
                       [](const Step& step) { return step.info.impl == "tvm:any"; });
}

/*! \brief The plan of a graph of which plans of other shapes are expected. */
std::shared_ptr<const Plan> OpenPlan(Graph graph, const std::vector<int64_t>& dims) {
  graph.has_other_shapes = true;
  return MakePlanFor(graph, dims);
}

TEST(DNNLFewElements, AreComputedByKernels) {
  const Graph graph = RotaryGraph();
  for (int64_t rows : {1, 3, 64}) {
    const auto plan = OpenPlan(graph, {rows, rows});
    // Negation, concatenation, product, sum, swish, product: views are read where they are.
    EXPECT_EQ(plan->steps.size(), size_t{6});
    EXPECT_EQ(NumKernels(*plan), size_t{6});
    EXPECT_TRUE(IsRight(graph, plan, {rows, rows}));
  }
}

TEST(DNNLFewElements, MoreElementsAndFixedGraphsHavePrimitives) {
  const Graph graph = RotaryGraph();
  EXPECT_EQ(NumKernels(*OpenPlan(graph, {129, 129})), size_t{0});
  EXPECT_EQ(NumKernels(*MakePlanFor(graph, {1, 1})), size_t{0});
}

TEST(DNNLFewElements, ConcatenatesWhatLiesApart) {
  for (const char* axis : {"0", "1", "2"}) {
    Builder b;
    const int at = axis[0] - '0';
    Shape dims = {2, 3, kOpen};
    const Entry x = b.Input("x", {3, kOpen, 2}), y = b.Input("y", {2, 3, kOpen});
    // Its elements along the last axis are not neighbors.
    const Entry turned = b.Add("transpose", {x}, {2, 3, kOpen}, {{"axes", Texts{"2", "0", "1"}}});
    if (dims[at] != kOpen) dims[at] *= 2;
    b.Output(b.Add("concatenate", {turned, y}, dims, {{"axis", axis}}));
    for (int64_t size : {1, 5}) {
      const auto plan = OpenPlan(b.graph, {size, size});
      EXPECT_EQ(NumKernels(*plan), plan->steps.size());
      EXPECT_TRUE(IsRight(b.graph, plan, {size, size}));
    }
  }
}

TEST(DNNLFewElements, SwishHasItsLimits) {
  Builder b;
  b.Output(b.Add("dnnl.swish", {b.Input("x", {kOpen})}, {kOpen}, {{"alpha", "1"}, {"beta", "0"}}));
  const auto plan = OpenPlan(b.graph, {6});
  EXPECT_EQ(NumKernels(*plan), size_t{1});
  std::vector<float> x = {0.F, 1e-30F, 100.F, -100.F, 1e30F, std::nanf("")}, y(x.size());
  Context(plan).Run({x.data(), y.data()}, nullptr);
  EXPECT_EQ(y[0], 0.F);
  EXPECT_EQ(y[1], 5e-31F);
  EXPECT_EQ(y[2], 100.F);
  EXPECT_TRUE(y[3] <= 0.F && y[3] > -1e-30F);
  EXPECT_EQ(y[4], 1e30F);
  EXPECT_TRUE(std::isnan(y[5]));
}

}  // namespace dnnl_test::few_elements
