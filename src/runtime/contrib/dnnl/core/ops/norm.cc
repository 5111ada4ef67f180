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
#include <string>
#include <utility>
#include <vector>

#include "../implementation.h"
#include "../op_table.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using BatchNorm = dnnl::batch_normalization_forward;
using LayerNorm = dnnl::layer_normalization_forward;
using Flags = dnnl::normalization_flags;

/*! \brief The part behind the normalization: x * gamma + beta, either of which may be left out. */
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

/*! \brief Give each row of a matrix a mean of 0 and a variance of 1; then one factor a column. */
Tensor NormalizeRows(const NodeReader& node, PlanBuilder* plan, const Tensor& matrix,
                     const Affine& affine) {
  const LayerNorm::primitive_desc desc(plan->engine(), dnnl::prop_kind::forward_inference,
                                       matrix.md, matrix.md, Epsilon(node), affine.flags(),
                                       PlanBuilder::NewAttr());
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, LayerNorm(desc),
             affine.AddTo({{DNNL_ARG_SRC, matrix}, {DNNL_ARG_DST, dst}}));
  return dst;
}

/*! \brief x * gamma + beta in one step, with x seen as (outer, channels, inner). */
Tensor ApplyPerChannel(const NodeReader& node, PlanBuilder* plan, const Tensor& value,
                       const Affine& affine) {
  if (!affine.gamma.defined() && !affine.beta.defined()) return value;
  Dims dims = value.dims();
  Dims vector = {1, dims[1], 1};
  if (dims[2] == 1) {
    // The post-ops of oneDNN 3.2 read a vector of channels wrongly where each has one element.
    dims.pop_back();
    vector.pop_back();
  }
  const Tensor src = value.Reshaped(dims);
  dnnl::primitive_attr attr = PlanBuilder::NewAttr();
  PlanBuilder::Args args = {{DNNL_ARG_SRC_0, src}};
  std::vector<std::string> names;
  const Tensor first = (affine.gamma.defined() ? affine.gamma : affine.beta).Reshaped(vector);
  args.emplace_back(DNNL_ARG_SRC_1, first);
  if (affine.gamma.defined() && affine.beta.defined()) {
    const Tensor beta = affine.beta.Reshaped(vector);
    dnnl::post_ops post_ops;
    post_ops.append_binary(dnnl::algorithm::binary_add, beta.md);
    attr.set_post_ops(post_ops);
    args.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, beta);
    names.push_back("binary_add");
  }
  const auto algorithm =
      affine.gamma.defined() ? dnnl::algorithm::binary_mul : dnnl::algorithm::binary_add;
  const dnnl::binary::primitive_desc desc(plan->engine(), algorithm, src.md, first.md, src.md,
                                          attr);
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  args.emplace_back(DNNL_ARG_DST, dst);
  plan->Emit(node, desc, dnnl::binary(desc), args, names);
  return dst.Reshaped(value.dims());
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
  plan->SetOutput(node, rows.Restore(NormalizeRows(node, plan, rows.matrix(), Affine(node, plan))));
}

void LowerGroupNorm(const NodeReader& node, PlanBuilder* plan) {
  const Tensor src = plan->Plain(node, plan->Input(node, 0));
  const Dims dims = src.dims();
  const int axis = AxisOf(node, dims.size(), 1);
  // Relay normalizes over the channels of a group and all axes behind them.
  const int64_t outer = NumElements(Dims(dims.begin(), dims.begin() + axis));
  const int64_t rows = outer * node.Get<int64_t>("num_groups");
  const Tensor matrix = src.Reshaped({rows, NumElements(dims) / rows});
  const Tensor normal = NormalizeRows(node, plan, matrix, Affine());
  const int64_t inner = NumElements(dims) / outer / dims[axis];
  const Tensor dst =
      ApplyPerChannel(node, plan, normal.Reshaped({outer, dims[axis], inner}), Affine(node, plan));
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
    const Tensor normal = NormalizeRows(node, plan, matrix, Affine());
    dst = ApplyPerChannel(node, plan, normal.Reshaped({batch, channels, inner}), affine)
              .Reshaped(dims);
  }
  plan->SetOutput(node, dst.Permuted(InversePermutation(axes)));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
