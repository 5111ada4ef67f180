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
 * \file src/runtime/contrib/dnnl/core/ops/weight_layout.cc
 * \brief The layout in which plans of all shapes share a packed weight.
 */
#include "weight_layout.h"

#include <map>
#include <mutex>
#include <tuple>

#include "../exec/fork.h"
#include "../exec/threads.h"
#include "../implementation.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The layout that oneDNN prefers for one row, if it has blocked code for that. */
std::optional<dnnl::memory::desc> LayoutForOneRow(const dnnl::engine& engine,
                                                  const dnnl::memory::desc& matrix) {
  // The choice must not depend on what the plan is for.
  const ThreadScope one_thread(1);
  const Dims dims = matrix.get_dims();
  const dnnl::memory::desc src(Dims{1, dims[1]}, matrix.get_data_type(),
                               dnnl::memory::format_tag::ab);
  const dnnl::memory::desc dst(Dims{1, dims[0]}, matrix.get_data_type(),
                               dnnl::memory::format_tag::ab);
  const dnnl::inner_product_forward::primitive_desc desc(
      engine, dnnl::prop_kind::forward_inference, src, AnyDesc(matrix), dst,
      PlanBuilder::NewAttr(), /*allow_empty=*/true);
  if (!desc || !IsBlockGemm(desc)) return std::nullopt;
  return desc.weights_desc();
}

}  // namespace

std::optional<dnnl::memory::desc> SharedWeightLayout(const PlanBuilder& plan,
                                                     const dnnl::memory::desc& matrix) {
  /*! \brief Narrow matrices are small, and would be padded. */
  constexpr int64_t kFewestColumns = 64;
  using Key = std::tuple<int64_t, int64_t, dnnl::memory::data_type>;
  static auto* layouts = new std::map<Key, std::optional<dnnl::memory::desc>>;
  static auto* mutex = new ForkSafeMutex;
  const Dims dims = matrix.get_dims();
  if (!plan.shares_weights() || dims.size() != 2 || dims[0] < kFewestColumns) return std::nullopt;
  const Key key{dims[0], dims[1], matrix.get_data_type()};
  {
    const std::lock_guard<ForkSafeMutex> lock(*mutex);
    const auto it = layouts->find(key);
    if (it != layouts->end()) return it->second;
  }
  const std::optional<dnnl::memory::desc> layout = LayoutForOneRow(plan.engine(), matrix);
  const std::lock_guard<ForkSafeMutex> lock(*mutex);
  return layouts->emplace(key, layout).first->second;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
