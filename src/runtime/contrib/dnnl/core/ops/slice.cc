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
 * \file src/runtime/contrib/dnnl/core/ops/slice.cc
 * \brief Parts of a tensor, as views.
 */
#include <algorithm>
#include <vector>

#include "../op_table.h"

namespace tvm::runtime::contrib::dnnl_backend {

void LowerSplit(const NodeReader& node, PlanBuilder* plan) {
  const Tensor src = plan->Input(node, 0);
  const size_t rank = src.dims().size();
  const int axis = node.Axis("axis", 0, static_cast<int>(rank));
  Slice slice{Dims(rank, 0), src.dims(), Dims(rank, 1)};
  for (int i = 0; i < node.NumOutputs(); ++i) {
    slice.dims = node.OutDims(i);
    plan->SetOutput(node, plan->Sliced(node, src, slice), i);
    slice.begin[axis] += slice.dims[axis];
  }
}

void LowerStridedSlice(const NodeReader& node, PlanBuilder* plan) {
  const Tensor src = plan->Input(node, 0);
  const Dims dims = src.dims();
  const auto begin = node.Get<std::vector<int64_t>>("begin");
  const auto axes = node.Get<std::vector<int64_t>>("axes", {});
  // Sizes instead of ends go without steps.
  const bool has_steps = node.Get<std::string>("slice_mode", "end") == "end";
  const auto steps = node.Get<std::vector<int64_t>>("strides", {});
  Slice slice{Dims(dims.size(), 0), node.OutDims(), Dims(dims.size(), 1)};
  for (size_t i = 0; i < begin.size(); ++i) {
    const int64_t axis = axes.empty() ? static_cast<int64_t>(i) : axes.at(i);
    const int64_t first = begin[i] < 0 ? begin[i] + dims.at(axis) : begin[i];
    slice.begin[axis] = std::min(std::max<int64_t>(first, 0), dims.at(axis));
    if (has_steps && i < steps.size()) slice.steps[axis] = steps[i];
  }
  plan->SetOutput(node, plan->Sliced(node, src, slice));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
