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
 * \file src/runtime/contrib/dnnl/core/ops/conv_windows.cc
 * \brief Convolutions whose windows lie side by side.
 */
#include <numeric>
#include <vector>

#include "../faults.h"
#include "../fusion/post_ops.h"
#include "../implementation.h"
#include "conv.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Whether the windows lie side by side and fill what they move over. */
bool HasWindowsApart(const ConvTensors& conv) {
  const Dims weights = conv.weights.dims();
  if (weights.size() != conv.dst_dims.size()) return false;
  const Window& window = conv.window;
  for (size_t i = 0; i < window.strides.size(); ++i) {
    const bool is_cut = window.pad_begin[i] != 0 || window.pad_end[i] != 0;
    if (window.strides[i] != weights[i + 2] || window.dilation[i] != 0 || is_cut) return false;
  }
  return true;
}

}  // namespace

void ReadAsPatches(const NodeReader& node, PlanBuilder* plan, ConvTensors* conv) {
  constexpr int64_t kFewChannels = 4;
  const Dims src = conv->src.dims(), weights = conv->weights.dims();
  const int spatial = static_cast<int>(src.size()) - 2;
  const bool is_last = conv->src.md.get_strides()[1] == 1;
  if (src[1] > kFewChannels || is_last || !HasWindowsApart(*conv)) return;
  // Without AVX2, oneDNN's 1x1 convolutions are plain loops.
  if (!HasISA(dnnl::cpu_isa::avx2)) return;
  // (N, C, H, W) to (N, H, W, C, kernel, kernel).
  Dims split = {src[0], src[1]}, rows = {src[0]}, filters(src.size(), 1);
  std::vector<int> to_patches = {0}, to_first = {0, spatial + 1}, inside = {1};
  for (int i = 0; i < spatial; ++i) {
    const int64_t kernel = weights[i + 2], count = src[i + 2] / kernel;
    if (kernel == 1 || count * kernel != src[i + 2]) return;
    split.insert(split.end(), {count, kernel});
    rows.push_back(count);
    to_patches.push_back(2 * i + 2);
    inside.push_back(2 * i + 3);
    to_first.push_back(i + 1);
  }
  to_patches.insert(to_patches.end(), inside.begin(), inside.end());
  filters[0] = weights[0];
  filters[1] = NumElements(weights) / weights[0];
  rows.push_back(filters[1]);
  const Tensor patches = plan->Reshaped(node, conv->src, split).Permuted(to_patches);
  conv->src = plan->Reshaped(node, patches, rows).Permuted(to_first);
  conv->weights = plan->Reshaped(node, conv->weights, filters);
  conv->window.strides = Dims(spatial, 1);
  conv->has_patches = true;
}

bool EmitWindowsApart(const NodeReader& node, PlanBuilder* plan, const ConvTensors& conv,
                      double flops) {
  constexpr int64_t kFewChannels = 8;
  const int64_t channels = conv.dst_dims[1];
  if (conv.int8 || channels > kFewChannels || !HasWindowsApart(conv)) return false;
  const PlanBuilder::Mark mark = plan->Here();
  FusedOps fused = FuseInt8(node, plan, {conv.dst_axes[1], [](const Tensor& each) { return each; }},
                            {}, /*mask=*/0, /*is_padded=*/false);
  const bool is_known = !fused.bias.defined() || plan->IsConstant(fused.bias);
  if (!is_known || !fused.operands.empty()) return plan->BackTo(mark), false;

  const Dims src = conv.src.dims(), weights = conv.weights.dims();
  const Dims kernel(weights.begin() + 2, weights.end());
  const int spatial = static_cast<int>(kernel.size());
  // The channels of a window lie together: (values of the window, O).
  std::vector<int> last(spatial);
  std::iota(last.begin(), last.end(), 2);
  last.insert(last.end(), {0, 1});
  Dims filters(weights.size(), 1), dims = src;
  filters[0] = dims[1] = NumElements(kernel) * channels;
  filters[1] = weights[1];
  const Tensor rows = plan->Reshaped(node, conv.weights.Permuted(last), filters);
  if (fused.bias.defined()) {
    const Tensor bias = Cast(node, plan, fused.bias, dnnl::memory::data_type::f32);
    const std::vector<float> once = plan->ValuesOf<float>(node, bias);
    std::vector<float> each;
    for (int64_t i = 0; i < NumElements(kernel); ++i) {
      each.insert(each.end(), once.begin(), once.end());
    }
    fused.bias = plan->NewConstant(each);
  }
  const Dims ones(spatial, 1), zeros(spatial, 0);
  dnnl::convolution_forward::primitive_desc desc(
      plan->engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      AnyDesc(conv.src.md), AnyDesc(rows.md), fused.BiasDesc(),
      ChannelsLast(PlainDesc(dims, node.OutType())), ones, zeros, zeros, zeros, fused.attr,
      /*allow_empty=*/true);
  if (!SkipFaulty(&desc) || IsReference(desc)) return plan->BackTo(mark), false;

  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, dnnl::convolution_forward(desc),
             fused.AddTo({{DNNL_ARG_SRC, plan->InLayout(node, conv.src, desc.src_desc())},
                          {DNNL_ARG_WEIGHTS, plan->Weights(node, rows, desc.weights_desc())},
                          {DNNL_ARG_DST, dst}},
                         node, plan, desc),
             fused.names);
  plan->SetVariant("1x1 convolution", flops);

  // (N, H, W, kernel, O) to (N, H, kernel, W, kernel, O).
  Dims split = {src[0]}, joined = {src[0]};
  std::vector<int> to_last = {0}, apart = {0}, to_first = {0, spatial + 1};
  for (int i = 0; i < spatial; ++i) {
    split.push_back(src[i + 2]);
    joined.push_back(conv.dst_dims[i + 2]);
    to_last.push_back(i + 2);
    apart.insert(apart.end(), {i + 1, i + 1 + spatial});
    to_first.push_back(i + 1);
  }
  split.insert(split.end(), kernel.begin(), kernel.end());
  split.push_back(channels);
  joined.push_back(channels);
  to_last.push_back(1);
  apart.push_back(2 * spatial + 1);
  const Tensor windows = plan->Reshaped(node, dst.Permuted(to_last), split).Permuted(apart);
  const Tensor result = plan->Reshaped(node, windows, joined).Permuted(to_first);
  plan->SetOutput(node, result.Permuted(InversePermutation(conv.dst_axes)));
  return true;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
