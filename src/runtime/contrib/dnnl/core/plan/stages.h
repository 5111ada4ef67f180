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
 * \file src/runtime/contrib/dnnl/core/plan/stages.h
 * \brief Plans of a graph of which only some sizes change, such as the past of a language model.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_STAGES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_STAGES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "../build_cache.h"
#include "../exec/fork.h"
#include "../graph.h"
#include "plan.h"
#include "plan_cache.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief A graph divided by whether a node depends on the sizes that differ between two calls.
 *
 * Nodes that do not are planned once, for all calls. In a decoder they have the weights; what is
 * planned for each length of the past are the copy of the cache and the attention.
 */
class StagedGraph {
 public:
  /*!
   * \param one, other The open dimensions of two calls.
   * \param changing Those of `other`, kOpen where they differ.
   */
  StagedGraph(const Graph& graph, const std::vector<int64_t>& one,
              const std::vector<int64_t>& other, std::vector<int64_t> changing);

  /*! \brief Whether most of the weights are planned once; else there are no stages. */
  bool is_useful() const { return !stages_.empty(); }
  /*! \brief Whether a call has the sizes that do not change. */
  bool Fits(const std::vector<int64_t>& open_dims) const;
  /*! \brief The plan of a call; null where a type that was the same in two calls is another one. */
  std::shared_ptr<const Plan> PlanFor(const Graph& graph,
                                      const std::vector<int64_t>& open_dims) const;

 private:
  struct Stage {
    Graph graph;
    /*! \brief Which values the inputs and the outputs are: see `num_values_`. */
    std::vector<int> values;
    /*! \brief The plan for all calls; null where sizes change. */
    std::shared_ptr<ReadyPlan> fixed;
    /*! \brief The first stage with the same ops, such as that of an earlier layer; -1 for none. */
    int same{-1};
  };
  class Divider;

  const std::vector<int64_t> changing_;
  std::vector<Stage> stages_;
  /*! \brief Those of the graph's inputs, then its outputs, then what stages hand to each other. */
  size_t num_values_{0};
};

/*! \brief Makes the plans of a graph with open dimensions, for many threads at once. */
class Planner {
 public:
  /*! \brief The plan of a call, in stages once the calls before show that these are useful. */
  std::shared_ptr<const Plan> PlanFor(const Graph& graph, const std::vector<int64_t>& open_dims);

 private:
  std::shared_ptr<StagedGraph> Find(const Graph& graph, const std::vector<int64_t>& open_dims);

  /*! \brief For batches or prompts of so many sizes what is fixed is kept. */
  static constexpr size_t kMaxStagedGraphs = 4;

  /*! \brief By the sizes that do not change, kOpen for the others. */
  BuildCache<std::vector<int64_t>, StagedGraph, DimsHash> staged_{kMaxStagedGraphs};
  ForkSafeMutex mutex_;
  /*! \brief The sizes that were planned last. */
  std::vector<int64_t> last_;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_STAGES_H_
