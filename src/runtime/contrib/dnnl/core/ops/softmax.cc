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
 * \file src/runtime/contrib/dnnl/core/ops/softmax.cc
 * \brief Softmax and its logarithm, along any axis.
 */
#include <string>

#include "../fusion/quantization.h"
#include "../implementation.h"
#include "../kernels/log_softmax.h"
#include "../op_table.h"
#include "changing_sizes.h"
#include "nan_rows.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Lower the logarithm along the last axis of row-major data; false for all else. */
bool LowerLogSoftmaxRows(const NodeReader& node, PlanBuilder* plan) {
  const Tensor data = plan->Input(node, 0);
  const Dims dims = data.dims();
  const int last = static_cast<int>(dims.size()) - 1;
  const bool is_log = FindOp(node.OpName())->algorithm == dnnl::algorithm::softmax_log;
  if (!is_log || node.Axis("axis", -1, last + 1) != last || !IsPlain(data.md)) return false;
  const Tensor src = PlainFloats(node, plan, data);
  const int64_t columns = dims.back(), rows = NumElements(dims) / columns;
  const Tensor dst = plan->NewTensor(src.md);
  const auto run = [rows, columns](void* const* data) {
    LogSoftmaxOfRows(static_cast<const float*>(data[0]), static_cast<float*>(data[1]), rows,
                     columns);
  };
  plan->EmitKernel(node, "softmax", run, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  plan->OfferInPlace(DNNL_ARG_SRC);
  plan->SetOutput(node, plan->InLayout(node, dst, WithType(dst.md, data.dtype())));
  return true;
}

}  // namespace

ZeroRows ZeroRowsOf(const std::string& op) {
  if (op == "dnnl.masked_softmax") return ZeroRows::kMasked;
  return op == "dnnl.nan_safe_softmax" ? ZeroRows::kAll : ZeroRows::kNone;
}

Types InferSoftmax(const NodeReader& node, const Types& inputs) {
  CheckReal(node, inputs);
  node.Axis("axis", -1, static_cast<int>(inputs[0].shape.size()));
  return inputs;
}

void LowerSoftmax(const NodeReader& node, PlanBuilder* plan) {
  using Softmax = dnnl::softmax_forward;
  if (LowerLogSoftmaxRows(node, plan) || LowerSoftmaxRows(node, plan)) return;
  const ZeroRows zeros = ZeroRowsOf(node.OpName());
  const auto describe = [&](const dnnl::memory::desc& md, int axis) {
    return Softmax::primitive_desc(plan->engine(), dnnl::prop_kind::forward_inference,
                                   FindOp(node.OpName())->algorithm, md, md, axis,
                                   PlanBuilder::NewAttr());
  };
  const auto emit = [&](const Softmax::primitive_desc& desc, const Tensor& src, int axis) {
    const Tensor dst = plan->NewTensor(desc.dst_desc());
    plan->Emit(node, desc, Softmax(desc), {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
    // The scores tell which rows are masked.
    if (zeros != ZeroRows::kMasked) plan->OfferInPlace(DNNL_ARG_SRC);
    SpreadNaN(plan, dst, axis, zeros);
    return dst;
  };
  const Tensor src = plan->Input(node, 0);
  const int axis = node.Axis("axis", -1, static_cast<int>(src.dims().size()));
  const auto desc = describe(src.md, axis);
  if (!IsReference(desc)) return plan->SetOutput(node, emit(desc, src, axis));
  // Where the axis is not the innermost in memory it is made so.
  const RowsAlong rows(node, plan, src, {axis});
  const Tensor dst = emit(describe(rows.matrix().md, 1), rows.matrix(), 1);
  plan->SetOutput(node, rows.Restore(dst));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
