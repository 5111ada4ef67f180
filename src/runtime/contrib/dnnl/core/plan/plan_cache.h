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
 * \file src/runtime/contrib/dnnl/core/plan/plan_cache.h
 * \brief The plans of a graph with open dimensions: one for each shape that was called last.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_PLAN_CACHE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_PLAN_CACHE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "../build_cache.h"
#include "../graph.h"
#include "plan.h"

namespace tvm::runtime::contrib::dnnl_backend {

struct DimsHash {
  size_t operator()(const std::vector<int64_t>& dims) const;
};

/*! \brief Plans by the sizes of the open dimensions, in the order of the inputs. */
using PlanCache = BuildCache<std::vector<int64_t>, ReadyPlan, DimsHash>;

/*! \brief No more plans than these are kept, whoever asks. */
constexpr int kMaxPlanCacheSize = 1 << 16;

/*! \brief What a module keeps of its plans. */
struct PlanCacheLimits {
  size_t plans{16};
  /*! \brief Of BytesOf each plan; the one that was used last stays in any case. */
  size_t bytes{size_t{1} << 30};
};

/*! \brief The limits if a module is not told: TVM_DNNL_PLAN_CACHE_SIZE and TVM_DNNL_PLAN_CACHE_MB.
 */
PlanCacheLimits DefaultPlanCacheLimits();

/*!
 * \brief The memory that goes with a plan: what its runs write, constants that it was the first to
 * pack, and its primitives, which oneDNN does not count and which are estimated.
 */
size_t BytesOf(const ReadyPlan& ready);

/*! \brief The shapes of the inputs of a graph in a call. */
std::vector<std::vector<int64_t>> ShapesOf(const Graph& graph,
                                           const std::vector<int64_t>& open_dims);

/*!
 * \brief The plan of one call.
 * \param open_dims The sizes of the open dimensions, in the order of the inputs.
 */
std::shared_ptr<const Plan> MakePlanFor(const Graph& graph, const std::vector<int64_t>& open_dims);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_PLAN_CACHE_H_
