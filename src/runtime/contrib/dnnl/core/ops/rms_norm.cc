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
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "../exec/parallel.h"
#include "../fusion/quantization.h"
#include "../kernels/norm.h"
#include "../op_table.h"
#include "reduce.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*!
 * \brief Normalize float32 in one pass, with the same code for any number of rows: oneDNN has
 * primitives for the squares, their mean and the product, and generates code for each number.
 */
void LowerInOnePass(const NodeReader& node, PlanBuilder* plan, const Tensor& matrix) {
  const bool has_gamma = node.NumRootInputs() > 1;
  const Tensor dst = plan->NewTensor(matrix.md);
  PlanBuilder::Args args = {{DNNL_ARG_SRC, matrix}, {DNNL_ARG_DST, dst}};
  if (has_gamma) args.emplace_back(DNNL_ARG_SCALE, PlainFloats(node, plan, plan->Input(node, 1)));
  const int64_t rows = matrix.dims()[0], columns = matrix.dims()[1];
  const auto epsilon = static_cast<float>(node.Get<double>("epsilon"));
  // A thread is worth some 10 us.
  const int64_t grain = std::max<int64_t>(1, 65536 / columns);
  const auto run_as = [=](auto normalize, auto* type) {
    return [=](void* const* addresses) {
      const auto* from = static_cast<const float*>(addresses[0]);
      auto* to = static_cast<decltype(type)>(addresses[1]);
      const auto* gamma = has_gamma ? static_cast<const float*>(addresses[2]) : nullptr;
      ParallelFor(rows, grain, [&](int64_t first, int64_t end) {
        for (int64_t row = first; row < end; ++row) {
          normalize(from + row * columns, gamma, columns, epsilon, to + row * columns);
        }
      });
    };
  };
  plan->EmitKernel(node, "rms_norm", run_as(&NormalizeRMS, static_cast<float*>(nullptr)), args);
  plan->OfferInPlace(DNNL_ARG_SRC);
  plan->OfferKernel([run_as, md = dst.md](const dnnl::memory::desc& other) -> HostKernel {
    if (other != WithType(md, dnnl::memory::data_type::bf16)) return nullptr;
    return run_as(&NormalizeRMSTo, static_cast<uint16_t*>(nullptr));
  });
  plan->SetOutput(node, plan->Reshaped(node, dst, node.OutDims()));
}

/*! \brief 1 / sqrt(mean(x * x) + epsilon), one number for each row, in float32. */
Tensor InverseRoots(const NodeReader& node, PlanBuilder* plan, const Tensor& matrix) {
  const Tensor means = Reduced(node, plan, ReduceKind::kMeanOfSquares, matrix, {1});
  const Tensor epsilon = plan->NewNumber(node.Get<double>("epsilon"), 2);
  dnnl::post_ops chain;
  chain.append_eltwise(dnnl::algorithm::eltwise_sqrt, 0.f, 0.f);
  chain.append_eltwise(dnnl::algorithm::eltwise_pow, 1.f, -1.f);
  dnnl::primitive_attr attr = PlanBuilder::NewAttr();
  attr.set_post_ops(chain);
  const dnnl::binary::primitive_desc root(plan->engine(), dnnl::algorithm::binary_add, means.md,
                                          epsilon.md, means.md, attr);
  const Tensor roots = plan->NewTensor(root.dst_desc());
  plan->Emit(node, root, dnnl::binary(root),
             {{DNNL_ARG_SRC_0, means}, {DNNL_ARG_SRC_1, epsilon}, {DNNL_ARG_DST, roots}},
             {"eltwise_sqrt", "eltwise_pow"});
  return roots;
}

}  // namespace

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

void LowerRMSNorm(const NodeReader& node, PlanBuilder* plan) {
  const Tensor matrix = plan->Plain(node, FlattenRows(node, plan, plan->Input(node, 0)));
  if (matrix.dtype() == dnnl::memory::data_type::f32) {
    LowerInOnePass(node, plan, matrix);
    return;
  }
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
