// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/layers_test.cc
 * \brief Graphs of equal layers, of which a call of a new size plans one.
 */
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/runtime/contrib/dnnl/core/exec/graph_runner.h"
#include "src/runtime/contrib/dnnl/core/exec/recorder.h"
#include "src/runtime/contrib/dnnl/core/node_reader.h"
#include "src/runtime/contrib/dnnl/core/plan/stages.h"
#include "tests/cpp-runtime/dnnl/core/open_graph.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::layers {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr int64_t kWidth = 64, kInner = 96;
constexpr int kLayers = 8;
// What comes before the layers and after them are stages, too.
constexpr size_t kStages = kLayers + 2;

struct Variant {
  /*! \brief Whether each layer has a factor of its own, whose value a post-op has. */
  bool has_factors{false};
  /*! \brief Whether all layers have the same weights. */
  bool shares_weights{false};
  /*! \brief Whether nodes that all layers share are among those of the first one. */
  bool has_shared_nodes{false};
  /*! \brief Whether weights have more than two dimensions, as those of convolutions. */
  bool has_kernels{false};
};

/*! \brief Layers of attention to a past, whose keys are also its values, and a perceptron. */
Graph LayersGraph(const Variant& variant = {}) {
  Builder b;
  const Shape rows = {1, kOpen, kWidth}, scores_shape = {1, kOpen, kOpen};
  Entry x = b.Input("x", rows);
  std::vector<Entry> pasts, caches;
  for (int i = 0; i < kLayers; ++i) pasts.push_back(b.Input("past " + std::to_string(i), rows));
  const Entry mask = variant.has_shared_nodes ? b.Input("mask", {1, 1, 1}) : Entry{};
  x = b.Add("tanh", {x}, rows);
  std::map<int, Entry> shared;
  Entry bias{};
  for (int layer = 0; layer < kLayers; ++layer) {
    int number = 0;
    const auto constant = [&](const Shape& shape) {
      ++number;
      const uint32_t seed = 16 * (variant.shares_weights ? 0 : layer) + number;
      if (!variant.shares_weights) return b.Constant(shape, seed, 0.2F);
      if (shared.count(number) == 0) shared[number] = b.Constant(shape, seed, 0.2F);
      return shared[number];
    };
    const auto dense = [&](Entry data, int64_t width, int64_t units) {
      return b.Add("nn.dense", {data, constant({units, width})}, {1, kOpen, units});
    };
    const auto scaled = [&](Entry data) {
      const Shape shape = variant.has_kernels ? Shape{1, 1, kWidth} : Shape{kWidth};
      return b.Add("multiply", {data, constant(shape)}, rows);
    };
    const Entry data = scaled(x);
    const Entry query = dense(data, kWidth, kWidth), key = dense(data, kWidth, kWidth);
    const Entry keys = b.Add("concatenate", {pasts[layer], key}, rows, {{"axis", "1"}});
    caches.push_back(keys);
    Entry scores = b.Add("nn.batch_matmul", {query, keys}, scores_shape, {{"transpose_b", "1"}});
    if (variant.has_shared_nodes) {
      if (layer == 0) bias = b.Add("exp", {b.Add("sigmoid", {mask}, {1, 1, 1})}, {1, 1, 1});
      scores = b.Add("add", {scores, bias}, scores_shape);
    }
    const Entry weights = b.Add("nn.softmax", {scores}, scores_shape, {{"axis", "-1"}});
    const Entry sums = b.Add("nn.batch_matmul", {weights, keys}, rows, {{"transpose_b", "0"}});
    x = b.Add("add", {x, dense(sums, kWidth, kWidth)}, rows);
    const Entry inner = b.Add("nn.relu", {dense(scaled(x), kWidth, kInner)}, {1, kOpen, kInner});
    Entry outer = dense(inner, kInner, kWidth);
    if (variant.has_factors) {
      outer =
          b.Add("dnnl.abs_multiply", {outer, b.Constant({}, 7 + layer)}, rows,
                {{"root_op", "abs"}, {"post_ops", Texts{"multiply"}}, {"post_ops.0.operand", "1"}});
    }
    x = b.Add("add", {x, outer}, rows);
  }
  b.Output(b.Add("nn.relu", {x}, rows));
  for (const Entry& cache : caches) b.Output(cache);
  return b.graph;
}

/*! \brief The sizes of a call: the rows of x, and the length of each past. */
std::vector<int64_t> Dims(int64_t rows, int64_t past) {
  std::vector<int64_t> dims(1 + kLayers, past);
  dims[0] = rows;
  return dims;
}

/*! \brief How many different plans the stages of a plan have. */
size_t CountPlans(const Plan& plan) {
  std::set<const ReadyPlan*> plans;
  for (const PlanStage& stage : plan.stages) plans.insert(stage.ready.get());
  return plans.size();
}

TEST(DNNLLayers, HaveOnePlan) {
  const Graph graph = LayersGraph();
  Planner planner;
  for (int64_t rows : {9, 2, 130, 9, 33}) {
    const auto plan = planner.PlanFor(graph, Dims(rows, 0));
    ASSERT_EQ(plan->stages.size(), kStages);
    EXPECT_EQ(CountPlans(*plan), 3u);
    EXPECT_TRUE(IsRight(graph, plan, Dims(rows, 0)));
  }
}

TEST(DNNLLayers, ShareThePackedWeightsOfEarlierSizes) {
  const Graph graph = LayersGraph();
  Planner planner;
  const auto first = planner.PlanFor(graph, Dims(5, 0));
  EXPECT_TRUE(first->constant_bytes > 0);
  const auto second = planner.PlanFor(graph, Dims(6, 0));
  EXPECT_EQ(second->constant_bytes, first->constant_bytes);
  const size_t unpacked = 2 * kWidth * sizeof(float) * (kLayers - 1);
  EXPECT_EQ(second->constant_bytes - second->constant_bytes_shared, unpacked);
}

