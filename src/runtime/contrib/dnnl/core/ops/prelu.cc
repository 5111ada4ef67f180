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
#include "../kernels/prelu.h"

#include <algorithm>
#include <vector>

#include "../exec/parallel.h"
#include "../fusion/quantization.h"
#include "../op_table.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The most channels of a block. */
constexpr int64_t kMaxBlock = 64;

/*!
 * \brief Dense memory as planes one after the other: those of each image have slopes of their own,
 *        `period` in a cycle.
 */
struct Planes {
  /*! \brief In an image. */
  int64_t count;
  /*! \brief Elements of a plane. */
  int64_t size;
  int64_t period;
};

/*! \brief The planes of a tensor with slopes along an axis; of size 0 for layouts that need a copy.
 */
Planes PlanesOf(const dnnl::memory::desc& md, int axis, int64_t slopes) {
  constexpr Planes kNone{1, 0, 1};
  const int64_t size = NumElements(md.get_padded_dims());
  const size_t bytes = size * dnnl::memory::data_type_size(md.get_data_type());
  if (md.get_format_kind() != dnnl::memory::format_kind::blocked || md.get_size() != bytes) {
    return kNone;
  }
  // The padding of blocks must stay zero, which it does with slopes of zero.
  Dims padded = md.get_padded_dims();
  if (slopes == 1) return padded == md.get_dims() ? Planes{1, size, 1} : kNone;
  const Dims blocks = md.get_inner_blks();
  const int64_t stride = md.get_strides()[axis];
  if (blocks.empty()) {
    if (padded != md.get_dims()) return kNone;
    return stride == 1 ? Planes{1, size, slopes} : Planes{slopes, stride, 1};
  }
  if (md.get_inner_idxs() != Dims{axis}) return kNone;
  const int64_t count = padded[axis] / blocks[0];
  padded[axis] = slopes;
  if (padded != md.get_dims() || blocks[0] > kMaxBlock) return kNone;
  return {count, count == 1 ? size : stride, blocks[0]};
}

template <typename T>
HostKernel PReLUKernel(const Planes& planes, int64_t total, int64_t channels) {
  return [=](void* const* addresses) {
    const auto* src = static_cast<const T*>(addresses[0]);
    const auto* slopes = static_cast<const float*>(addresses[1]);
    auto* dst = static_cast<T*>(addresses[2]);
    // Elements of a part, and how many are worth a thread.
    constexpr int64_t kPart = 16384, kGrain = 8192;
    const int64_t part = std::max<int64_t>(1, kPart / planes.period) * planes.period;
    const int64_t parts = (planes.size + part - 1) / part;
    const int64_t grain = std::max<int64_t>(1, kGrain / std::min(part, planes.size));
    ParallelFor(total / planes.size * parts, grain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t begin = i % parts * part, at = i / parts * planes.size + begin;
        const int64_t channel = i / parts % planes.count * planes.period;
        const float* own = slopes + channel;
        float padded[kMaxBlock] = {};
        if (channel + planes.period > channels) {
          std::copy(own, slopes + channels, padded);
          own = padded;
        }
        PReLU(src + at, own, planes.period, dst + at, std::min(part, planes.size - begin));
      }
    });
  };
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
  using Type = dnnl::memory::data_type;
  Tensor src = plan->Input(node, 0);
  const Type type = src.dtype();
  const Tensor slopes = PlainFloats(node, plan, plan->Input(node, 1));
  const int64_t channels = slopes.dims()[0];
  const int axis = node.Axis("axis", 1, static_cast<int>(src.dims().size()));
  if (PlanesOf(src.md, axis, channels).size == 0) src = plan->Plain(node, src);
  if (type == Type::f16) src = plan->InLayout(node, src, WithType(src.md, Type::f32));
  const Planes planes = PlanesOf(src.md, axis, channels);
  const int64_t total = NumElements(src.md.get_padded_dims());
  const Tensor dst = plan->NewTensor(src.md);
  plan->EmitKernel(node, "prelu",
                   type == Type::bf16 ? PReLUKernel<uint16_t>(planes, total, channels)
                                      : PReLUKernel<float>(planes, total, channels),
                   {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, slopes}, {DNNL_ARG_DST, dst}});
  plan->OfferInPlace(DNNL_ARG_SRC);
  plan->SetOutput(node, plan->InLayout(node, dst, WithType(dst.md, type)));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
