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
#include "reduce.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "../fusion/post_ops.h"
#include "../op_table.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

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

ReduceKind KindOf(const NodeReader& node) {
  switch (FindOp(node.OpName())->algorithm) {
    case dnnl::algorithm::reduction_max:
      return ReduceKind::kMax;
    case dnnl::algorithm::reduction_min:
      return ReduceKind::kMin;
    case dnnl::algorithm::reduction_mul:
      return ReduceKind::kProd;
    case dnnl::algorithm::reduction_mean:
      return ReduceKind::kMean;
    default:
      return ReduceKind::kSum;
  }
}

/*!
 * \brief The dimensions of a tensor in memory: a block of channels is one, too.
 * \param dims The dims, with or without padding.
 * \return Empty where the memory has others, or none is contiguous.
 */
std::vector<ReduceDim> DimsInMemory(const dnnl::memory::desc& md, const Dims& dims,
                                    const std::vector<int>& axes) {
  if (md.get_format_kind() != dnnl::memory::format_kind::blocked) return {};
  const Dims strides = md.get_strides(), blocks = md.get_inner_blks();
  if (md.get_padded_dims() != dims || blocks.size() > 1) return {};
  std::vector<ReduceDim> result;
  int64_t dst_stride = 1;
  for (int axis = static_cast<int>(dims.size()); axis-- > 0;) {
    const bool is_reduced = std::count(axes.begin(), axes.end(), axis) > 0;
    const bool is_blocked = !blocks.empty() && md.get_inner_idxs()[0] == axis;
    const int64_t block = is_blocked ? blocks[0] : 1;
    const int64_t stride = is_reduced ? -1 : dst_stride;
    if (is_blocked) result.push_back({block, 1, stride});
    result.push_back({dims[axis] / block, strides[axis], is_reduced ? -1 : dst_stride * block});
    if (!is_reduced) dst_stride *= dims[axis];
  }
  const bool is_contiguous = std::any_of(result.begin(), result.end(),
                                         [](const ReduceDim& dim) { return dim.src_stride == 1; });
  return is_contiguous ? result : std::vector<ReduceDim>{};
}

/*! \brief Whether all axes from `first` on are reduced, and no other. */
bool AreLast(const std::vector<int>& axes, int first, int rank) {
  return static_cast<int>(axes.size()) == rank - first &&
         std::all_of(axes.begin(), axes.end(), [first](int axis) { return axis >= first; });
}

}  // namespace

Tensor Reduced(const NodeReader& node, PlanBuilder* plan, ReduceKind kind, const Tensor& value,
               const std::vector<int>& axes) {
  const auto f32 = dnnl::memory::data_type::f32, bf16 = dnnl::memory::data_type::bf16;
  Tensor src = value;
  if (src.dtype() != f32 && src.dtype() != bf16) src = PlainFloats(node, plan, src);
  const Dims src_dims = value.dims();
  Dims kept;
  for (int axis = 0; axis < static_cast<int>(src_dims.size()); ++axis) {
    kept.push_back(std::count(axes.begin(), axes.end(), axis) > 0 ? 1 : src_dims[axis]);
  }
  dnnl::memory::desc dst_md = PlainDesc(kept, f32);
  std::vector<ReduceDim> dims = DimsInMemory(src.md, src_dims, axes);
  if (dims.empty() && AreLast(axes, 2, static_cast<int>(src_dims.size()))) {
    // What pads the channels is zero in the source, and in the result.
    const dnnl::memory::desc blocks = InBlocksOf(src.md, kept, f32);
    if (blocks) {
      dims = DimsInMemory(src.md, src.md.get_padded_dims(), axes);
      dst_md = blocks;
    }
  }
  if (dims.empty()) {
    src = plan->Plain(node, src);
    dims = DimsInMemory(src.md, src_dims, axes);
  }
  const ReduceKernel kernel(kind, src.dtype() == bf16, dims);
  const Tensor dst = plan->NewTensor(dst_md);
  PlanBuilder::Args args = {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}};
  const int64_t bytes = kernel.scratch_bytes();
  if (bytes > 0) {
    const auto byte = dnnl::memory::data_type::u8;
    args.emplace_back(DNNL_ARG_SCRATCHPAD, plan->NewTensor(PlainDesc({bytes}, byte)));
  }
  const auto run = [kernel, bytes](void* const* data) {
    kernel.Run(data[0], static_cast<float*>(data[1]), bytes > 0 ? data[2] : nullptr);
  };
  plan->EmitKernel(node, "reduction", run, args);
  return dst;
}

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

