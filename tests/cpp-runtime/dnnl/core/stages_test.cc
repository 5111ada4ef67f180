// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/stages_test.cc
 * \brief Calls of a decoder, in which the length of the past changes and nothing else.
 */
#include "src/runtime/contrib/dnnl/core/plan/stages.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/exec/graph_runner.h"
#include "src/runtime/contrib/dnnl/core/plan/reserve.h"
#include "tests/cpp-runtime/dnnl/core/open_graph.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::stages {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr int64_t kHidden = 64, kGroups = 2, kHeads = 4, kSize = 16;

/*!
 * \brief Two layers of attention to a past, whose keys are also its values.
 * \param has_mask Whether a bias of each position is added to the scores.
 */
Graph DecoderGraph(bool has_mask = false, int64_t tokens = 1) {
  Builder b;
  const int64_t batch = kOpen;
  Entry x = b.Input("x", {batch, tokens, kHidden});
  const Entry pasts[] = {b.Input("past 0", {batch, kGroups, kOpen, kSize}),
                         b.Input("past 1", {batch, kGroups, kOpen, kSize})};
  const Entry mask = has_mask ? b.Input("mask", {1, 1, 1, kOpen}) : Entry{0, 0};
  std::vector<Entry> caches;
  for (int layer = 0; layer < 2; ++layer) {
    const int64_t rows = kHeads / kGroups * tokens;
    const Entry q = b.Add("nn.dense", {x, b.Constant({kHidden, kHidden}, 3 + layer, 0.2F)},
                          {batch, tokens, kHidden});
    const Entry queries = b.Add("reshape", {q}, {batch, kGroups, rows, kSize},
                                {{"newshape", Texts{"0", "2", std::to_string(rows), "16"}}});
    const Entry k = b.Add("nn.dense", {x, b.Constant({kGroups * kSize, kHidden}, 7 + layer, 0.2F)},
                          {batch, tokens, kGroups * kSize});
    const Entry key = b.Add("reshape", {k}, {batch, kGroups, tokens, kSize},
                            {{"newshape", Texts{"0", "2", std::to_string(tokens), "16"}}});
    const Entry keys =
        b.Add("concatenate", {pasts[layer], key}, {batch, kGroups, kOpen, kSize}, {{"axis", "2"}});
    caches.push_back(keys);
    const Entry factor = b.Constant({}, 11, 0.5F);
    Entry scores =
        b.Add("dnnl.batch_matmul_multiply", {queries, keys, factor}, {batch, kGroups, rows, kOpen},
              {{"root_op", "nn.batch_matmul"},
               {"transpose_b", "1"},
               {"post_ops", Texts{"multiply"}},
               {"post_ops.0.operand", "2"}});
    if (has_mask) scores = b.Add("add", {scores, mask}, {batch, kGroups, rows, kOpen});
    const Entry weights =
        b.Add("nn.softmax", {scores}, {batch, kGroups, rows, kOpen}, {{"axis", "-1"}});
    const Entry sums = b.Add("nn.batch_matmul", {weights, keys}, {batch, kGroups, rows, kSize},
                             {{"transpose_b", "0"}});
    const Entry heads = b.Add("reshape", {sums}, {batch, tokens, kHidden},
                              {{"newshape", Texts{"0", std::to_string(tokens), "64"}}});
    x = b.Add("nn.dense", {heads, b.Constant({kHidden, kHidden}, 13 + layer, 0.2F)},
              {batch, tokens, kHidden});
  }
  b.Output(x);
  for (const Entry& cache : caches) b.Output(cache);
  return b.graph;
}

/*! \brief The sizes of a call: of x, and the batch and the length of each past; the mask's. */
std::vector<int64_t> Dims(int64_t batch, int64_t past, bool has_mask = false) {
  std::vector<int64_t> dims = {batch, batch, past, batch, past};
  if (has_mask) dims.push_back(past + 1);
  return dims;
}

