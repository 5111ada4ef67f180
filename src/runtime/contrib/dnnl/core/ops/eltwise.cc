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
#include <algorithm>
#include <cmath>

#include "../exec/parallel.h"
#include "../fusion/post_ops.h"
#include "../fusion/quantization.h"
#include "../implementation.h"
#include "../kernels/functions.h"
#include "../op_table.h"
#include "changing_sizes.h"
#include "eltwise_int8.h"
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

/*! \brief The op by our own function, which is in float32. */
template <typename OwnFunction>
void LowerFunction(const NodeReader& node, PlanBuilder* plan, const OwnFunction& function) {
  if (node.NumPostOps() > 0) {
    throw dnnl::error(dnnl_unimplemented, "our functions do not support post-ops");
  }
  // Iterations of the loop, and how many of them are worth a thread.
  static constexpr int64_t kElements = 1024, kGrain = 4;
  const Tensor given = plan->Input(node, 0);
  const int64_t count = NumElements(given.dims());
  // The padding of blocks must stay zero, and what lies between the parts of a view as it is.
  const size_t bytes = count * dnnl::memory::data_type_size(given.dtype());
  Tensor src = given.md.get_size() == bytes ? given : plan->Plain(node, given);
  const auto type = src.dtype(), f32 = dnnl::memory::data_type::f32;
  const bool is_bfloat16 = type == dnnl::memory::data_type::bf16;
  if (!is_bfloat16) src = plan->InLayout(node, src, WithType(src.md, f32));
  const Tensor dst = plan->NewTensor(src.md);
  const auto run = [function, count, is_bfloat16](void* const* addresses) {
    const auto of_floats = [&](int64_t first, int64_t last) {
      const int64_t begin = first * kElements, end = std::min(last * kElements, count);
      function(static_cast<const float*>(addresses[0]) + begin,
               static_cast<float*>(addresses[1]) + begin, end - begin);
    };
    const auto of_bfloats = [&](int64_t first, int64_t last) {
      // In the cache, between two passes over it.
      float block[kElements];
      for (int64_t i = first * kElements; i < std::min(last * kElements, count); i += kElements) {
        const int64_t size = std::min(kElements, count - i);
        WidenBFloats(static_cast<const uint16_t*>(addresses[0]) + i, block, size);
        function(block, block, size);
        RoundToBFloats(block, static_cast<uint16_t*>(addresses[1]) + i, size);
      }
    };
    const int64_t blocks = (count + kElements - 1) / kElements;
    is_bfloat16 ? ParallelFor(blocks, kGrain, of_bfloats) : ParallelFor(blocks, kGrain, of_floats);
  };
  plan->EmitKernel(node, "eltwise", run, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  plan->OfferInPlace(DNNL_ARG_SRC);
  plan->SetOutput(node, plan->InLayout(node, dst, WithType(dst.md, type)));
}

/*! \brief Whether the node is a sigmoid, which our function computes faster where nothing is fused.
 */
bool IsOwnAlone(const NodeReader& node, const PlanBuilder& plan) {
  return FindOp(node.OpName())->algorithm == dnnl::algorithm::eltwise_logistic &&
         node.NumPostOps() == 0 && !node.IsQuantized() &&
         plan.Input(node, 0).dtype() == dnnl::memory::data_type::f32 &&
         !HasISA(dnnl::cpu_isa::avx512_core);
}

}  // namespace

Types InferEltwise(const NodeReader& node, const Types& inputs) {
  CheckReal(node, inputs);
  const OpSpec& op = *FindOp(node.OpName());
  const auto [alpha, beta] = op.AlphaBeta(node);
  CORE_CHECK(!std::isnan(alpha) && !std::isnan(beta)) << node.Where() << ": a parameter is NaN";
  CORE_CHECK(op.algorithm != dnnl::algorithm::eltwise_clip || alpha <= beta)
      << node.Where() << ": a_min " << alpha << " is above a_max " << beta;
  return inputs;
}

void LowerEltwise(const NodeReader& node, PlanBuilder* plan) {
  const OpSpec& op = *FindOp(node.OpName());
  if (node.IsDequantized(0)) return LowerDequantizedEltwise(node, plan);
  if (node.IsQuantized() && op.IsSlow(node)) {
    throw dnnl::error(dnnl_unimplemented, "our function, which is faster, is in float32");
  }
  if (const auto own = op.OwnFunction(node); own && !node.IsQuantized()) {
    return LowerFunction(node, plan, own);
  }
  if (IsOwnAlone(node, *plan)) return LowerFunction(node, plan, Sigmoid);
  if (LowerUnaryRows(node, plan)) return;
  const auto [alpha, beta] = op.AlphaBeta(node);
  Function function{op.algorithm, alpha, beta};
  const FusedOps fused =
      FusePostOps(node, plan, {-1, [](const Tensor& operand) { return operand; }});
  // The layout of the input is as good as any other, unless its padding must stay zero and the
  // function of zero is not: then oneDNN has slow code only.
  Tensor src = plan->Input(node, 0);
  if (node.OutType() != src.dtype()) {
    throw dnnl::error(dnnl_unimplemented, "elementwise primitives have one type");
  }
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
