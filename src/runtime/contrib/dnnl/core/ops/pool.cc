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
 * \file src/runtime/contrib/dnnl/core/ops/pool.cc
 * \brief Maximum and average pooling over windows, over everything, and adaptive.
 */
#include <algorithm>
#include <string>
#include <vector>

#include "../op_table.h"
#include "../quantization.h"
#include "image.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using Pool = dnnl::pooling_forward;

/*! \brief The window of a pool and how it moves. */
struct PoolWindow : Window {
  Dims kernel;
};

/*!
 * \brief The window of adaptive and global pooling, which depends on the shapes alone.
 *
 * Output i averages the inputs from floor(i * in / out) to ceil((i + 1) * in / out); the rules let
 * only those pass that are windows of one size at even distances.
 */
PoolWindow AdaptiveWindow(const Dims& in, const Dims& out) {
  PoolWindow window;
  for (size_t i = 2; i < in.size(); ++i) {
    window.strides.push_back(in[i] / out[i]);
    window.kernel.push_back((in[i] + out[i] - 1) / out[i]);
  }
  window.dilation = window.pad_begin = window.pad_end = Dims(window.kernel.size(), 0);
  return window;
}

/*! \brief The window that the attributes describe, padded at the end so far as the outputs need. */
PoolWindow ReadWindow(const NodeReader& node, const Dims& in, const Dims& out) {
  const size_t spatial = in.size() - 2;
  PoolWindow window;
  static_cast<Window&>(window) = Window::Read(node, spatial);
  window.kernel = node.Get<std::vector<int64_t>>("pool_size");
  if (window.kernel.size() == 1) window.kernel = Dims(spatial, window.kernel[0]);
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t reach = (window.kernel[i] - 1) * (window.dilation[i] + 1) + 1;
    const int64_t end = (out[i + 2] - 1) * window.strides[i] + reach;
    window.pad_end[i] = std::max(window.pad_end[i], end - window.pad_begin[i] - in[i + 2]);
  }
  return window;
}

/*!
 * \brief What is fused to a pool. One of quantized numbers gives numbers of the same scale and zero
 * point, as it computes no sum that is not divided.
 */
FusedOps ReadFused(const NodeReader& node, PlanBuilder* plan, dnnl::algorithm algorithm,
                   ResultView view) {
  if (!node.IsQuantized()) return FusePostOps(node, plan, view);
  if (!node.IsDequantized(0)) throw dnnl::error(dnnl_unimplemented, "pools have one type");
  const NodeReader dequantize = node.Dequantization(0);
  const Dims dims = plan->Input(node, 0).dims();
  const auto from = Quantization::Read(dequantize, plan, dims).Values(dequantize, plan);
  const auto [scale, zero_point] = from;
  if (algorithm == dnnl::algorithm::pooling_avg_include_padding && zero_point != 0) {
    throw dnnl::error(dnnl_unimplemented, "the padding is no zero point");
  }
  if (node.NumPostOps() == 1) {
    const NodeReader last = node.PostOp(0);
    const bool is_same = last.OpName() == "qnn.quantize" &&
                         Quantization::Read(last, plan, dims).Values(last, plan) == from;
    if (is_same) return FusePostOps(node.WithoutPostOps(), plan, view);
  }
  view.scale = scale;
  view.shift = -scale * zero_point;
  return FusePostOps(node, plan, view);
}

}  // namespace

void LowerPool(const NodeReader& node, PlanBuilder* plan) {
  const std::string order = ChannelsFirst("NC", node.OutDims().size() - 2);
  const std::vector<int> axes = LayoutAxes(node, node.Get<std::string>("layout", order), order);
  const Dims dst_dims = PermutedDims(node.OutDims(), axes);
  Tensor src = plan->Input(node, 0).Permuted(axes);
  const PoolWindow window = node.Has("pool_size") ? ReadWindow(node, src.dims(), dst_dims)
                                                  : AdaptiveWindow(src.dims(), dst_dims);
  auto algorithm = FindOp(node.OpName())->algorithm;
  if (node.Get<bool>("count_include_pad", false)) {
    algorithm = dnnl::algorithm::pooling_avg_include_padding;
  }
  const FusedOps fused =
      ReadFused(node, plan, algorithm,
                {-1, [&axes](const Tensor& operand) { return operand.Permuted(axes); }});
  const dnnl::memory::desc dst_any(dst_dims, node.OutType(), dnnl::memory::format_tag::any);
  const auto describe = [&](const dnnl::memory::desc& src_md) {
    return Pool::primitive_desc(plan->engine(), dnnl::prop_kind::forward_inference, algorithm,
                                src_md, dst_any, window.strides, window.kernel, window.dilation,
                                window.pad_begin, window.pad_end, fused.attr);
  };
  const auto desc = DescribeForImage(node, plan, &src, describe);
  EmitForImage<Pool>(node, plan, src, desc, fused, axes);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
