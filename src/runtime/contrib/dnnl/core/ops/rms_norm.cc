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
 * \file src/runtime/contrib/dnnl/core/ops/rms_norm.cc
 * \brief Normalization by the root of the mean of squares, along the last axis.
 */
#include <string>
#include <vector>

#include "../op_table.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief 1 / sqrt(mean(x * x) + epsilon), one number for each row, in float32. */
Tensor InverseRoots(const NodeReader& node, PlanBuilder* plan, const Tensor& matrix) {
  const auto f32 = dnnl::memory::data_type::f32;
  const Tensor squares = Squares(node, plan, matrix);
  dnnl::post_ops chain;
  chain.append_eltwise(dnnl::algorithm::eltwise_linear, 1.f,
                       static_cast<float>(node.Get<double>("epsilon")));
  chain.append_eltwise(dnnl::algorithm::eltwise_sqrt, 0.f, 0.f);
  chain.append_eltwise(dnnl::algorithm::eltwise_pow, 1.f, -1.f);
  dnnl::primitive_attr attr = PlanBuilder::NewAttr();
  attr.set_post_ops(chain);
  const dnnl::reduction::primitive_desc mean(plan->engine(), dnnl::algorithm::reduction_mean,
                                             squares.md, PlainDesc({matrix.dims()[0], 1}, f32), 0.f,
                                             0.f, attr);
  const Tensor roots = plan->NewTensor(mean.dst_desc());
  plan->Emit(node, mean, dnnl::reduction(mean), {{DNNL_ARG_SRC, squares}, {DNNL_ARG_DST, roots}},
             {"eltwise_linear", "eltwise_sqrt", "eltwise_pow"});
  return roots;
}

}  // namespace

Types InferRMSNorm(const NodeReader& node, const Types& inputs) {
  CheckReal(node, inputs);
  CheckMinRank(node, inputs, 0, 1);
  ReadEpsilon(node, "epsilon", -1);
  if (inputs.size() > 1) {
    // One factor for each column, with any number of ones in front.
    const Dims gamma = inputs[1].shape;
    CORE_CHECK(!gamma.empty() && gamma.back() == inputs[0].shape.back() &&
               NumElements(gamma) == gamma.back())
        << node.Where() << ": a scale of shape " << ToText(gamma) << " does not fit rows of "
        << inputs[0].shape.back();
  }
  return {inputs[0]};
}

void LowerRMSNorm(const NodeReader& node, PlanBuilder* plan) {
  const Tensor matrix = plan->Plain(node, FlattenRows(node, plan, plan->Input(node, 0)));
  const Tensor roots = InverseRoots(node, plan, matrix);
  PlanBuilder::Args args = {{DNNL_ARG_SRC_0, matrix}, {DNNL_ARG_SRC_1, roots}};
  dnnl::primitive_attr attr = PlanBuilder::NewAttr();
  std::vector<std::string> names;
  if (node.NumRootInputs() > 1) {
    // (x * root) * gamma in one step.
    const Tensor gamma = plan->Plain(node, plan->Input(node, 1)).Reshaped({1, matrix.dims()[1]});
    dnnl::post_ops chain;
    chain.append_binary(dnnl::algorithm::binary_mul, gamma.md);
    attr.set_post_ops(chain);
    args.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, gamma);
    names.push_back("binary_mul");
  }
  const dnnl::binary::primitive_desc desc(plan->engine(), dnnl::algorithm::binary_mul, matrix.md,
                                          roots.md, matrix.md, attr);
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  args.emplace_back(DNNL_ARG_DST, dst);
  plan->Emit(node, desc, dnnl::binary(desc), args, names);
  plan->SetOutput(node, plan->Reshaped(node, dst, node.OutDims()));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