/*! \brief The primitives that only this plan has, and all others. */
std::pair<int, int> CountPrimitives(const Plan& plan) {
  int own = 0, shared = 0;
  for (const PlanStage& stage : plan.stages) {
    for (const Step& step : stage.ready->plan->steps) {
      if (step.primitive) ++(stage.is_shared ? shared : own);
    }
  }
  return {own, shared};
}

TEST(DNNLStages, HaveNoPrimitivesOfALength) {
  const Graph graph = DecoderGraph();
  Planner planner;
  EXPECT_TRUE(planner.PlanFor(graph, Dims(1, 5))->stages.empty());
  const auto first = planner.PlanFor(graph, Dims(1, 6));
  // Queries and keys; a cache and an attention; the next layer, likewise; the result.
  ASSERT_EQ(first->stages.size(), 5u);
  for (int64_t past : {6, 7, 40, 1, 300}) {
    const auto plan = planner.PlanFor(graph, Dims(1, past));
    ASSERT_EQ(plan->stages.size(), 5u);
    EXPECT_EQ(CountPrimitives(*plan).first, 0);
    EXPECT_TRUE(CountPrimitives(*plan).second >= 6);
    for (size_t i = 0; i < plan->stages.size(); i += 2) {
      EXPECT_TRUE(plan->stages[i].ready == first->stages[i].ready);
    }
    EXPECT_TRUE(IsRight(graph, plan, Dims(1, past)));
  }
}

TEST(DNNLStages, OfAMask) {
  const Graph graph = DecoderGraph(/*has_mask=*/true);
  Planner planner;
  planner.PlanFor(graph, Dims(1, 5, true));
  for (int64_t past : {6, 1, 77}) {
    const auto plan = planner.PlanFor(graph, Dims(1, past, true));
    EXPECT_EQ(plan->stages.size(), 5u);
    EXPECT_EQ(CountPrimitives(*plan).first, 0);
    EXPECT_TRUE(IsRight(graph, plan, Dims(1, past, true)));
  }
}

TEST(DNNLStages, OfAnEmptyPast) {
  const Graph graph = DecoderGraph();
  Planner planner;
  for (int64_t past : {0, 1, 0, 2, 0}) {
    EXPECT_TRUE(IsRight(graph, planner.PlanFor(graph, Dims(1, past)), Dims(1, past)));
  }
}

TEST(DNNLStages, OfManyRowsHavePrimitives) {
  const Graph graph = DecoderGraph(/*has_mask=*/false, /*tokens=*/40);
  Planner planner;
  planner.PlanFor(graph, Dims(1, 5));
  const auto plan = planner.PlanFor(graph, Dims(1, 6));
  EXPECT_EQ(plan->stages.size(), 5u);
  EXPECT_TRUE(CountPrimitives(*plan).first > 0);
  EXPECT_TRUE(IsRight(graph, plan, Dims(1, 6)));
}

/*! \brief The items of a cache of so many rows, with room for more between them. */
std::vector<float> WithRoom(const std::vector<float>& cache, int64_t items, int64_t rows) {
  const int64_t room = ReservedSize(rows) * kSize;
  std::vector<float> result(items * room, std::numeric_limits<float>::quiet_NaN());
  for (int64_t i = 0; i < items; ++i) {
    std::copy_n(cache.begin() + i * rows * kSize, rows * kSize, result.begin() + i * room);
  }
  return result;
}

/*! \brief The same without room. */
std::vector<float> Dense(const std::vector<float>& cache, int64_t items, int64_t rows) {
  std::vector<float> result;
  for (int64_t i = 0; i < items; ++i) {
    const auto begin = cache.begin() + i * ReservedSize(rows) * kSize;
    result.insert(result.end(), begin, begin + rows * kSize);
  }
  return result;
}

