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
#include "../fusion/quantization.h"
#include "../kernels/norm.h"
#include "../op_table.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

Types InferRMSNorm(const NodeReader& node, const Types& inputs) {
  CheckReal(node, inputs);
  CheckMinRank(node, inputs, 0, 1);
  ReadEpsilon(node, "epsilon", -1);
  if (inputs.size() > 1) {
    // One factor for each column, with any number of leading dimensions of 1.
    const Dims gamma = inputs[1].shape;
    CORE_CHECK(!gamma.empty() && gamma.back() == inputs[0].shape.back() &&
               NumElements(gamma) == gamma.back())
        << node.Where() << ": a scale of shape " << ToText(gamma) << " does not fit rows of "
        << inputs[0].shape.back();
  }
  return {inputs[0]};
}

// By one kernel of ours: oneDNN has primitives for the squares, their mean and the product, and
// generates code for each number of rows.
void LowerRMSNorm(const NodeReader& node, PlanBuilder* plan) {
  const auto f32 = dnnl::memory::data_type::f32, bf16 = dnnl::memory::data_type::bf16;
  const Tensor matrix = plan->Plain(node, FlattenRows(node, plan, plan->Input(node, 0)));
  const bool is_bfloat16 = matrix.dtype() == bf16, has_gamma = node.NumRootInputs() > 1;
  const Tensor src = is_bfloat16 ? matrix : plan->InLayout(node, matrix, WithType(matrix.md, f32));
  const Tensor dst = plan->NewTensor(src.md);
  PlanBuilder::Args args = {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}};
  if (has_gamma) args.emplace_back(DNNL_ARG_SCALE, PlainFloats(node, plan, plan->Input(node, 1)));
  const auto kernel = [=, rows = src.dims()[0], columns = src.dims()[1],
                       epsilon = static_cast<float>(node.Get<double>("epsilon"))](
                          bool writes_bfloat16) -> HostKernel {
    const NormRows norm{
        rows, columns, 1, 1, epsilon, is_bfloat16, writes_bfloat16, /*is_centered=*/false};
    return [norm, has_gamma](void* const* addresses) {
      const auto* gamma = has_gamma ? static_cast<const float*>(addresses[2]) : nullptr;
      NormalizeRows(norm, addresses[0], gamma, nullptr, addresses[1]);
    };
  };
  plan->EmitKernel(node, "rms_norm", kernel(is_bfloat16), args);
  plan->OfferInPlace(DNNL_ARG_SRC);
  plan->OfferKernel([kernel, md = WithType(dst.md, bf16)](const dnnl::memory::desc& other) {
    return other == md ? kernel(true) : HostKernel();
  });
  plan->SetOutput(node,
                  plan->Reshaped(node, plan->InLayout(node, dst, WithType(dst.md, matrix.dtype())),
                                 node.OutDims()));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
