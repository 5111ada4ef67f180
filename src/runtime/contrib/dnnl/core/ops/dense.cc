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
 * \file src/runtime/contrib/dnnl/core/ops/dense.cc
 * \brief Fully connected layers.
 */
#include "../op_table.h"
#include "../post_ops.h"
#include "rows.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using InnerProduct = dnnl::inner_product_forward;

// In µs on two cores, as an inner_product and as a matmul:
//   128x512 by 512x2048    805  806      131x192 by 192x768   150  103
//   16x1024 by 1024x1024   127  136      197x192 by 192x768   206  164
//   8x1024 by 1024x1000     94   98      197x768 by 768x768   844  638
//   198x192 by 192x768     158  154      577x192 by 192x768   514  469
//   256x512 by 512x512     353  361
// An inner_product shares out the rows badly where their number has no good divisor.
/*! \brief With more rows than this a matmul of packed weights is as fast or faster. */
constexpr int64_t kRowsOfInnerProduct = 128;

}  // namespace

void LowerDense(const NodeReader& node, PlanBuilder* plan) {
  // Weights that are computed would be packed at every run; a matmul reads them as they are. For
  // packed constants and few rows it makes no difference: in µs on two cores, with the weights not
  // in the caches, as an inner_product, a matmul and a 1x1 convolution of rows,
  //   128x512 by 512x2048   911  910  910      1x1024 by 1024x1000    75   75   75
  //   128x2048 by 2048x512  913  893  916     32x1024 by 1024x1000   300  307  293
  // A matmul of weights that are not packed needs 964 to 1059 for the first two, 120 for the third.
  const Dims out_dims = node.RootDims();
  const bool is_constant = plan->IsConstant(plan->Input(node, 1));
  // Quantized, too: an inner_product has no zero points.
  if (!is_constant || node.IsQuantized() || AsRows(out_dims)[0] > kRowsOfInnerProduct) {
    return LowerMatMul(node, plan);
  }
  const Tensor src = FlattenRows(node, plan, plan->Input(node, 0));
  const Tensor weights = plan->Input(node, 1);
  const dnnl::memory::desc dst_any(AsRows(out_dims), node.OutType(), dnnl::memory::format_tag::any);
  ResultView view{static_cast<int>(out_dims.size()) - 1,
                  [&](const Tensor& operand) { return FlattenRows(node, plan, operand); }};
  view.kept_dims = 1;
  const FusedOps fused = FusePostOps(node, plan, view);

  const auto describe = [&](const dnnl::memory::desc& src_md, const dnnl::memory::desc& weights_md,
                            const dnnl::memory::desc& dst_md, const dnnl::primitive_attr& attr,
                            bool allow_empty) {
    return InnerProduct::primitive_desc(plan->engine(), dnnl::prop_kind::forward_inference, src_md,
                                        weights_md, fused.BiasDesc(), dst_md, attr, allow_empty);
  };
  const auto desc = describe(AnyDesc(src.md), AnyDesc(weights.md), dst_any, fused.attr, false);

  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, InnerProduct(desc),
             fused.AddTo({{DNNL_ARG_SRC, plan->InLayout(node, src, desc.src_desc())},
                          {DNNL_ARG_WEIGHTS, plan->InLayout(node, weights, desc.weights_desc())},
                          {DNNL_ARG_DST, dst}},
                         node, plan, desc),
             fused.names);
  plan->SetVariant("inner_product, weights packed once", MatMulFlops(node, *plan));
  fused.OfferSum<InnerProduct>(plan, desc, describe);
  plan->SetOutput(node, plan->Reshaped(node, dst, node.OutDims()));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
