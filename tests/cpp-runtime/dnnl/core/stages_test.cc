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
 * \file tests/cpp-runtime/dnnl/core/stages_test.cc
 * \brief Calls of a decoder, in which the length of the past changes and nothing else.
 */
#include "src/runtime/contrib/dnnl/core/plan/stages.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/exec/graph_runner.h"
#include "tests/cpp-runtime/harness/test.h"

namespace {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

using Texts = std::vector<std::string>;
using Shape = std::vector<int64_t>;

constexpr int64_t kHidden = 64, kGroups = 2, kHeads = 4, kSize = 16;

TensorType Floats(Shape shape) { return {std::move(shape), {kDLFloat, 32, 1}}; }

std::vector<float> Noise(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 2001) / 1000 - 1;
  return values;
}

/*! \brief Builds a graph node by node. */
struct Builder {
  Graph graph;
  uint32_t next{0};

  Builder() { graph.symbol = graph.name = "main"; }

  Entry Input(const std::string& name, Shape shape) {
    graph.inputs.push_back({{next, 0}, {"input " + name, Floats(std::move(shape))}});
    return {next++, 0};
  }
  Entry Constant(Shape shape, uint32_t seed, float factor = 1) {
    int64_t count = 1;
    for (int64_t dim : shape) count *= dim;
    auto values = std::make_shared<std::vector<float>>(Noise(count, seed));
    for (float& value : *values) value *= factor;
    const std::shared_ptr<void> data(values, values->data());
    graph.constants.push_back({{{next, 0}, {"constant", Floats(std::move(shape))}}, data});
    return {next++, 0};
  }
  Entry Add(const std::string& op, std::vector<Entry> inputs, Shape shape,
            std::map<std::string, tvm::runtime::json::JSONAttr> attrs = {}) {
    graph.nodes.push_back(
        {next, op, std::move(attrs), std::move(inputs), {Floats(std::move(shape))}});
    return {next++, 0};
  }
  void Output(Entry entry) {
    const std::string name = "output " + std::to_string(graph.outputs.size());
    for (const Node& node : graph.nodes) {
      if (node.id == entry.node) graph.outputs.push_back({entry, {name, node.outputs[0]}});
    }
  }
};

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

int64_t SizeOf(const Shape& shape) {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

/*! \brief The inputs of a call, and room for its results. */
struct Call {
  std::vector<std::vector<float>> values;

  Call(const Plan& plan, size_t num_inputs, uint32_t seed) {
    for (size_t i = 0; i < plan.arguments.size(); ++i) {
      const int64_t count = SizeOf(plan.arguments[i].type.shape);
      values.push_back(i < num_inputs ? Noise(count, seed + i) : std::vector<float>(count));
    }
  }
  std::vector<std::vector<float>> Run(const std::shared_ptr<const Plan>& plan) {
    std::vector<void*> addresses;
    for (std::vector<float>& value : values) addresses.push_back(value.data());
    Context(plan).Run(addresses, nullptr);
    return values;
  }
};

/*! \brief The sizes of a call: of x, and the batch and the length of each past; the mask's. */
std::vector<int64_t> Dims(int64_t batch, int64_t past, bool has_mask = false) {
  std::vector<int64_t> dims = {batch, batch, past, batch, past};
  if (has_mask) dims.push_back(past + 1);
  return dims;
}

bool IsNear(const std::vector<std::vector<float>>& got,
            const std::vector<std::vector<float>>& expected) {
  for (size_t i = 0; i < got.size(); ++i) {
    for (size_t k = 0; k < got[i].size(); ++k) {
      // Sums of 64 products of numbers of about one, in another order, twice.
      if (!(std::abs(got[i][k] - expected[i][k]) < 1e-5F)) return false;
    }
  }
  return true;
}

/*! \brief Whether a plan computes what one of a single stage does. */
bool IsRight(const Graph& graph, const std::shared_ptr<const Plan>& plan,
             const std::vector<int64_t>& dims, uint32_t seed = 1) {
  const auto single = MakePlanFor(graph, dims);
  Call call(*single, graph.inputs.size(), seed);
  const auto expected = Call(call).Run(single);
  return IsNear(call.Run(plan), expected);
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

/*! \brief Run a graph by its runner, as a module does; whether the result is right. */
bool RunsRight(const Graph& graph, GraphRunner* runner, int64_t past, uint32_t seed) {
  const auto single = MakePlanFor(graph, Dims(1, past));
  Call call(*single, graph.inputs.size(), seed);
  const auto expected = Call(call).Run(single);
  std::vector<DLTensor> tensors;
  for (size_t i = 0; i < call.values.size(); ++i) {
    const TensorType& type = single->arguments[i].type;
    DLTensor tensor{};
    tensor.data = call.values[i].data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = static_cast<int>(type.shape.size());
    tensor.dtype = type.dtype;
    tensor.shape = const_cast<int64_t*>(type.shape.data());
    tensors.push_back(tensor);
  }
  runner->Run(tensors.size(), [&](size_t i) { return &tensors[i]; });
  return IsNear(call.values, expected);
}

TEST(DNNLStages, RunConcurrently) {
  const Graph graph = DecoderGraph();
  PlanCacheLimits limits;
  limits.plans = 3;
  GraphRunner runner("main", limits);
  runner.Init(graph);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread]() {
      for (int i = 0; i < 12; ++i) {
        if (!RunsRight(graph, &runner, 1 + (i * 5 + thread * 3) % 17, thread)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
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
  for (int64_t past : {3, 4, 5}) EXPECT_TRUE(RunsRight(graph, &runner, past, 1));
  const std::string text = runner.Describe();
  EXPECT_EQ(NumberOf(text, "misses"), 3);
  EXPECT_EQ(NumberOf(text, "stages"), 5);
  EXPECT_TRUE(NumberOf(text, "run_bytes") > 0);
  const std::string measured = runner.Measure("profile_primitives", 1, false);
  EXPECT_TRUE(measured.find("few rows, of any size") != std::string::npos);
  EXPECT_TRUE(measured.find("inner_product") != std::string::npos);
}

}  // namespace
