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
 * \file src/runtime/contrib/dnnl/core/fusion/quantization.cc
 * \brief Tensors that are quantized with a scale and a zero point.
 */
#include "quantization.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "../implementation.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*!
 * \brief The same memory as a row-major tensor: of what is done to each element alike, the order of
 * the dimensions means nothing. Undefined where there are blocks or gaps.
 */
Tensor AsRowMajor(const Tensor& value) {
  const Dims dims = value.dims();
  const bool has_gaps = value.md.get_size() != PlainDesc(dims, value.dtype()).get_size();
  if (has_gaps || WithType(value.md, value.dtype()) != value.md) return {};
  const Dims strides = value.md.get_strides();
  std::vector<int> axes(dims.size());
  std::iota(axes.begin(), axes.end(), 0);
  std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) { return strides[a] > strides[b]; });
  return {value.buffer, PlainDesc(PermutedDims(dims, axes), value.dtype())};
}

/*!
 * \brief As `Requantized`, by a binary primitive; undefined where oneDNN has none.
 *
 * Reorders that scale take long. In µs on two cores with AVX-512, of 0.8 million elements:
 *   quantize, float32 to uint8      190, as a binary          40
 *   dequantize, uint8 to float32    144, as a cast and that   90
 *   requantize, uint8 to uint8      245, as a binary          60
 */
Tensor RequantizedByBinary(const NodeReader& node, PlanBuilder* plan, const Tensor& value,
                           dnnl::memory::data_type type, const Quantization* from,
                           const Quantization* to) {
  using Type = dnnl::memory::data_type;
  const auto is_fit = [&](const Quantization* each) {
    return each == nullptr || (each->IsConstant(*plan) && each->IsPerTensor());
  };
  const bool is_cast_first = IsByte(value.dtype()) && type == Type::f32;
  const bool has_types =
      is_cast_first || (IsByte(type) && (IsByte(value.dtype()) || value.dtype() == Type::f32));
  const Tensor given = AsRowMajor(value);
  if (!is_fit(from) || !is_fit(to) || !has_types || !given.defined()) return {};
  const auto [from_scale, from_zero] =
      from != nullptr ? from->Values(node, plan) : std::pair<double, double>(1, 0);
  const auto [to_scale, to_zero] =
      to != nullptr ? to->Values(node, plan) : std::pair<double, double>(1, 0);
  const double scale = from_scale / to_scale;
  // A zero point is taken off before the numbers are scaled, so that what stands for zero is zero.
  const bool is_shifted = from_zero != 0;
  const double after = is_shifted ? scale : 1;
  dnnl::post_ops post_ops;
  if (after != 1 || to_zero != 0) {
    post_ops.append_eltwise(dnnl::algorithm::eltwise_linear, static_cast<float>(after),
                            static_cast<float>(to_zero));
  }
  dnnl::primitive_attr attr = PlanBuilder::NewAttr();
  attr.set_post_ops(post_ops);
  const PlanBuilder::Mark mark = plan->Here();
  const Tensor src = is_cast_first ? Cast(node, plan, given, type) : given;
  const Tensor number = plan->NewNumber(is_shifted ? from_zero : scale, src.dims().size());
  const dnnl::binary::primitive_desc desc(
      plan->engine(), is_shifted ? dnnl::algorithm::binary_sub : dnnl::algorithm::binary_mul,
      src.md, number.md, PlainDesc(src.dims(), type), attr, /*allow_empty=*/true);
  if (!desc || IsReference(desc)) {
    plan->BackTo(mark);
    return {};
  }
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  std::vector<std::string> fused;
  if (from != nullptr && to != nullptr) fused.push_back("quantize");
  plan->Emit(node, desc, dnnl::binary(desc),
             {{DNNL_ARG_SRC_0, src}, {DNNL_ARG_SRC_1, number}, {DNNL_ARG_DST, dst}}, fused);
  plan->OfferInPlace(DNNL_ARG_SRC_0);
  return {dst.buffer, WithType(value.md, type)};
}

/*! \brief A scale or zero point as a vector. */
Tensor ReadVector(const NodeReader& op, PlanBuilder* plan, int input) {
  const Tensor value = plan->Plain(op, plan->Input(op, input));
  return value.Reshaped({NumElements(value.dims())});
}

}  // namespace

Quantization Quantization::Read(const NodeReader& op, PlanBuilder* plan, const Dims& dims) {
  const int rank = static_cast<int>(dims.size());
  Quantization result;
  const bool is_scalar =
      NumElements(plan->Input(op, 1).dims()) == 1 && NumElements(plan->Input(op, 2).dims()) == 1;
  // With scalars the axis means nothing, and may be any.
  if (!is_scalar) result.axis = op.Axis("axis", -1, rank);
  result.scale = ReadVector(op, plan, 1);
  result.zero_point = WithoutZero(op, plan, ReadVector(op, plan, 2));
  return result;
}

Tensor Quantization::WithoutZero(const NodeReader& op, PlanBuilder* plan,
                                 const Tensor& zero_point) {
  if (!plan->IsConstant(zero_point)) return zero_point;
  const auto values = plan->ValuesOf<int32_t>(op, zero_point);
  const bool is_one =
      std::count(values.begin(), values.end(), values[0]) == static_cast<int64_t>(values.size());
  if (!is_one) return zero_point;
  return values[0] == 0 ? Tensor{} : plan->NewConstant(values[0]);
}