TEST(DNNLLayers, MayHaveTheSameWeights) {
  Variant variant;
  variant.shares_weights = true;
  const Graph graph = LayersGraph(variant);
  const auto plan = Planner().PlanFor(graph, Dims(7, 3));
  ASSERT_EQ(plan->stages.size(), kStages);
  for (const PlanStage& stage : plan->stages) EXPECT_TRUE(stage.constants.empty());
  EXPECT_TRUE(IsRight(graph, plan, Dims(7, 3)));
}

TEST(DNNLLayers, MayHaveTheirSharedNodesInTheFirstOne) {
  Variant variant;
  variant.has_shared_nodes = true;
  const Graph graph = LayersGraph(variant);
  const auto plan = Planner().PlanFor(graph, Dims(7, 3));
  ASSERT_EQ(plan->stages.size(), kStages);
  EXPECT_EQ(CountPlans(*plan), 3u);
  EXPECT_TRUE(IsRight(graph, plan, Dims(7, 3)));
}

TEST(DNNLLayers, OfOtherSizesHaveOwnPlans) {
  const Graph graph = LayersGraph();
  Planner planner;
  std::vector<int64_t> dims = Dims(4, 5);
  dims[3] = 8;
  dims[5] = 0;
  const auto plan = planner.PlanFor(graph, dims);
  EXPECT_EQ(CountPlans(*plan), 5u);
  EXPECT_TRUE(IsRight(graph, plan, dims));
  EXPECT_TRUE(IsRight(graph, planner.PlanFor(graph, Dims(4, 5)), Dims(4, 5)));
}

TEST(DNNLLayers, StayWholeWhereAValueDecides) {
  Variant factors, kernels;
  factors.has_factors = true;
  kernels.has_kernels = true;
  for (const Variant& variant : {factors, kernels}) {
    const Graph graph = LayersGraph(variant);
    Planner planner;
    for (int64_t rows : {6, 7}) {
      const auto plan = planner.PlanFor(graph, Dims(rows, 2));
      EXPECT_TRUE(plan->stages.empty());
      EXPECT_TRUE(IsRight(graph, plan, Dims(rows, 2)));
    }
  }
}

TEST(DNNLLayers, ThatAreTooFewStayWhole) {
  Graph graph = LayersGraph();
  graph.nodes.resize(graph.nodes.size() / 2);
  const Node& last = graph.nodes.back();
  graph.outputs = {{{last.id, 0}, {"output 0", last.outputs[0]}}};
  EXPECT_TRUE(DivideByLayers(graph).stages.empty());
  EXPECT_TRUE(DivideByLayers(Graph()).stages.empty());
}

TEST(DNNLLayers, OfOneRowAreDividedBySizes) {
  const Graph graph = LayersGraph();
  Planner planner;
  planner.PlanFor(graph, Dims(6, 0));
  for (int64_t past = 6; past < 12; ++past) {
    const auto plan = planner.PlanFor(graph, Dims(1, past));
    EXPECT_TRUE(plan->stages.size() == kStages || past > 6);
    EXPECT_TRUE(IsRight(graph, plan, Dims(1, past)));
  }
  EXPECT_EQ(planner.PlanFor(graph, Dims(8, 0))->stages.size(), kStages);
}

TEST(DNNLLayers, AreUsableAfterASizeThatFails) {
  const Graph graph = LayersGraph();
  Planner planner;
  for (int64_t rows : {5, 6}) {
    // The scores of so many rows exceed the limit of elements.
    EXPECT_THROWS(planner.PlanFor(graph, Dims(int64_t{1} << 20, 0)), "main, node", "batch_matmul");
    EXPECT_THROWS(planner.PlanFor(graph, Dims(0, rows)), "size zero");
    EXPECT_TRUE(IsRight(graph, planner.PlanFor(graph, Dims(rows, 0)), Dims(rows, 0)));
  }
}

TEST(DNNLLayers, RunConcurrently) {
  const auto dims_of = [](int thread, int i) { return Dims(1 + (i + thread) % 3 * 17, i % 2 * 5); };
  EXPECT_TRUE(RunsRightConcurrently(LayersGraph(), /*max_plans=*/2, /*runs=*/8, dims_of));
}

TEST(DNNLLayers, AreDescribed) {
  const Graph graph = LayersGraph();
  GraphRunner runner("main", PlanCacheLimits());
  runner.Init(graph);
  EXPECT_TRUE(RunsRight(graph, &runner, Dims(9, 0), 1));
  const std::string text = runner.Describe();
  EXPECT_TRUE(text.find("\"stages\": " + std::to_string(kStages)) != std::string::npos);
  const std::string measured = runner.Measure("profile_primitives", 1, false);
  EXPECT_TRUE(measured.find("inner_product") != std::string::npos);
  auto recorder = std::make_shared<Recorder>();
  {
    const Recorder::Watch watch(recorder);
    EXPECT_TRUE(RunsRight(graph, &runner, Dims(9, 0), 1));
  }
  std::set<std::string> recorded;
  for (const RecordedStep& step : recorder->Since(0)) recorded.insert(step.caller);
  for (const Node& node : graph.nodes) {
    if (node.name == "concatenate" || node.id == 0) continue;
    // Layers share a plan, and have their own names.
    const std::string name = NodeReader(node, graph.symbol).Where();
    EXPECT_TRUE(text.find('"' + name + '"') != std::string::npos);
    EXPECT_TRUE(measured.find('"' + name + '"') != std::string::npos);
  }
  EXPECT_TRUE(recorded.size() > kLayers);
}

}  // namespace dnnl_test::layers
