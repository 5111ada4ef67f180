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
 * \file src/runtime/contrib/dnnl/core/plan/plan_cache.cc
 * \brief The plans of a graph with open dimensions: one for each shape that was called last.
 */
#include "plan_cache.h"

#include <memory>
#include <vector>

#include "../environment.h"
#include "../error.h"
#include "../infer.h"
#include "../lowering.h"

namespace tvm::runtime::contrib::dnnl_backend {

size_t DimsHash::operator()(const std::vector<int64_t>& dims) const {
  // The offset and the multiplier of Fowler, Noll and Vo's hash.
  uint64_t hash = 0xcbf29ce484222325;
  for (int64_t dim : dims) {
    hash = (hash ^ static_cast<uint64_t>(dim)) * 0x100000001b3;
    hash ^= hash >> 32;
  }
  return static_cast<size_t>(hash);
}

PlanCacheLimits DefaultPlanCacheLimits() {
  constexpr int kMaxMegabytes = 1 << 20;
  const int plans = NumberFromEnvironment("TVM_DNNL_PLAN_CACHE_SIZE", "plans", kMaxPlanCacheSize);
  const int megabytes = NumberFromEnvironment("TVM_DNNL_PLAN_CACHE_MB", "megabytes", kMaxMegabytes);
  PlanCacheLimits limits;
  if (plans > 0) limits.plans = plans;
  if (megabytes > 0) limits.bytes = static_cast<size_t>(megabytes) << 20;
  return limits;
}

size_t BytesOf(const ReadyPlan& ready) {
  // Descriptors, kernels and code of a transformer's primitives, on average on AVX-512.
  constexpr size_t kPrimitiveBytes = 24 << 10;
  // What reports say of a step of ours, and its arguments.
  constexpr size_t kKernelBytes = 2 << 10;
  const Plan& plan = *ready.plan;
  size_t bytes = ready.contexts.num_made() * (plan.arena_bytes + plan.scratchpad_bytes) +
                 (plan.constant_bytes - plan.constant_bytes_shared);
  for (const Step& step : plan.steps) bytes += step.primitive ? kPrimitiveBytes : kKernelBytes;
  for (const PlanStage& stage : plan.stages) bytes += stage.is_shared ? 0 : BytesOf(*stage.ready);
  return bytes;
}

std::vector<std::vector<int64_t>> ShapesOf(const Graph& graph,
                                           const std::vector<int64_t>& open_dims) {
  std::vector<std::vector<int64_t>> shapes = InputShapes(graph);
  size_t next = 0;
  for (std::vector<int64_t>& shape : shapes) {
    for (int64_t& dim : shape) {
      if (dim == kOpen) dim = open_dims.at(next++);
    }
  }
  CORE_CHECK(next == open_dims.size()) << graph.symbol << ": " << next << " dimensions are open, "
                                       << "but " << open_dims.size() << " sizes were given";
  return shapes;
}

std::shared_ptr<const Plan> MakePlanFor(const Graph& graph, const std::vector<int64_t>& open_dims) {
  return MakePlan(graph, ShapesOf(graph, open_dims));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
