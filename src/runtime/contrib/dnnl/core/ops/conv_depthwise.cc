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
 * \file src/runtime/contrib/dnnl/core/ops/conv_depthwise.cc
 * \brief Depthwise convolutions over three dimensions.
 */
#include <string>

#include "../implementation.h"
#include "../kernels/depthwise.h"
#include "conv.h"
#include "reduce.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

/*! \brief Whether oneDNN has code for it that is not a matrix multiplication for each channel. */
bool HasDepthwiseCode(const NodeReader& node, PlanBuilder* plan, const ConvTensors& conv) {
  const dnnl::memory::desc dst(conv.dst_dims, node.OutType(), Tag::any);
  const dnnl::convolution_forward::primitive_desc desc(
      plan->engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      AnyDesc(conv.src.md), AnyDesc(conv.weights.md), dst, conv.window.strides,
      conv.window.dilation, conv.window.pad_begin, conv.window.pad_end, PlanBuilder::NewAttr(),
      /*allow_empty=*/true);
  if (!desc || !IsNative(desc)) return false;
  const std::string kernel = desc.impl_info_str();
  // Such as x64:gemm:jit, x64:gemm_s8u8s32:jit and brgconv:avx512_core_fp16.
  return kernel.find("gemm") == std::string::npos && kernel.find("brgconv") == std::string::npos;
}

/*! \brief The layout in blocks of channels, of float32. */
dnnl::memory::desc InBlocks(const Dims& dims) {
  return dnnl::memory::desc(dims, Type::f32, DepthwiseLanes() == 8 ? Tag::nCdhw8c : Tag::nCdhw16c);
}

/*! \brief Where the blocks of channels of an image lie, in blocks or with the channels last. */
DepthwiseShape::Strides StridesOf(const dnnl::memory::desc& md) {
  const Dims strides = md.get_strides();
  const bool is_last = md.get_inner_blks().empty();
  return {strides[0], is_last ? DepthwiseLanes() : strides[1], strides[4]};
}

}  // namespace

bool EmitDepthwise3D(const NodeReader& node, PlanBuilder* plan, const ConvTensors& conv,
                     double flops) {
  if (conv.dst_dims.size() != 5 || HasDepthwiseCode(node, plan, conv)) return false;
  if (node.IsQuantized()) {
    throw dnnl::error(dnnl_unimplemented, "our depthwise kernel, which is faster, is in float32");
  }
  const int64_t lanes = DepthwiseLanes(), channels = conv.dst_dims[1];
  const auto in_float32 = [&](const Tensor& value) {
    return value.dtype() == Type::f32 ? value : Converted(node, plan, value, Type::f32);
  };
  Tensor src = in_float32(conv.src);
  const bool is_last = channels % lanes == 0 && src.md == ChannelsLast(src.md);
  if (!is_last) src = plan->InLayout(node, src, InBlocks(src.dims()));
  // (C, 1, 1, ...) as (C, 1, ...).
  Dims filters = conv.weights.dims();
  filters.erase(filters.begin() + 1);
  const Tensor weights = plan->Weights(
      node, plan->Reshaped(node, in_float32(conv.weights), filters),
      dnnl::memory::desc(filters, Type::f32, lanes == 8 ? Tag::Abcde8a : Tag::Abcde16a));
  const dnnl::memory::desc dst_md = InBlocks(conv.dst_dims);
  Tensor dst = plan->NewTensor(is_last ? ChannelsLast(dst_md) : dst_md);

  DepthwiseShape shape{conv.dst_dims[0], (channels + lanes - 1) / lanes, {}, {}, {}};
  for (int i = 0; i < 3; ++i) {
    shape.axes[i] = {src.dims()[i + 2],      conv.dst_dims[i + 2],        filters[i + 2],
                     conv.window.strides[i], conv.window.dilation[i] + 1, conv.window.pad_begin[i]};
  }
  shape.src = StridesOf(src.md);
  shape.dst = StridesOf(dst.md);
  const auto run = [shape](void* const* data) {
    DepthwiseConv(shape, static_cast<const float*>(data[0]), static_cast<const float*>(data[1]),
                  static_cast<float*>(data[2]));
  };
  plan->EmitKernel(node, "depthwise convolution", run,
                   {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, dst}});
  plan->SetVariant("blocks of channels", flops);
  const ResultView view{-1,
                        [&conv](const Tensor& operand) { return operand.Permuted(conv.dst_axes); }};
  // In blocks that are not full, they would be plain loops of oneDNN.
  if (node.NumPostOps() > 0 && channels % lanes != 0) dst = plan->Plain(node, dst);
  dst = WithPostOps(node, plan, dst, view);
  if (dst.dtype() != node.OutType()) dst = Cast(node, plan, dst, node.OutType());
  plan->SetOutput(node, dst.Permuted(InversePermutation(conv.dst_axes)));
  return true;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
