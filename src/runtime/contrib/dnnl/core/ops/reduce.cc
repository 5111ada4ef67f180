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
 * \file src/runtime/contrib/dnnl/core/ops/reduce.cc
 * \brief Reductions over any axes.
 */
#include <algorithm>
#include <limits>
#include <vector>

#include "../exec/parallel.h"
#include "../op_table.h"
#include "../post_ops.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using Reduction = dnnl::reduction;

/*! \brief Relay's attributes axis and exclude: no axis means all of them. */
std::vector<int> ReducedAxes(const NodeReader& node, int rank) {
  const std::vector<int> listed = ReadAxes(node, "axis", rank);
  const bool exclude = node.Get<bool>("exclude", false);
  std::vector<int> axes;
  for (int axis = 0; axis < rank; ++axis) {
    const bool is_listed = std::count(listed.begin(), listed.end(), axis) > 0;
    if (listed.empty() || is_listed != exclude) axes.push_back(axis);
  }
  return axes;
}

/*! \brief One value for each row of a matrix. */
Tensor ReduceRows(const NodeReader& node, PlanBuilder* plan, dnnl::algorithm algorithm,
                  const Tensor& matrix, const FusedOps& fused) {
  const dnnl::memory::desc column = PlainDesc({matrix.dims()[0], 1}, matrix.dtype());
  const Reduction::primitive_desc desc(plan->engine(), algorithm, matrix.md, column, 0.f, 0.f,
                                       fused.attr);
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, Reduction(desc),
             fused.AddTo({{DNNL_ARG_SRC, matrix}, {DNNL_ARG_DST, dst}}, node, plan, desc),
             fused.names);
  return dst;
}

/*!
 * \brief Have the latest step, a maximum or minimum of rows, return the infinity of a row that has
 * nothing else.
 *
 * oneDNN begins with the lowest or highest float, and ends with it then. A mask may have that
 * number, too, so the row tells.
 *
 * \param matrix The rows, in float32; the first argument of the step.
 * \param sign 1 for a maximum, -1 for a minimum.
 */
void RestoreInfinities(PlanBuilder* plan, const Tensor& matrix, float sign) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // Of rows: the time that it takes to wake up a thread.
  constexpr int64_t kGrain = 4096;
  const int64_t rows = matrix.dims()[0], columns = matrix.dims()[1];
  const float begin = -sign * std::numeric_limits<float>::max(), wanted = -sign * kInfinity;
  plan->AppendKernel([=](void* const* data) {
    const float* src = static_cast<const float*>(data[0]);
    float* dst = static_cast<float*>(data[1]);
    ParallelFor(rows, kGrain, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        if (dst[row] != begin) continue;
        const float *it = src + row * columns, *end = it + columns;
        // Of NaN alone it stays as it is.
        if (std::none_of(it, end, [=](float x) { return sign * x > -kInfinity; }) &&
            std::count(it, end, wanted) > 0) {
          dst[row] = wanted;
        }
      }
    });
  });
}

}  // namespace

Types InferReduce(const NodeReader& node, const Types& inputs) {
  CheckReal(node, inputs);
  const Dims& dims = inputs[0].shape;
  const std::vector<int> axes = ReducedAxes(node, static_cast<int>(dims.size()));
  const bool keeps_dims = node.Get<bool>("keepdims", false);
  Dims reduced;
  for (int axis = 0; axis < static_cast<int>(dims.size()); ++axis) {
    const bool is_reduced = std::count(axes.begin(), axes.end(), axis) > 0;
    if (!is_reduced || keeps_dims) reduced.push_back(is_reduced ? 1 : dims[axis]);
  }
  return {{reduced, inputs[0].dtype}};
}

Types InferL2Normalize(const NodeReader& node, const Types& inputs) {
  CheckReal(node, inputs);
  ReadAxes(node, "axis", static_cast<int>(inputs[0].shape.size()));
  ReadEpsilon(node, "eps", -1);
  return inputs;
}

void LowerReduce(const NodeReader& node, PlanBuilder* plan) {
  const Dims out_dims = node.RootDims();
  const Tensor src = plan->Input(node, 0);
  const RowsAlong rows(node, plan, src, ReducedAxes(node, static_cast<int>(src.dims().size())));
  if (rows.matrix().dims()[1] == 1) {
    // The sum, the mean and the rest of one value is the value; oneDNN refuses to compute it.
    if (node.NumPostOps() > 0) throw dnnl::error(dnnl_unimplemented, "nothing is reduced");
    return plan->SetOutput(node, plan->Reshaped(node, src, out_dims));
  }
  // A second operand is one value for each row, or one for all.
  const FusedOps fused = FusePostOps(node, plan, {-1, [&](const Tensor& operand) {
                                                    const int64_t size =
                                                        NumElements(operand.dims());
                                                    return plan->Reshaped(node, operand, {size, 1});
                                                  }});
  const dnnl::algorithm algorithm = FindOp(node.OpName())->algorithm;
  const bool is_max = algorithm == dnnl::algorithm::reduction_max;
  const bool selects = (is_max || algorithm == dnnl::algorithm::reduction_min) &&
                       rows.matrix().dtype() == dnnl::memory::data_type::f32;
  if (selects && !fused.names.empty()) {
    throw dnnl::error(dnnl_unimplemented, "infinities are restored before post-ops");
  }
  const Tensor dst = ReduceRows(node, plan, algorithm, rows.matrix(), fused);
  if (selects) RestoreInfinities(plan, rows.matrix(), is_max ? 1.f : -1.f);
  plan->SetOutput(node, plan->Reshaped(node, dst, out_dims));
}

void LowerL2Normalize(const NodeReader& node, PlanBuilder* plan) {
  const Tensor src = plan->Input(node, 0);
  const RowsAlong rows(node, plan, src, ReducedAxes(node, static_cast<int>(src.dims().size())));
  const Tensor& matrix = rows.matrix();
  // sqrt(max(sum, eps)). oneDNN's own norms are reference code.
  dnnl::post_ops chain;
  chain.append_eltwise(dnnl::algorithm::eltwise_clip, static_cast<float>(node.Get<double>("eps")),
                       std::numeric_limits<float>::infinity());
  chain.append_eltwise(dnnl::algorithm::eltwise_sqrt, 0.f, 0.f);
  FusedOps root;
  root.attr = PlanBuilder::NewAttr();
  root.attr.set_post_ops(chain);
  root.names = {"eltwise_clip", "eltwise_sqrt"};
  const Tensor norm =
      ReduceRows(node, plan, dnnl::algorithm::reduction_sum, Squares(node, plan, matrix), root);

  const dnnl::binary::primitive_desc desc(plan->engine(), dnnl::algorithm::binary_div, matrix.md,
                                          norm.md, matrix.md, PlanBuilder::NewAttr());
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, dnnl::binary(desc),
             {{DNNL_ARG_SRC_0, matrix}, {DNNL_ARG_SRC_1, norm}, {DNNL_ARG_DST, dst}});
  plan->SetOutput(node, rows.Restore(dst));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
