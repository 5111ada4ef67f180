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
 * \brief Quantize and dequantize.
 */
#include "../fusion/quantization.h"
#include "../op_table.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

constexpr auto kFloat = dnnl::memory::data_type::f32;

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
  // Post-ops of oneDNN 3.2 misread a vector where each channel has a single element.
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

/*! \brief Check that a scale and a zero point fit to the data. */
void CheckQuantization(const NodeReader& node, const Types& inputs) {
  const Dims& data = inputs[0].shape;
  const auto size_of = [&](int i) { return NumElements(inputs[i].shape); };
  // With scalars the axis means nothing, and may be any.
  const bool is_scalar = size_of(1) == 1 && size_of(2) == 1;
  const int64_t size = is_scalar      ? 1
                       : data.empty() ? 1
                                      : data[node.Axis("axis", -1, static_cast<int>(data.size()))];
  for (int i : {1, 2}) {
    const char* const name = i == 1 ? "scale" : "zero point";
    CORE_CHECK(inputs[i].dtype == (i == 1 ? kFloat32 : kInt32))
        << node.Where() << ": the " << name << " must be " << (i == 1 ? "float32" : "int32")
        << ", but is " << ToText(inputs[i]);
    CORE_CHECK(size_of(i) == 1 || size_of(i) == size)
        << node.Where() << ": the " << name << " has " << size_of(i) << " elements, but one or "
        << size << " are expected";
  }
}

bool IsBeyondReorder(const Quantization& quantization) {
  return Quantization::IsAlongAxis(quantization.zero_point);
}

}  // namespace

Types InferDequantize(const NodeReader& node, const Types& inputs) {
  const bool is_integer = IsByte(inputs[0].dtype) || inputs[0].dtype == kInt32;
  CORE_CHECK(is_integer) << node.Where() << ": " << ToText(inputs[0])
                         << " is not int8, uint8 or int32";
  CORE_CHECK(ReadType(node, "out_dtype", kFloat32) == kFloat32)
      << node.Where() << ": out_dtype is not float32";
  CheckQuantization(node, inputs);
  return {{inputs[0].shape, kFloat32}};
}

Types InferQuantize(const NodeReader& node, const Types& inputs) {
  CORE_CHECK(inputs[0].dtype == kFloat32)
      << node.Where() << ": " << ToText(inputs[0]) << " is not float32";
  const DLDataType dtype = ReadType(node, "out_dtype", kInt8);
  CORE_CHECK(IsByte(dtype) || dtype == kInt32)
      << node.Where() << ": out_dtype is " << ToText(dtype) << ", expected: uint8, int8 or int32";
  CheckQuantization(node, inputs);
  return {{inputs[0].shape, dtype}};
}

Tensor Dequantized(const NodeReader& op, PlanBuilder* plan) {
  const PlanBuilder::Mark mark = plan->Here();
  const Tensor src = plan->Input(op, 0);
  const Quantization from = Quantization::Read(op, plan, src.dims());
  const Tensor dst = IsBeyondReorder(from)
                         ? Binaries(op, plan, src, from, /*is_quantizing=*/false)
                         : Requantized(op, plan, src, kFloat, &from, /*to=*/nullptr);
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
  plan->SetOutput(node, Requantized(node, plan, src, last.OutType(), &from, &to));
}

void LowerQuantize(const NodeReader& node, PlanBuilder* plan) {
  const PlanBuilder::Mark mark = plan->Here();
  const Tensor src = plan->Input(node, 0);
  const Quantization to = Quantization::Read(node, plan, src.dims());
  const auto reorder = [&](const Tensor& value, const Quantization* quantization) {
    return Requantized(node, plan, value, node.OutType(), nullptr, quantization);
  };
  const Tensor dst = IsBeyondReorder(to)
                         ? reorder(Binaries(node, plan, src, to, /*is_quantizing=*/true), nullptr)
                         : reorder(src, &to);
  if (plan->IsConstant(src) && to.IsConstant(*plan)) plan->RunNow(mark);
  plan->SetOutput(node, dst);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
