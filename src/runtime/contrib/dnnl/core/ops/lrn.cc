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
 * \file src/runtime/contrib/dnnl/core/ops/lrn.cc
 * \brief Local response normalization across channels.
 */
#include <cmath>
#include <vector>

#include "../implementation.h"
#include "../op_table.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

Types InferLRN(const NodeReader& node, const Types& inputs) {
  CheckReal(node, inputs);
  CheckRank(node, inputs, 0, 4);
  const int axis = node.Axis("axis", 1, 4);
  CORE_CHECK(axis == 1 || axis == 3) << node.Where() << ": axis is " << axis << ", expected: 1, 3";
  const int64_t size = ReadSize(node, "size", 5, 1);
  CORE_CHECK(size % 2 == 1) << node.Where() << ": size is " << size << ", which is not odd";
  for (const char* key : {"alpha", "beta", "bias"}) {
    CORE_CHECK(std::isfinite(node.Get<double>(key, 1)))
        << node.Where() << ": " << key << " is not finite";
  }
  return inputs;
}

void LowerLRN(const NodeReader& node, PlanBuilder* plan) {
  using LRN = dnnl::lrn_forward;
  const std::vector<int> to_nhwc = {0, 2, 3, 1};
  const std::vector<int> to_nchw = {0, 3, 1, 2};
  const bool is_nhwc = node.Axis("axis", 1, 4) == 3;
  const auto describe = [&](const dnnl::memory::desc& md) {
    return LRN::primitive_desc(
        plan->engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::lrn_across_channels,
        md, md, node.Get<int>("size", 5), static_cast<float>(node.Get<double>("alpha", 1e-4)),
        static_cast<float>(node.Get<double>("beta", 0.75)),
        static_cast<float>(node.Get<double>("bias", 2)), PlanBuilder::NewAttr());
  };
  Tensor src = plan->Input(node, 0);
  if (is_nhwc) src = src.Permuted(to_nchw);
  auto desc = describe(src.md);
  if (IsReference(desc)) {
    // With the channels innermost oneDNN has fast code for any number of them.
    src = plan->Plain(node, src.Permuted(to_nhwc)).Permuted(to_nchw);
    desc = describe(src.md);
  }
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, LRN(desc), {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  plan->SetOutput(node, is_nhwc ? dst.Permuted(to_nhwc) : dst);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
