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
 * \file src/runtime/contrib/dnnl/core/ops/eltwise.cc
 * \brief Unary elementwise ops.
 */
#include <cmath>

#include "../implementation.h"
#include "../op_table.h"
#include "../post_ops.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using Eltwise = dnnl::eltwise_forward;

/*! \brief An algorithm with its parameters. */
struct Function {
  dnnl::algorithm algorithm;
  float alpha;
  float beta;

  /*! \brief The descriptor that leaves the result in the layout of the source. */
  Eltwise::primitive_desc On(const dnnl::memory::desc& md, PlanBuilder* plan,
                             const dnnl::primitive_attr& attr) const {
    return Eltwise::primitive_desc(plan->engine(), dnnl::prop_kind::forward_inference, algorithm,
                                   md, md, alpha, beta, attr);
  }
};

}  // namespace

Types InferEltwise(const NodeReader& node, const Types& inputs) {
  CheckReal(node, inputs);
  const OpSpec& op = *FindOp(node.OpName());
  const auto [alpha, beta] = op.AlphaBeta(node);
  CORE_CHECK(!std::isnan(alpha) && !std::isnan(beta))
      << node.Where() << ": a parameter is not a number";
  CORE_CHECK(op.algorithm != dnnl::algorithm::eltwise_clip || alpha <= beta)
      << node.Where() << ": a_min " << alpha << " is above a_max " << beta;
  return inputs;
}

void LowerEltwise(const NodeReader& node, PlanBuilder* plan) {
  const OpSpec& op = *FindOp(node.OpName());
  const auto [alpha, beta] = op.AlphaBeta(node);
  Function function{op.algorithm, alpha, beta};
  const FusedOps fused =
      FusePostOps(node, plan, {-1, [](const Tensor& operand) { return operand; }});
  // The layout of the input is as good as any other, unless its padding must stay zero and the
  // function of zero is not: then oneDNN has slow code only.
  Tensor src = plan->Input(node, 0);
  if (IsReference(function.On(src.md, plan, fused.attr))) src = plan->Plain(node, src);
  if (op.is_reciprocal) {
    const auto desc = function.On(src.md, plan, PlanBuilder::NewAttr());
    const Tensor divisor = plan->NewTensor(desc.dst_desc());
    plan->Emit(node, desc, Eltwise(desc), {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, divisor}});
    src = divisor;
    function = {dnnl::algorithm::eltwise_pow, 1.f, -1.f};
  }
  const auto desc = function.On(src.md, plan, fused.attr);
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, Eltwise(desc),
             fused.AddTo({{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}}, node, plan, desc),
             fused.names);
  plan->OfferInPlace(DNNL_ARG_SRC);
  plan->SetOutput(node, dst);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
