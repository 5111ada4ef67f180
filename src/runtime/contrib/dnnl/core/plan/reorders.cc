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
 * \brief Primitives that write what a reorder after them would make of their result.
 */
#include <algorithm>
#include <utility>
#include <vector>

#include "../implementation.h"
#include "builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

bool HasNoBlocks(const dnnl::memory::desc& md) { return md.get_inner_blks().empty(); }

/*! \brief The strides, those of dimensions of one, which are never used, as of outermost ones. */
Dims OuterStrides(const dnnl::memory::desc& md) {
  const Dims dims = md.get_dims();
  Dims strides = md.get_strides();
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 1) strides[i] = NumElements(dims);
  }
  return strides;
}

/*!
 * \brief The layout of a result that puts each element where a reorder of a view of it would.
 * \param result The result, as it is.
 * \param from, to The view and what the reorder makes of it.
 * \return Zero where no layout does.
 */
dnnl::memory::desc LayoutAsIn(const dnnl::memory::desc& result, const dnnl::memory::desc& from,
                              const dnnl::memory::desc& to) {
  if (from == result) return to;
  const bool is_strided =
      from.get_format_kind() == dnnl::memory::format_kind::blocked && HasNoBlocks(from);
  if (!IsPlain(result) || !is_strided || from.get_submemory_offset() != 0) return {};
  // In the order of the memory, the view's dimensions are the result's, but for joined or split
  // ones.
  const std::vector<int> places = InversePermutation(OrderByStride(OuterStrides(from)));
  const auto as_result = [&](const dnnl::memory::desc& md) {
    const dnnl::memory::desc sorted = md.permute_axes(places, /*allow_empty=*/true);
    return sorted ? sorted.reshape(result.get_dims(), /*allow_empty=*/true) : sorted;
  };
  if (as_result(from) != result) return {};
  const dnnl::memory::desc layout = as_result(to);
  if (!layout || !HasNoBlocks(layout)) return layout;
  // oneDNN knows its formats by the strides of dimensions of one, too.
  return {layout.get_dims(), layout.get_data_type(), OuterStrides(layout), /*allow_empty=*/true};
}

/*!
 * \brief Whether a step moves elements, or rounds float32 to a shorter type, and does nothing else.
 *
 * Rounding is left to a primitive because its result is the same. Not so a conversion to float32 of
 * what has been rounded.
 */
bool IsReorder(const StepInfo& step) {
  return step.op == "reorder" ||
         (step.op == "cast" && (step.types == "f32bf16" || step.types == "f32f16"));
}

}  // namespace

size_t PlanBuilder::ReorderAfter(size_t step) const {
  const int result = plan_->steps[step].FindArg(DNNL_ARG_DST)->second;
  const int buffer = plan_->tensors[result].buffer;
  const auto is_part = [&](const Buffer& other) {
    return other.kind == BufferKind::kPart && other.parent == buffer;
  };
  const std::vector<Buffer>& buffers = plan_->buffers;
  if (buffers[buffer].kind != BufferKind::kArena) return 0;
  if (std::any_of(buffers.begin(), buffers.end(), is_part)) return 0;
  size_t reader = 0;
  for (size_t i = 0; i < plan_->steps.size(); ++i) {
    if (i == step) continue;
    for (const auto& [arg, tensor] : plan_->steps[i].args) {
      if (plan_->tensors[tensor].buffer != buffer) continue;
      const bool is_mere = IsReorder(plan_->steps[i].info) && arg == DNNL_ARG_FROM;
      if (!is_mere || reader != 0) return 0;
      reader = i;
    }
  }
  return reader;
}

bool PlanBuilder::WriteInstead(const LayoutOffer& offer, const dnnl::memory::desc& md,
                               Step* step) const {
  if (offer.kernel) {
    HostKernel kernel = offer.kernel(md);
    if (!kernel) return false;
    step->kernel = std::move(kernel);
    return true;
  }
  const ThreadScope threads(step->info.num_threads);
  const dnnl::primitive_desc_base desc = offer.describe(md);
  if (!desc || IsReference(desc)) return false;
  // All but the result is as it was, the workspace too.
  const auto workspace = step->FindArg(DNNL_ARG_SCRATCHPAD);
  const size_t bytes =
      workspace == step->args.end() ? 0 : plan_->tensors[workspace->second].md.get_size();
  if (desc.scratchpad_desc().get_size() != bytes) return false;
  step->primitive = dnnl::primitive(desc.get());
  step->info.impl = desc.impl_info_str();
  return true;
}

void PlanBuilder::JoinReorders() {
  size_t removed = 0;
  for (auto offer = any_layout_.begin(); offer != any_layout_.end(); ++offer) {
    const size_t index = offer->first - removed;
    const size_t next = ReorderAfter(index);
    if (next == 0) continue;
    Step& first = plan_->steps[index];
    Step& second = plan_->steps[next];
    const int result = second.FindArg(DNNL_ARG_TO)->second;
    const auto layout_of = [&](Step* step, int arg) {
      return plan_->tensors[step->FindArg(arg)->second].md;
    };
    const dnnl::memory::desc layout =
        LayoutAsIn(layout_of(&first, DNNL_ARG_DST), layout_of(&second, DNNL_ARG_FROM),
                   plan_->tensors[result].md);
    if (!layout || layout.is_zero()) continue;
    if (!WriteInstead(offer->second, layout, &first)) continue;
    first.info.dst_layout = second.info.dst_layout;
    const auto dst = first.FindArg(DNNL_ARG_DST);
    first.info.types.resize(first.info.types.size() - TypeText(plan_->tensors[dst->second]).size());
    first.info.types += TypeText(plan_->tensors[result]);
    dst->second = result;
    // What the conversion has offered is the offer of the primitive in its place.
    const auto next_offer = any_layout_.find(next + removed);
    if (next_offer != any_layout_.end()) next_offer->second = offer->second;
    second = std::move(first);
    plan_->steps.erase(plan_->steps.begin() + index);
    for (InPlaceOffer& offer : offers_) offer.step -= offer.step > index ? 1 : 0;
    ++removed;
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend
