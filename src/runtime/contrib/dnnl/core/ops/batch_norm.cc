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
 * \file src/runtime/contrib/dnnl/core/ops/batch_norm.cc
 * \brief Batch normalization with the moving statistics (inference).
 */
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "../exec/parallel.h"
#include "../fusion/quantization.h"
#include "../kernels/functions.h"
#include "../op_table.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using BatchNorm = dnnl::batch_normalization_forward;

/*! \brief The data with its channels as dimension 1, and the way back. */
struct ChannelsSecond {
  Tensor data;
  std::vector<int> axes;  // empty where the data was reshaped instead
};

/*! \brief A permutation of 3 to 5 dimensions keeps a blocked layout; else (outer, C, inner). */
ChannelsSecond BringChannelsSecond(const NodeReader& node, PlanBuilder* plan, const Tensor& data,
                                   int axis) {
  const Dims dims = data.dims();
  const int rank = static_cast<int>(dims.size());
  const bool is_image = rank >= 3 && rank <= 5;
  if (is_image && (axis == 1 || axis == rank - 1)) {
    std::vector<int> axes(rank);
    std::iota(axes.begin(), axes.end(), 0);
    axes.erase(axes.begin() + axis);
    axes.insert(axes.begin() + 1, axis);
    return {data.Permuted(axes), axes};
  }
  const int64_t outer = NumElements(Dims(dims.begin(), dims.begin() + axis));
  const int64_t inner = NumElements(Dims(dims.begin() + axis + 1, dims.end()));
  return {plan->Plain(node, data).Reshaped({outer, dims[axis], inner}), {}};
}

/*!
 * \brief Normalize row-major data, whose channels are dimension 1, by a kernel of ours.
 *
 * \param factors Mean and variance, and the scale and the shift where there are any.
 * \param fused Empty, or the name of a relu.
 */
Tensor NormalizeChannels(const NodeReader& node, PlanBuilder* plan, const Tensor& data,
                         const PlanBuilder::Args& factors, float epsilon,
                         const std::vector<std::string>& fused) {
  static constexpr int64_t kBlock = 1024;
  const float lowest = fused.empty() ? -std::numeric_limits<float>::infinity() : 0;
  const bool is_bfloat16 = data.dtype() == dnnl::memory::data_type::bf16;
  const Tensor src = is_bfloat16 ? data : PlainFloats(node, plan, data);
  const Tensor dst = plan->NewTensor(src.md);
  PlanBuilder::Args args = {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}};
  args.insert(args.end(), factors.begin(), factors.end());
  const auto index = [&args](int arg) {
    const auto it = std::find_if(args.begin(), args.end(),
                                 [arg](const auto& each) { return each.first == arg; });
    return it == args.end() ? -1 : static_cast<int>(it - args.begin());
  };
  const int scale = index(DNNL_ARG_SCALE), shift = index(DNNL_ARG_SHIFT);
  const int64_t channels = src.dims()[1], rows = src.dims()[0] * channels;
  const int64_t columns = NumElements(src.dims()) / rows;
  const auto run = [=](void* const* addresses) {
    const auto factor = [addresses](int i, int64_t channel, float otherwise) {
      return i < 0 ? otherwise : static_cast<const float*>(addresses[i])[channel];
    };
    ParallelFor(rows, /*grain=*/std::max<int64_t>(1, 4 * kBlock / columns),
                [&](int64_t first, int64_t last) {
                  float block[kBlock];
                  for (int64_t row = first; row < last; ++row) {
                    const int64_t c = row % channels;
                    const ChannelFactors of_channel = {
                        factor(2, c, 0), factor(scale, c, 1) / std::sqrt(factor(3, c, 1) + epsilon),
                        factor(shift, c, 0), lowest};
                    for (int64_t i = 0; i < columns; i += kBlock) {
                      const int64_t at = row * columns + i, size = std::min(kBlock, columns - i);
                      if (is_bfloat16) {
                        WidenBFloats(static_cast<const uint16_t*>(addresses[0]) + at, block, size);
                        NormalizeChannel(of_channel, block, block, size);
                        RoundToBFloats(block, static_cast<uint16_t*>(addresses[1]) + at, size);
                      } else {
                        NormalizeChannel(of_channel, static_cast<const float*>(addresses[0]) + at,
                                         static_cast<float*>(addresses[1]) + at, size);
                      }
                    }
                  }
                });
  };
  plan->EmitKernel(node, "batch_normalization", run, args, fused);
  plan->OfferInPlace(DNNL_ARG_SRC);
  return plan->InLayout(node, dst, WithType(dst.md, data.dtype()));
}

}  // namespace

Types InferBatchNorm(const NodeReader& node, const Types& inputs) {
  CheckReal(node, inputs);
  CheckMinRank(node, inputs, 0, 2);
  const int axis = node.Axis("axis", 1, static_cast<int>(inputs[0].shape.size()));
  for (int i : {1, 2, 3, 4}) CheckVector(node, inputs, i, inputs[0].shape[axis]);
  ReadEpsilon(node, "epsilon", 1e-5);
  CheckFlags(node, {"scale", "center"});
  return {inputs[0], inputs[3], inputs[4]};
}

void LowerBatchNorm(const NodeReader& node, PlanBuilder* plan) {
  const Dims dims = node.RootDims();
  const int axis = node.Axis("axis", 1, static_cast<int>(dims.size()));
  const auto [src, axes] = BringChannelsSecond(node, plan, plan->Input(node, 0), axis);
  const auto vector = [&](int index) { return PlainFloats(node, plan, plan->Input(node, index)); };
  const Tensor mean = vector(3);
  const Tensor variance = vector(4);

  auto flags = dnnl::normalization_flags::use_global_stats;
  PlanBuilder::Args args = {
      {DNNL_ARG_SRC, src}, {DNNL_ARG_MEAN, mean}, {DNNL_ARG_VARIANCE, variance}};
  if (node.Get<bool>("scale", true)) {
    flags = flags | dnnl::normalization_flags::use_scale;
    args.emplace_back(DNNL_ARG_SCALE, vector(1));
  }
  if (node.Get<bool>("center", true)) {
    flags = flags | dnnl::normalization_flags::use_shift;
    args.emplace_back(DNNL_ARG_SHIFT, vector(2));
  }
  std::vector<std::string> fused;
  if (node.NumPostOps() > 0) {
    if (node.NumPostOps() > 1 || node.PostOp(0).OpName() != "nn.relu") {
      throw dnnl::error(dnnl_unimplemented, "only a relu can be fused to a batch_norm");
    }
    flags = flags | dnnl::normalization_flags::fuse_norm_relu;
    fused.push_back("eltwise_relu");
  }
  const auto epsilon = static_cast<float>(ReadEpsilon(node, "epsilon", 1e-5));
  Tensor dst;
  // Fewer columns are not worth a vector.
  constexpr int64_t kColumns = 16;
  if (IsPlain(src.md) && NumElements(src.dims()) > kColumns * src.dims()[0] * src.dims()[1]) {
    dst = NormalizeChannels(node, plan, src, {args.begin() + 1, args.end()}, epsilon, fused);
  } else {
    const BatchNorm::primitive_desc desc(plan->engine(), dnnl::prop_kind::forward_inference, src.md,
                                         src.md, epsilon, flags, PlanBuilder::NewAttr());
    dst = plan->NewTensor(desc.dst_desc());
    args.emplace_back(DNNL_ARG_DST, dst);
    plan->Emit(node, desc, BatchNorm(desc), args, fused);
  }

  plan->SetOutput(node, axes.empty() ? dst.Reshaped(dims) : dst.Permuted(InversePermutation(axes)));
  // At inference the moving statistics pass through.
  if (node.NumOutputs() > 1) plan->SetOutput(node, plan->Input(node, 3), 1);
  if (node.NumOutputs() > 2) plan->SetOutput(node, plan->Input(node, 4), 2);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
