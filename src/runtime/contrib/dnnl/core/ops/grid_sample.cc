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
 * \file src/runtime/contrib/dnnl/core/ops/grid_sample.cc
 * \brief Samples images at computed coordinates.
 */
#include "../kernels/grid_sample.h"

#include <cstdint>
#include <string>

#include "../op_table.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

struct Sampling {
  bool align_corners, is_border;
};

Sampling ReadSampling(const NodeReader& node) {
  const auto padding = node.Get<std::string>("padding_mode", "zeros");
  CORE_CHECK(padding == "zeros" || padding == "border")
      << node.Where() << ": padding_mode is " << padding << ", expected: zeros or border";
  const auto method = node.Get<std::string>("method", "bilinear");
  const auto layout = node.Get<std::string>("layout", "NCHW");
  CORE_CHECK(method == "bilinear" && layout == "NCHW")
      << node.Where() << ": method is " << method << " and layout " << layout
      << ", expected: bilinear and NCHW";
  return {node.Get<bool>("align_corners", true), padding == "border"};
}

}  // namespace

Types InferGridSample(const NodeReader& node, const Types& inputs) {
  for (int i : {0, 1}) CheckRank(node, inputs, i, 4);
  const Dims &data = inputs[0].shape, &grid = inputs[1].shape;
  CORE_CHECK(inputs[0].dtype == kFloat32 && inputs[1].dtype == kFloat32)
      << node.Where() << ": data and grid are " << ToText(inputs[0]) << " and " << ToText(inputs[1])
      << ", expected: float32";
  CORE_CHECK(grid[0] == data[0] && grid[1] == 2)
      << node.Where() << ": data is " << ToText(inputs[0]) << ", but the grid is "
      << ToText(inputs[1]);
  // Refuses what the lowering could not read.
  ReadSampling(node);
  return {{{data[0], data[1], grid[2], grid[3]}, kFloat32}};
}

void LowerGridSample(const NodeReader& node, PlanBuilder* plan) {
  const Tensor data = plan->Plain(node, plan->Input(node, 0));
  const Tensor grid = plan->Plain(node, plan->Input(node, 1));
  const Tensor dst = plan->NewTensor(PlainDesc(node.OutDims(), node.OutType()));
  const Dims &image = data.dims(), &out = dst.dims();
  const Sampling sampling = ReadSampling(node);
  const GridSampleKernel kernel = {image[0],          image[1],        image[2],
                                   image[3],          out[2] * out[3], sampling.align_corners,
                                   sampling.is_border};
  const auto run = [kernel](void* const* at) {
    kernel.Run(static_cast<const float*>(at[0]), static_cast<const float*>(at[1]),
               static_cast<float*>(at[2]));
  };
  plan->EmitKernel(node, "grid_sample", run,
                   {{DNNL_ARG_SRC_0, data}, {DNNL_ARG_SRC_1, grid}, {DNNL_ARG_DST, dst}});
  plan->SetOutput(node, dst);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