std::pair<double, double> Quantization::Values(const NodeReader& node, PlanBuilder* plan) const {
  if (!IsConstant(*plan)) throw dnnl::error(dnnl_unimplemented, "a scale is not constant");
  if (!IsPerTensor()) throw dnnl::error(dnnl_unimplemented, "scales differ along an axis");
  const int32_t zero = HasZeroPoint() ? plan->ValuesOf<int32_t>(node, zero_point)[0] : 0;
  return {scale.defined() ? plan->ValuesOf<float>(node, scale)[0] : 1.f, zero};
}

void Quantization::AddTo(int arg, int mask, dnnl::primitive_attr* attr,
                         PlanBuilder::Args* args) const {
  if (scale.defined()) {
    attr->set_scales_mask(arg, IsAlongAxis(scale) ? mask : 0);
    args->emplace_back(DNNL_ARG_ATTR_SCALES | arg, scale);
  }
  if (zero_point.defined()) {
    attr->set_zero_points_mask(arg, IsAlongAxis(zero_point) ? mask : 0);
    args->emplace_back(DNNL_ARG_ATTR_ZERO_POINTS | arg, zero_point);
  }
}

std::pair<double, double> RangeOf(dnnl::memory::data_type type) {
  switch (type) {
    case dnnl::memory::data_type::u8:
      return {0, 255};
    case dnnl::memory::data_type::s8:
      return {-128, 127};
    default:
      return {-2147483648., 2147483647.};
  }
}

dnnl::memory::desc WithType(const dnnl::memory::desc& md, dnnl::memory::data_type type) {
  const dnnl::memory::desc plain = PlainDesc(md.get_dims(), type);
  const bool has_blocks = md.get_format_kind() != dnnl::memory::format_kind::blocked ||
                          !md.get_inner_blks().empty() || md.get_padded_dims() != md.get_dims();
  if (has_blocks) return md.get_ndims() < 3 ? plain : ChannelsLast(plain);
  return dnnl::memory::desc(md.get_dims(), type, md.get_strides());
}

Tensor Cast(const NodeReader& node, PlanBuilder* plan, const Tensor& value,
            dnnl::memory::data_type type) {
  const dnnl::memory::desc md = WithType(value.md, type);
  if (plan->IsConstant(value)) return plan->InLayout(node, value, md);
  const auto describe = [engine = plan->engine(), from = value.md](const dnnl::memory::desc& to) {
    return dnnl::reorder::primitive_desc(engine, from, engine, to, PlanBuilder::NewAttr(),
                                         /*allow_empty=*/true);
  };
  const dnnl::reorder::primitive_desc desc = describe(md);
  if (!desc) throw dnnl::error(dnnl_unimplemented, "no reorder accepts these types");
  const Tensor dst = plan->NewTensor(md);
  plan->Emit(node, desc, dnnl::reorder(desc), {{DNNL_ARG_SRC, value}, {DNNL_ARG_DST, dst}});
  plan->OfferLayout(describe);
  return dst;
}

Tensor Requantized(const NodeReader& node, PlanBuilder* plan, const Tensor& value,
                   dnnl::memory::data_type type, const Quantization* from, const Quantization* to) {
  const Tensor result = RequantizedByBinary(node, plan, value, type, from, to);
  if (result.defined()) return result;
  // Reorders of oneDNN 3.2 that transpose leave out a zero point of some sizes of the tensor.
  const bool keeps_layout = (from != nullptr && from->HasZeroPoint()) ||  //
                            (to != nullptr && to->HasZeroPoint());
  const Tensor src = keeps_layout
                         ? plan->InLayout(node, value, WithType(value.md, value.md.get_data_type()))
                         : value;
  const Tensor dst = plan->NewTensor(WithType(src.md, type));
  PlanBuilder::Args args = {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}};
  dnnl::primitive_attr attr = PlanBuilder::NewAttr();
  if (from != nullptr) from->AddTo(DNNL_ARG_SRC, 1 << from->axis, &attr, &args);
  if (to != nullptr) to->AddTo(DNNL_ARG_DST, 1 << to->axis, &attr, &args);
  const auto describe = [engine = plan->engine(), from = src.md, attr,
                         keeps_layout](const dnnl::memory::desc& dst_md) {
    if (keeps_layout && dst_md != WithType(from, dst_md.get_data_type())) {
      return dnnl::reorder::primitive_desc();
    }
    return dnnl::reorder::primitive_desc(engine, from, engine, dst_md, attr, /*allow_empty=*/true);
  };
  const dnnl::reorder::primitive_desc desc = describe(dst.md);
  if (!desc) throw dnnl::error(dnnl_unimplemented, "no reorder accepts these types and scales");
  std::vector<std::string> fused;
  if (from != nullptr && to != nullptr) fused.push_back("quantize");
  plan->Emit(node, desc, dnnl::reorder(desc), args, fused);
  plan->OfferLayout(describe);
  return dst;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
