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
 * \brief Plans of a graph in stages, of which a new size needs few new ones.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_STAGES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_STAGES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "../build_cache.h"
#include "../exec/fork.h"
#include "../graph.h"
#include "divide.h"
#include "plan.h"
#include "plan_cache.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief A graph in stages, and the plans of its calls. */
class StagedGraph {
 public:
  /*!
   * \param changing Open dimensions of a call, kOpen for those that the next one may have another
   * size of.
   * \param sizes_change See MakePlan.
   */
  StagedGraph(Division division, std::vector<int64_t> changing, bool sizes_change);

  /*! \brief Whether there are stages. */
  bool is_useful() const { return is_useful_; }
  /*! \brief Whether a call has the sizes that do not change. */
  bool Fits(const std::vector<int64_t>& open_dims) const;
  /*! \brief The plan of a call; null where a type is not the one for which stages were planned. */
  std::shared_ptr<const Plan> PlanFor(const Graph& graph, const std::vector<int64_t>& open_dims);

 private:
  const std::vector<Stage> stages_;
  const size_t num_values_;
  /*! \brief Of each value, the last stage that has it as an input or output. */
  std::vector<size_t> last_stages_;
  const std::vector<int64_t> changing_;
  const bool sizes_change_;
  std::atomic<bool> is_useful_;
};

/*! \brief Makes the plans of a graph with open dimensions, for many threads at once. */
class Planner {
 public:
  /*! \brief The plan of a call, in stages where these are useful, by sizes or by layers. */
  std::shared_ptr<const Plan> PlanFor(const Graph& graph, const std::vector<int64_t>& open_dims);

 private:
  std::shared_ptr<StagedGraph> Find(const Graph& graph, const std::vector<int64_t>& open_dims);

  /*! \brief For batches or prompts of so many sizes what is fixed is kept. */
  static constexpr size_t kMaxStagedGraphs = 4;

  /*! \brief By the sizes that do not change, kOpen for the others. */
  BuildCache<std::vector<int64_t>, StagedGraph, DimsHash> staged_{kMaxStagedGraphs};
  /*! \brief The layers; there is one entry. */
  BuildCache<int, StagedGraph> layers_{1};
  ForkSafeMutex mutex_;
  /*! \brief The sizes that were planned last. */
  std::vector<int64_t> last_;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_STAGES_H_
