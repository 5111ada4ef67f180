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
 * \file src/runtime/contrib/dnnl/core/ops/norm.cc
 * \brief Normalizations with the mean and the variance of the data itself.
 */
#include "../kernels/norm.h"

#include <string>
#include <utility>
#include <vector>

#include "../fusion/quantization.h"
#include "../implementation.h"
#include "../op_table.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using BatchNorm = dnnl::batch_normalization_forward;
using Flags = dnnl::normalization_flags;

/*! \brief The affine part: x * gamma + beta, either of which may be left out. */
struct Affine {
  Tensor gamma;
  Tensor beta;

  Affine() = default;
  Affine(const NodeReader& node, PlanBuilder* plan) {
    if (node.Get<bool>("scale", true)) gamma = PlainFloats(node, plan, plan->Input(node, 1));
    if (node.Get<bool>("center", true)) beta = PlainFloats(node, plan, plan->Input(node, 2));
  }

  Flags flags() const {
    return (gamma.defined() ? Flags::use_scale : Flags::none) |
           (beta.defined() ? Flags::use_shift : Flags::none);
  }

  PlanBuilder::Args AddTo(PlanBuilder::Args args) const {
    if (gamma.defined()) args.emplace_back(DNNL_ARG_SCALE, gamma);
    if (beta.defined()) args.emplace_back(DNNL_ARG_SHIFT, beta);
    return args;
  }
};

float Epsilon(const NodeReader& node) {
  return static_cast<float>(ReadEpsilon(node, "epsilon", 1e-5));
}

/*! \brief The axis of the channels. */
int AxisOf(const NodeReader& node, size_t rank, int otherwise) {
  return node.Axis("axis", otherwise, static_cast<int>(rank));
}

/*! \brief Check data, gamma and beta, and give the data's type. */
Types InferNorm(const NodeReader& node, const Types& inputs, int default_axis) {
  CheckReal(node, inputs);
  const int axis = AxisOf(node, inputs[0].shape.size(), default_axis);
  for (int i : {1, 2}) CheckVector(node, inputs, i, inputs[0].shape[axis]);
  Epsilon(node);
  CheckFlags(node, {"scale", "center"});
  return {inputs[0]};
}

/*!
 * \brief Give each row of a matrix a mean of 0 and a variance of 1; then a factor and a shift.
 * \param shared, cycle See NormRows.
 */
