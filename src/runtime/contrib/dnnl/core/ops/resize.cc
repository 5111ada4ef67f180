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
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "../op_table.h"
#include "image.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The factor of an upsampling along a spatial dimension, 'D', 'H' or 'W'. */
int64_t Scaled(const NodeReader& node, int64_t size, char dimension) {
  const std::string key = std::string("scale_") + static_cast<char>(dimension - 'A' + 'a');
  // As Relay's type relation computes it.
  const float result = std::nearbyint(static_cast<float>(size) * node.Get<float>(key, 1));
  CORE_CHECK(result >= 1 && result < static_cast<float>(kMaxSize))
      << node.Where() << ": " << key << " makes " << result << " values of " << size;
  return static_cast<int64_t>(result);
}

}  // namespace

Types InferResize(const NodeReader& node, const Types& inputs) {
  const size_t spatial = SpatialOf(node);
  CheckReal(node, inputs);
  CheckRank(node, inputs, 0, spatial + 2);
  const auto method = node.Get<std::string>("method");
  CORE_CHECK(method == "nearest_neighbor" || method == "linear" || method == "bilinear" ||
             method == "trilinear")
      << node.Where() << ": method " << method << " is none that oneDNN has";
  const std::vector<int> axes = ImageAxes(node);
  Dims dims = PermutedDims(inputs[0].shape, axes);
  if (node.Has("size")) {
    const auto size = node.Get<std::vector<int64_t>>("size");
    CheckSizes(node, "size", size, 1);
    CORE_CHECK(size.size() == spatial) << node.Where() << ": size " << ToText(size)
                                       << " does not fit " << spatial << " spatial dimensions";
    std::copy(size.begin(), size.end(), dims.begin() + 2);
  } else {
    const std::string letters = ChannelsFirst("NC", spatial);
    for (size_t i = 2; i < dims.size(); ++i) dims[i] = Scaled(node, dims[i], letters[i]);
  }
  return {{PermutedDims(dims, InversePermutation(axes)),
           ReadRealType(node, "out_dtype", inputs[0].dtype)}};
}

void LowerResize(const NodeReader& node, PlanBuilder* plan) {
  using Resampling = dnnl::resampling_forward;
  const std::vector<int> axes = ImageAxes(node);
  const bool is_nearest = node.Get<std::string>("method") == "nearest_neighbor";
  Tensor src = plan->Input(node, 0).Permuted(axes);
  const FusedOps fused = FusePostOps(
      node, plan, {-1, [&axes](const Tensor& operand) { return operand.Permuted(axes); }});
  const Dims src_dims = src.dims(), dst_dims = PermutedDims(node.RootDims(), axes);
  // One position is the same in several layouts. The code of oneDNN 3.6.2 for AVX-512 confuses
  // them, and reads and writes outside of source and result; that of 3.2 does not.
  const bool is_confused =
      std::all_of(src_dims.begin() + 2, src_dims.end(), [](int64_t dim) { return dim == 1; }) &&
      dnnl_version()->minor > 2;
  const dnnl::memory::desc dst_md =
      is_confused ? PlainDesc(dst_dims, node.OutType())
                  : dnnl::memory::desc(dst_dims, node.OutType(), dnnl::memory::format_tag::any);
  const auto describe = [&](const dnnl::memory::desc& src_md) {
    Resampling::primitive_desc desc(
        plan->engine(), dnnl::prop_kind::forward_inference,
        is_nearest ? dnnl::algorithm::resampling_nearest : dnnl::algorithm::resampling_linear,
        src_md, dst_md, fused.attr);
    while (is_confused && IsNative(desc) && desc.next_impl()) continue;
    return desc;
  };
  const auto desc = DescribeForImage(node, plan, &src, describe);
  // The plain loops of oneDNN 3.2 read an operand of the result's shape wrongly.
  if (!IsNative(desc) && node.NumPostOps() > 0) {
    throw dnnl::error(dnnl_unimplemented, "no resampling accepts these post-ops");
  }
  EmitForImage<Resampling>(node, plan, src, desc, fused, axes);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