TEST(DNNLStages, AppendInPlace) {
  for (int64_t tokens : {1, 40}) {
    const Graph graph = DecoderGraph(/*has_mask=*/false, tokens);
    Graph reserved = graph;
    EXPECT_TRUE(ReserveForAppends(&reserved) == std::vector<int>({-1, 1, 2}));
    Planner planner;
    int num_in_place = 0;
    for (int64_t batch : {1, 3}) {
      const int64_t items = batch * kGroups;
      // There is room for 64 rows; after that some calls copy the past.
      for (int64_t past : {5, 6, 0, 20, 63, 64, 65, 500, 530}) {
        const auto dims = Dims(batch, past);
        const auto single = MakePlanFor(graph, dims);
        Call call(*single, graph.inputs.size(), past);
        const auto expected = Call(call).Run(single);
        const int64_t total = past + tokens;
        const bool is_in_place = ReservedSize(past) == ReservedSize(total);
        num_in_place += is_in_place;
        std::vector<std::vector<float>> values = call.values;
        for (int i : {1, 2}) {
          values[i] = WithRoom(call.values[i], items, past);
          values[3 + i].resize(items * ReservedSize(total) * kSize);
        }
        std::vector<void*> addresses;
        for (std::vector<float>& value : values) addresses.push_back(value.data());
        for (int i : {1, 2}) addresses[3 + i] = is_in_place ? addresses[i] : addresses[3 + i];
        Context(planner.PlanFor(reserved, dims)).Run(addresses, nullptr);
        std::vector<std::vector<float>> got = {values[3]};
        for (int i : {1, 2}) {
          got.push_back(Dense(is_in_place ? values[i] : values[3 + i], items, total));
        }
        EXPECT_TRUE(IsNear(got, {expected[3], expected[4], expected[5]}));
      }
    }
    EXPECT_TRUE(num_in_place > 4);
  }
}

TEST(DNNLStages, ReserveNothingForWhatIsReadTwice) {
  Builder b;
  const Entry past = b.Input("past", {1, kGroups, kOpen, kSize});
  const Entry added = b.Input("new", {1, kGroups, 1, kSize});
  const Shape shape = {1, kGroups, kOpen, kSize};
  const Entry keys = b.Add("concatenate", {past, added}, shape, {{"axis", "2"}});
  b.Output(keys);
  Graph twice = b.graph;
  EXPECT_TRUE(ReserveForAppends(&twice) == std::vector<int>({0}));
  b.Output(b.Add("nn.relu", {past}, shape));
  EXPECT_TRUE(ReserveForAppends(&b.graph) == std::vector<int>({-1, -1}));
}

TEST(DNNLStages, OfABatchKeepItsSize) {
  const Graph graph = DecoderGraph();
  Planner planner;
  planner.PlanFor(graph, Dims(1, 5));
  const auto one = planner.PlanFor(graph, Dims(1, 6));
  EXPECT_EQ(one->stages.size(), 5u);
  // All types of a node with weights change.
  EXPECT_TRUE(planner.PlanFor(graph, Dims(3, 7))->stages.empty());
  const auto three = planner.PlanFor(graph, Dims(3, 8));
  EXPECT_EQ(three->stages.size(), 5u);
  EXPECT_TRUE(IsRight(graph, three, Dims(3, 8)));
  // The stages of the other batch are known.
  const auto again = planner.PlanFor(graph, Dims(1, 9));
  ASSERT_EQ(again->stages.size(), 5u);
  EXPECT_TRUE(again->stages[0].ready == one->stages[0].ready);
  EXPECT_TRUE(IsRight(graph, again, Dims(1, 9)));
}

TEST(DNNLStages, SayWhatDoesNotFit) {
  const Graph graph = DecoderGraph();
  Planner planner;
  planner.PlanFor(graph, Dims(1, 5));
  planner.PlanFor(graph, Dims(1, 6));
  EXPECT_THROWS(planner.PlanFor(graph, {1, 2, 6, 1, 6}), "main, node");
  const Graph with_mask = DecoderGraph(/*has_mask=*/true);
  Planner other;
  other.PlanFor(with_mask, Dims(1, 5, true));
  other.PlanFor(with_mask, Dims(1, 6, true));
  EXPECT_THROWS(other.PlanFor(with_mask, {1, 1, 6, 1, 6, 4}), "main, node", "add");
}

