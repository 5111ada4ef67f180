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
 * \file src/runtime/contrib/dnnl/core/ops/resize.cc
 * \brief Images of another size, of the nearest values or of values between neighbours.
 */
#include <string>
#include <vector>

#include "../op_table.h"
#include "image.h"

namespace tvm::runtime::contrib::dnnl_backend {

void LowerResize(const NodeReader& node, PlanBuilder* plan) {
  using Resampling = dnnl::resampling_forward;
  const std::string order = ChannelsFirst("NC", node.OutDims().size() - 2);
  const std::vector<int> axes = LayoutAxes(node, node.Get<std::string>("layout", order), order);
  const bool is_nearest = node.Get<std::string>("method") == "nearest_neighbor";
  Tensor src = plan->Input(node, 0).Permuted(axes);
  const FusedOps fused = FusePostOps(
      node, plan, {-1, [&axes](const Tensor& operand) { return operand.Permuted(axes); }});
  const dnnl::memory::desc dst_any(PermutedDims(node.OutDims(), axes), node.OutType(),
                                   dnnl::memory::format_tag::any);
  const auto describe = [&](const dnnl::memory::desc& src_md) {
    return Resampling::primitive_desc(
        plan->engine(), dnnl::prop_kind::forward_inference,
        is_nearest ? dnnl::algorithm::resampling_nearest : dnnl::algorithm::resampling_linear,
        src_md, dst_any, fused.attr);
  };
  const auto desc = DescribeForImage(node, plan, &src, describe);
  // The plain loops of oneDNN 3.2 read an operand of the result's shape wrongly.
  if (!IsNative(desc) && node.NumPostOps() > 0) {
    throw dnnl::error(dnnl_unimplemented, "no resampling accepts these post-ops");
  }
  EmitForImage<Resampling>(node, plan, src, desc, fused, axes);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