Tensor Normalized(const NodeReader& node, PlanBuilder* plan, const Tensor& matrix,
                  const Affine& affine, int64_t shared = 1, int64_t cycle = 1) {
  const auto f32 = dnnl::memory::data_type::f32, bf16 = dnnl::memory::data_type::bf16;
  const bool is_bfloat16 = matrix.dtype() == bf16;
  const Tensor src = is_bfloat16 ? matrix : plan->InLayout(node, matrix, WithType(matrix.md, f32));
  const Tensor dst = plan->NewTensor(src.md);
  const NormRows norm{src.dims()[0], src.dims()[1], shared,     cycle,
                      Epsilon(node), is_bfloat16,   is_bfloat16};
  PlanBuilder::Args args = affine.AddTo({{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  const bool has_gamma = affine.gamma.defined(), has_beta = affine.beta.defined();
  const auto kernel = [has_gamma, has_beta](const NormRows& norm) -> HostKernel {
    return [=](void* const* data) {
      const auto* gamma = has_gamma ? static_cast<const float*>(data[2]) : nullptr;
      const auto* beta = has_beta ? static_cast<const float*>(data[has_gamma ? 3 : 2]) : nullptr;
      NormalizeRows(norm, data[0], gamma, beta, data[1]);
    };
  };
  plan->EmitKernel(node, "layer_normalization", kernel(norm), args);
  plan->OfferKernel(
      [kernel, norm, rounded = WithType(src.md, bf16)](const dnnl::memory::desc& md) -> HostKernel {
        if (md != rounded) return nullptr;
        NormRows to_bfloat16 = norm;
        to_bfloat16.writes_bfloat16 = true;
        return kernel(to_bfloat16);
      });
  plan->OfferInPlace(DNNL_ARG_SRC);
  return plan->InLayout(node, dst, WithType(dst.md, matrix.dtype()));
}

/*!
 * \brief Normalize the channels of one image, in whatever layout it is.
 * \return Undefined where oneDNN has slow code only, as it has for row-major images.
 */
Tensor NormalizeImage(const NodeReader& node, PlanBuilder* plan, const Tensor& src,
                      const Affine& affine) {
  const BatchNorm::primitive_desc desc(plan->engine(), dnnl::prop_kind::forward_inference, src.md,
                                       src.md, Epsilon(node), affine.flags(),
                                       PlanBuilder::NewAttr(), /*allow_empty=*/true);
  if (!desc || !IsNative(desc)) return {};
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, BatchNorm(desc), affine.AddTo({{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}}));
  return dst;
}

}  // namespace

Types InferLayerNorm(const NodeReader& node, const Types& inputs) {
  return InferNorm(node, inputs, /*default_axis=*/-1);
}

Types InferInstanceNorm(const NodeReader& node, const Types& inputs) {
  return InferNorm(node, inputs, /*default_axis=*/1);
}

Types InferGroupNorm(const NodeReader& node, const Types& inputs) {
  const Types result = InferNorm(node, inputs, /*default_axis=*/1);
  const int64_t channels = inputs[1].shape[0], groups = ReadSize(node, "num_groups", 0, 1);
  CORE_CHECK(channels % groups == 0) << node.Where() << ": num_groups " << groups
                                     << " does not divide " << channels << " channels";
  return result;
}

void LowerLayerNorm(const NodeReader& node, PlanBuilder* plan) {
  const Tensor src = plan->Input(node, 0);
  const int axis = AxisOf(node, src.dims().size(), -1);
  const RowsAlong rows(node, plan, src, {axis});
  plan->SetOutput(node, rows.Restore(Normalized(node, plan, rows.matrix(), Affine(node, plan))));
}

void LowerGroupNorm(const NodeReader& node, PlanBuilder* plan) {
  const Tensor src = plan->Plain(node, plan->Input(node, 0));
  const Dims dims = src.dims();
  const int axis = AxisOf(node, dims.size(), 1);
  // Relay normalizes over the channels of a group and all following axes.
  const int64_t outer = NumElements(Dims(dims.begin(), dims.begin() + axis));
  const int64_t groups = node.Get<int64_t>("num_groups"), rows = outer * groups;
  const Tensor matrix = src.Reshaped({rows, NumElements(dims) / rows});
  const int64_t inner = NumElements(dims) / outer / dims[axis];
  const Tensor dst = Normalized(node, plan, matrix, Affine(node, plan), inner, groups);
  plan->SetOutput(node, dst.Reshaped(dims));
}

void LowerInstanceNorm(const NodeReader& node, PlanBuilder* plan) {
  const Tensor data = plan->Input(node, 0);
  const int rank = static_cast<int>(data.dims().size());
  const int axis = AxisOf(node, rank, 1);
  // (batch, channels, the rest); with the batch as the channels there is no other batch.
  std::vector<int> axes = {0};
  if (axis != 0) axes.push_back(axis);
  for (int i = 1; i < rank; ++i) {
    if (i != axis) axes.push_back(i);
  }
  const Tensor src = data.Permuted(axes);
  const Dims dims = src.dims();
  const Affine affine(node, plan);
  Tensor dst;
  if (axis != 0 && dims[0] == 1 && rank <= 5) dst = NormalizeImage(node, plan, src, affine);
  if (!dst.defined()) {
    const int64_t channels = data.dims()[axis];
    const int64_t batch = axis == 0 ? 1 : dims[0];
    const int64_t inner = NumElements(dims) / batch / channels;
    const Tensor matrix = plan->Plain(node, src).Reshaped({batch * channels, inner});
    dst = Normalized(node, plan, matrix, affine, inner, channels).Reshaped(dims);
  }
  plan->SetOutput(node, dst.Permuted(InversePermutation(axes)));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