/*! \brief A softmax of a row, and what one of a single stage makes of it. */
TEST(DNNLStages, SpreadNaNAsPrimitivesDo) {
  const Graph graph = DecoderGraph(/*has_mask=*/true);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  Planner planner;
  for (int64_t past : {19, 20}) planner.PlanFor(graph, Dims(1, past, true));
  const auto dims = Dims(1, 21, true);
  const auto single = MakePlanFor(graph, dims), plan = planner.PlanFor(graph, dims);
  ASSERT_EQ(plan->stages.size(), 5u);
  for (float value : {kInfinity, -kInfinity, kNaN}) {
    for (size_t count : {1u, 22u}) {
      Call call(*single, graph.inputs.size(), 1);
      std::fill_n(call.values[3].begin(), count, value);
      const auto expected = Call(call).Run(single);
      const auto got = call.Run(plan);
      for (size_t i = 0; i < got[4].size(); ++i) {
        EXPECT_EQ(std::isnan(got[4][i]), std::isnan(expected[4][i]));
      }
    }
  }
}

TEST(DNNLStages, RunConcurrently) {
  const auto dims_of = [](int thread, int i) { return Dims(1, 1 + (i * 5 + thread * 3) % 17); };
  EXPECT_TRUE(RunsRightConcurrently(DecoderGraph(), /*max_plans=*/3, /*runs=*/12, dims_of));
}

/*! \brief The bytes of plans and runs that a runner has, by its description. */
int64_t NumberOf(const std::string& text, const std::string& key) {
  const size_t at = text.find("\"" + key + "\": ");
  return at == std::string::npos ? -1 : std::stoll(text.substr(at + key.size() + 4));
}

TEST(DNNLStages, KeepTheMemoryFlat) {
  const Graph graph = DecoderGraph();
  Planner planner;
  PlanCache plans(16, size_t{1} << 30, BytesOf);
  size_t of_first = 0;
  for (int64_t past = 1; past <= 4096; ++past) {
    const auto ready = plans.Get(Dims(1, past), [&]() {
      return std::make_shared<ReadyPlan>(planner.PlanFor(graph, Dims(1, past)));
    });
    ready->contexts.Return(ready->contexts.Take());
    if (past == 32) of_first = BytesOf(*ready);
    // What grows are the scores of one call, 4 heads of 2 layers.
    if (past == 4096) EXPECT_TRUE(BytesOf(*ready) < of_first + 4096 * 4 * 4 * 2 * 2);
  }
  EXPECT_EQ(plans.values().size(), 16u);
  EXPECT_TRUE(of_first > 0 && of_first < 64 << 10);
  const auto last = plans.values().front()->plan;
  // One context of each shared stage, whatever the number of lengths.
  for (const PlanStage& stage : last->stages) {
    EXPECT_TRUE(stage.ready->contexts.num_made() <= 1);
  }
}

TEST(DNNLStages, AreDescribed) {
  const Graph graph = DecoderGraph();
  GraphRunner runner("main", PlanCacheLimits());
  runner.Init(graph);
  for (int64_t past : {3, 4, 5}) EXPECT_TRUE(RunsRight(graph, &runner, Dims(1, past), 1));
  const std::string text = runner.Describe();
  EXPECT_EQ(NumberOf(text, "misses"), 3);
  EXPECT_EQ(NumberOf(text, "stages"), 5);
  EXPECT_TRUE(NumberOf(text, "run_bytes") > 0);
  const std::string measured = runner.Measure("profile_primitives", 1, false);
  EXPECT_TRUE(measured.find("few rows, of any size") != std::string::npos);
  EXPECT_TRUE(measured.find("inner_product") != std::string::npos);
}

}  // namespace dnnl_test::stages
