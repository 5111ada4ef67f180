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
 * \file src/runtime/contrib/dnnl/core/ops/quantize.cc
 * \brief From real numbers to quantized ones, and back.
 */
#include <string>
#include <vector>

#include "../op_table.h"
#include "../quantization.h"
#include "rows.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

constexpr auto kFloat = dnnl::memory::data_type::f32;

/*! \brief The layout with other elements. Blocks, which depend on the type, become channels last.
 */
dnnl::memory::desc WithType(const dnnl::memory::desc& md, dnnl::memory::data_type type) {
  const dnnl::memory::desc plain = PlainDesc(md.get_dims(), type);
  const bool has_blocks = md.get_format_kind() != dnnl::memory::format_kind::blocked ||
                          !md.get_inner_blks().empty() || md.get_padded_dims() != md.get_dims();
  if (has_blocks) return md.get_ndims() < 3 ? plain : ChannelsLast(plain);
  return dnnl::memory::desc(md.get_dims(), type, md.get_strides());
}

/*! \brief Have a primitive take the elements of an argument for real numbers. */
void Apply(const Quantization& quantization, int arg, dnnl::primitive_attr* attr,
           PlanBuilder::Args* args) {
  const auto mask = [&](const Tensor& part) {
    return Quantization::IsAlongAxis(part) ? 1 << quantization.axis : 0;
  };
  attr->set_scales_mask(arg, mask(quantization.scale));
  args->emplace_back(DNNL_ARG_ATTR_SCALES | arg, quantization.scale);
  if (!quantization.HasZeroPoint()) return;
  attr->set_zero_points_mask(arg, mask(quantization.zero_point));
  args->emplace_back(DNNL_ARG_ATTR_ZERO_POINTS | arg, quantization.zero_point);
}

/*!
 * \brief A copy of other elements.
 * \param from, to How the elements of both stand for real numbers; nullptr for themselves.
 */
Tensor Reordered(const NodeReader& node, PlanBuilder* plan, const Tensor& src,
                 const dnnl::memory::desc& dst_md, const Quantization* from,
                 const Quantization* to) {
  const Tensor dst = plan->NewTensor(dst_md);
  PlanBuilder::Args args = {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}};
  dnnl::primitive_attr attr = PlanBuilder::NewAttr();
  if (from != nullptr) Apply(*from, DNNL_ARG_SRC, &attr, &args);
  if (to != nullptr) Apply(*to, DNNL_ARG_DST, &attr, &args);
  const dnnl::reorder::primitive_desc desc(plan->engine(), src.md, plan->engine(), dst_md, attr);
  std::vector<std::string> fused;
  if (from != nullptr && to != nullptr) fused.push_back("quantize");
  plan->Emit(node, desc, dnnl::reorder(desc), args, fused);
  return dst;
}

/*!
 * \brief (value - zero point) * scale or, the other way, value / scale + zero point, in float32.
 *
 * For what differs along an axis: reorders of oneDNN 3.2 take the first zero point for all.
 */
Tensor Binaries(const NodeReader& node, PlanBuilder* plan, const Tensor& value,
                const Quantization& quantization, bool is_quantizing) {
  const Dims dims = value.dims();
  const int axis = quantization.axis;
  const int64_t outer = NumElements(Dims(dims.begin(), dims.begin() + axis));
  const int64_t inner = NumElements(Dims(dims.begin() + axis + 1, dims.end()));
  // Post-ops of oneDNN 3.2 read a vector wrongly where there is one element behind each of its own.
  const auto as_matrix = [inner](Dims view) {
    if (inner == 1) view.pop_back();
    return view;
  };
  const Tensor src = PlainFloats(node, plan, value).Reshaped(as_matrix({outer, dims[axis], inner}));
  const auto along_axis = [&](const Tensor& part) {
    return PlainFloats(node, plan, part).Reshaped(as_matrix({1, NumElements(part.dims()), 1}));
  };
  const Tensor scale = along_axis(quantization.scale);
  const Tensor zero_point = along_axis(quantization.zero_point);
  const Tensor& first = is_quantizing ? scale : zero_point;
  const Tensor& second = is_quantizing ? zero_point : scale;

  dnnl::post_ops post_ops;
  post_ops.append_binary(is_quantizing ? dnnl::algorithm::binary_add : dnnl::algorithm::binary_mul,
                         second.md);
  dnnl::primitive_attr attr = PlanBuilder::NewAttr();
  attr.set_post_ops(post_ops);
  const dnnl::binary::primitive_desc desc(
      plan->engine(), is_quantizing ? dnnl::algorithm::binary_div : dnnl::algorithm::binary_sub,
      src.md, first.md, src.md, attr);
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, dnnl::binary(desc),
             {{DNNL_ARG_SRC_0, src},
              {DNNL_ARG_SRC_1, first},
              {DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, second},
              {DNNL_ARG_DST, dst}},
             {is_quantizing ? "binary_add" : "binary_mul"});
  return dst.Reshaped(dims);
}

bool IsBeyondReorder(const Quantization& quantization) {
  return Quantization::IsAlongAxis(quantization.zero_point);
}

}  // namespace

Tensor Dequantized(const NodeReader& op, PlanBuilder* plan) {
  const PlanBuilder::Mark mark = plan->Here();
  const Tensor src = plan->Input(op, 0);
  const Quantization from = Quantization::Read(op, plan, src.dims());
  const Tensor dst = IsBeyondReorder(from) ? Binaries(op, plan, src, from, /*is_quantizing=*/false)
                                           : Reordered(op, plan, src, WithType(src.md, kFloat),
                                                       &from, /*to=*/nullptr);
  if (plan->IsConstant(src) && from.IsConstant(*plan)) plan->RunNow(mark);
  return dst;
}

void LowerDequantize(const NodeReader& node, PlanBuilder* plan) {
  if (node.NumPostOps() == 0) return plan->SetOutput(node, Dequantized(node, plan));
  const NodeReader last = node.PostOp(0);
  const Tensor src = plan->Input(node, 0);
  const Quantization from = Quantization::Read(node, plan, src.dims());
  if (node.NumPostOps() > 1 || last.OpName() != "qnn.quantize" || IsBeyondReorder(from)) {
    throw dnnl::error(dnnl_unimplemented, "a reorder dequantizes and quantizes, and nothing else");
  }
  const Quantization to = Quantization::Read(last, plan, src.dims());
  if (IsBeyondReorder(to)) {
    throw dnnl::error(dnnl_unimplemented, "a reorder has one zero point for all elements");
  }
  plan->SetOutput(node, Reordered(node, plan, src, WithType(src.md, last.OutType()), &from, &to));
}

void LowerQuantize(const NodeReader& node, PlanBuilder* plan) {
  if (node.NumPostOps() > 0) {
    throw dnnl::error(dnnl_unimplemented, "nothing can be fused to a quantization");
  }
  const PlanBuilder::Mark mark = plan->Here();
  const Tensor src = plan->Input(node, 0);
  const Quantization to = Quantization::Read(node, plan, src.dims());
  const auto reorder = [&](const Tensor& value, const Quantization* quantization) {
    return Reordered(node, plan, value, WithType(value.md, node.OutType()), nullptr, quantization);
  };
  const Tensor dst = IsBeyondReorder(to)
                         ? reorder(Binaries(node, plan, src, to, /*is_quantizing=*/true), nullptr)
                         : reorder(src, &to);
  if (plan->IsConstant(src) && to.IsConstant(*plan)) plan->RunNow(mark);
  plan->SetOutput(node, dst);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
