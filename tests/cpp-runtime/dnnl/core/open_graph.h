// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/open_graph.h
 * \brief Graphs of open dimensions, their calls, and what a plan without stages computes.
 */
#ifndef TESTS_CPP_RUNTIME_DNNL_CORE_OPEN_GRAPH_H_
#define TESTS_CPP_RUNTIME_DNNL_CORE_OPEN_GRAPH_H_

#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/exec/graph_runner.h"
#include "src/runtime/contrib/dnnl/core/flat_attrs.h"
#include "src/runtime/contrib/dnnl/core/plan/plan_cache.h"

namespace tvm::runtime::contrib::dnnl_backend {

using Texts = std::vector<std::string>;
using Shape = std::vector<int64_t>;

inline TensorType Floats(Shape shape) { return {std::move(shape), {kDLFloat, 32, 1}}; }

inline std::vector<float> Noise(int64_t count, uint32_t seed) {
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
    NestAttrs(&attrs);
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

inline int64_t SizeOf(const Shape& shape) {
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

inline bool IsNear(const std::vector<std::vector<float>>& got,
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
inline bool IsRight(const Graph& graph, const std::shared_ptr<const Plan>& plan,
                    const std::vector<int64_t>& dims, uint32_t seed = 1) {
  const auto single = MakePlanFor(graph, dims);
  Call call(*single, graph.inputs.size(), seed);
  const auto expected = Call(call).Run(single);
  return IsNear(call.Run(plan), expected);
}

/*! \brief Run a graph by its runner, as a module does; whether the result is right. */
inline bool RunsRight(const Graph& graph, GraphRunner* runner, const std::vector<int64_t>& dims,
                      uint32_t seed) {
  const auto single = MakePlanFor(graph, dims);
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

/*!
 * \brief Whether four threads get right results of one runner, which keeps few plans.
 * \param dims_of The open dimensions of a thread's run, by the numbers of both.
 */
template <typename DimsOf>
bool RunsRightConcurrently(const Graph& graph, int max_plans, int runs, const DimsOf& dims_of) {
  PlanCacheLimits limits;
  limits.plans = max_plans;
  GraphRunner runner("main", limits);
  runner.Init(graph);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread]() {
      for (int i = 0; i < runs; ++i) {
        if (!RunsRight(graph, &runner, dims_of(thread, i), thread)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return wrong == 0;
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TESTS_CPP_RUNTIME_DNNL_CORE_OPEN_GRAPH_H_
