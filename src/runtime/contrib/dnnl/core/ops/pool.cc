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

}  // namespace

void LowerPool(const NodeReader& node, PlanBuilder* plan) {
  const std::string order = ChannelsFirst("NC", node.OutDims().size() - 2);
  const std::vector<int> axes = LayoutAxes(node, node.Get<std::string>("layout", order), order);
  const Dims dst_dims = PermutedDims(node.OutDims(), axes);
  Tensor src = plan->Input(node, 0).Permuted(axes);
  const PoolWindow window = node.Has("pool_size") ? ReadWindow(node, src.dims(), dst_dims)
                                                  : AdaptiveWindow(src.dims(), dst_dims);
  const FusedOps fused = FusePostOps(
      node, plan, {-1, [&axes](const Tensor& operand) { return operand.Permuted(axes); }});
  auto algorithm = FindOp(node.OpName())->algorithm;
  if (node.Get<bool>("count_include_pad", false)) {
    algorithm = dnnl::algorithm::pooling_avg_include_padding;
  }
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
