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

int DefaultPlanCacheSize() {
  const int said = NumberFromEnvironment("TVM_DNNL_PLAN_CACHE_SIZE", "plans", kMaxPlanCacheSize);
  return said > 0 ? said : 16;
}

std::shared_ptr<const Plan> MakePlanFor(const Graph& graph, const std::vector<int64_t>& open_dims) {
  std::vector<std::vector<int64_t>> shapes = InputShapes(graph);
  size_t next = 0;
  for (std::vector<int64_t>& shape : shapes) {
    for (int64_t& dim : shape) {
      if (dim == kOpen) dim = open_dims.at(next++);
    }
  }
  CORE_CHECK(next == open_dims.size()) << graph.symbol << ": " << next << " dimensions are open, "
                                       << "but " << open_dims.size() << " sizes were given";
  return MakePlan(graph, shapes);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