Tensor WithPostOps(const NodeReader& node, PlanBuilder* plan, const Tensor& value,
                   const ResultView& view) {
  if (node.NumPostOps() == 0) return value;
  const Dims dims = value.dims();
  if (HasOneElementPerChannel(dims)) {
    ResultView of_matrix = view;
    of_matrix.to_primitive = [&](const Tensor& operand) {
      return AsMatrix(node, plan, view.to_primitive(operand));
    };
    const Tensor matrix = AsMatrix(node, plan, value);
    return plan->Reshaped(node, WithPostOps(node, plan, matrix, of_matrix), dims);
  }
  const FusedOps fused = FusePostOps(node, plan, view);
  const Tensor one = plan->NewNumber(1, value.dims().size());
  const dnnl::binary::primitive_desc desc(plan->engine(), dnnl::algorithm::binary_mul, value.md,
                                          one.md, WithType(value.md, node.OutType()), fused.attr);
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, dnnl::binary(desc),
             fused.AddTo({{DNNL_ARG_SRC_0, value}, {DNNL_ARG_SRC_1, one}, {DNNL_ARG_DST, dst}},
                         node, plan, desc),
             fused.names);
  plan->OfferInPlace(DNNL_ARG_SRC_0);
  return dst;
}

void LowerReduce(const NodeReader& node, PlanBuilder* plan) {
  const Dims out_dims = node.RootDims();
  const Tensor src = plan->Input(node, 0);
  const std::vector<int> axes = ReducedAxes(node, static_cast<int>(src.dims().size()));
  const int64_t size = NumElements(out_dims);
  if (size == NumElements(src.dims())) {
    // The sum, the mean and the rest of one value is the value.
    if (node.NumPostOps() > 0) throw dnnl::error(dnnl_unimplemented, "nothing is reduced");
    return plan->SetOutput(node, plan->Reshaped(node, src, out_dims));
  }
  Tensor dst = plan->Plain(node, Reduced(node, plan, KindOf(node), src, axes));
  dst = dst.Reshaped({size, 1});
  // A second operand is one value for each row, or one for all.
  dst = WithPostOps(node, plan, dst, {-1, [&](const Tensor& operand) {
                                        const int64_t count = NumElements(operand.dims());
                                        return plan->Reshaped(node, operand, {count, 1});
                                      }});
  plan->SetOutput(
      node, plan->InLayout(node, dst.Reshaped(out_dims), PlainDesc(out_dims, node.OutType())));
}

void LowerL2Normalize(const NodeReader& node, PlanBuilder* plan) {
  const Tensor src = plan->Input(node, 0);
  const RowsAlong rows(node, plan, src, ReducedAxes(node, static_cast<int>(src.dims().size())));
  const Tensor& matrix = rows.matrix();
  // oneDNN's own norms are reference code, and its maximum drops NaN.
  const Tensor sums = Reduced(node, plan, ReduceKind::kSumOfSquares, matrix, {1});
  const Tensor norm = plan->NewTensor(sums.md);
  const auto root = [eps = static_cast<float>(node.Get<double>("eps")),
                     count = NumElements(sums.dims())](void* const* data) {
    const auto* from = static_cast<const float*>(data[0]);
    auto* to = static_cast<float*>(data[1]);
    for (int64_t i = 0; i < count; ++i) to[i] = std::sqrt(from[i] < eps ? eps : from[i]);
  };
  plan->EmitKernel(node, "binary", root, {{DNNL_ARG_SRC, sums}, {DNNL_ARG_DST, norm}});
  plan->OfferInPlace(DNNL_ARG_SRC);

  const dnnl::binary::primitive_desc desc(plan->engine(), dnnl::algorithm::binary_div, matrix.md,
                                          norm.md, matrix.md, PlanBuilder::NewAttr());
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, dnnl::binary(desc),
             {{DNNL_ARG_SRC_0, matrix}, {DNNL_ARG_SRC_1, norm}, {DNNL_ARG_DST, dst}});
  plan->SetOutput(node, rows.Restore(dst));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
