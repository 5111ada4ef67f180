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
 * \file src/runtime/contrib/dnnl/core/plan/reorders.cc
 * \brief Reorders that do what another one behind them would do.
 */
#include <algorithm>
#include <utility>
#include <vector>

#include "../implementation.h"
#include "builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The tensor of a step's argument; nullptr where it has none such. */
int* FindArg(Step* step, int arg) {
  for (auto& [known, tensor] : step->args) {
    if (known == arg) return &tensor;
  }
  return nullptr;
}

}  // namespace

size_t PlanBuilder::ReorderBehind(size_t step) const {
  const int result = *FindArg(&plan_->steps[step], DNNL_ARG_DST);
  const int buffer = plan_->tensors[result].buffer;
  const auto is_part = [&](const Buffer& other) {
    return other.kind == BufferKind::kPart && other.whole == buffer;
  };
  const std::vector<Buffer>& buffers = plan_->buffers;
  if (buffers[buffer].kind != BufferKind::kArena) return 0;
  if (std::any_of(buffers.begin(), buffers.end(), is_part)) return 0;
  size_t reader = 0;
  for (size_t i = 0; i < plan_->steps.size(); ++i) {
    if (i == step) continue;
    for (const auto& [arg, tensor] : plan_->steps[i].args) {
      if (plan_->tensors[tensor].buffer != buffer) continue;
      const bool is_mere = plan_->steps[i].info.op == "reorder" && arg == DNNL_ARG_FROM;
      if (!is_mere || tensor != result || reader != 0) return 0;
      reader = i;
    }
  }
  return reader;
}

void PlanBuilder::JoinReorders() {
  size_t removed = 0;
  for (const auto& [number, describe] : any_layout_) {
    const size_t index = number - removed;
    const size_t behind = ReorderBehind(index);
    if (behind == 0) continue;
    Step& first = plan_->steps[index];
    Step& second = plan_->steps[behind];
    const int result = *FindArg(&second, DNNL_ARG_TO);
    const ThreadScope threads(first.info.num_threads);
    const dnnl::reorder::primitive_desc desc = describe(plan_->tensors[result].md);
    if (!desc || IsReference(desc)) continue;
    // All but the layout is as it was, the workspace too.
    const int* workspace = FindArg(&first, DNNL_ARG_SCRATCHPAD);
    const size_t bytes = workspace == nullptr ? 0 : plan_->tensors[*workspace].md.get_size();
    if (desc.scratchpad_desc().get_size() != bytes) continue;
    first.primitive = dnnl::reorder(desc);
    first.info.impl = desc.impl_info_str();
    first.info.dst_layout = second.info.dst_layout;
    *FindArg(&first, DNNL_ARG_DST) = result;
    second = std::move(first);
    plan_->steps.erase(plan_->steps.begin() + index);
    for (InPlaceOffer& offer : offers_) offer.step -= offer.step > index ? 1 : 0;
    ++removed;
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend
