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
 * \file src/runtime/contrib/dnnl/core/ops/prelu.cc
 * \brief The rectifier with a slope per channel.
 */
#include <algorithm>
#include <vector>

#include "../implementation.h"
#include "../op_table.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief oneDNN's prelu accepts no more dimensions than this. */
constexpr size_t kMaxRank = 5;

/*!
 * \brief Whether oneDNN's prelu reads the layout rightly: row-major, or channels last or in blocks.
 *
 * oneDNN 3.2 mistakes some other orders of dimensions, which views have, for one of these.
 */
bool IsKnownLayout(const dnnl::memory::desc& md) {
  if (IsPlain(md)) return true;
  if (md.get_ndims() < 3 || md.get_format_kind() != dnnl::memory::format_kind::blocked)
    return false;
  const Dims strides = md.get_strides();
  const bool is_blocked = md.get_inner_idxs() == Dims{1};
  if (!is_blocked && (!md.get_inner_idxs().empty() || strides[1] != 1)) return false;
  // The other dimensions, and with blocks the channels too, from the outermost.
  int64_t outer = strides[0];
  for (int i = 1; i < md.get_ndims(); ++i) {
    if (i == 1 && !is_blocked) continue;
    if (strides[i] > outer) return false;
    outer = strides[i];
  }
  return true;
}

}  // namespace

Types InferPReLU(const NodeReader& node, const Types& inputs) {
  CheckReal(node, inputs);
  const int axis = node.Axis("axis", 1, static_cast<int>(inputs[0].shape.size()));
  // One slope is that of all channels.
  const bool is_one = inputs[1].shape == std::vector<int64_t>{1};
  CheckVector(node, inputs, 1, is_one ? 1 : inputs[0].shape[axis]);
  return {inputs[0]};
}

void LowerPReLU(const NodeReader& node, PlanBuilder* plan) {
  using PReLU = dnnl::prelu_forward;
  Tensor src = plan->Input(node, 0);
  const Dims dims = src.dims();
  const int rank = static_cast<int>(dims.size()), axis = node.Axis("axis", 1, rank);
  const Tensor slopes = plan->Plain(node, plan->Input(node, 1));
  const int64_t channels = slopes.dims()[0];
  const auto describe = [&](int channel_axis) {
    Dims slope_dims(src.dims().size(), 1);
    slope_dims[channel_axis] = channels;
    return PReLU::primitive_desc(plan->engine(), dnnl::prop_kind::forward_inference, src.md,
                                 slopes.Reshaped(slope_dims).md, src.md, PlanBuilder::NewAttr());
  };
  PReLU::primitive_desc desc;
  if (channels == dims[axis] && dims.size() <= kMaxRank && IsKnownLayout(src.md)) {
    desc = describe(axis);
  }
  if (!desc || IsReference(desc)) {
    // Data of any rank, with any axis: (outer, channels, inner). Threads share the outer ones, so a
    // slope for all channels is that of the one channel of many planes.
    const int begin = channels == dims[axis] ? axis : std::max(rank - 2, std::min(rank - 1, 1));
    const int64_t outer = NumElements(Dims(dims.begin(), dims.begin() + begin));
    const int64_t inner = NumElements(dims) / (outer * channels);
    src = plan->Plain(node, src).Reshaped({outer, channels, inner});
    desc = describe(1);
  }
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, PReLU(desc),
             {{DNNL_ARG_SRC, src},
              {DNNL_ARG_WEIGHTS, slopes.Reshaped(desc.weights_desc().get_dims())},
              {DNNL_ARG_DST, dst}});
  plan->SetOutput(node, dst.Reshaped(dims));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
