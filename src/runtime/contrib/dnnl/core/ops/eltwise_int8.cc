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
 * \file src/runtime/contrib/dnnl/core/ops/eltwise_int8.cc
 * \brief Unary elementwise ops on dequantized 8-bit values.
 */
#include "eltwise_int8.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "../fusion/post_ops.h"
#include "../fusion/quantization.h"
#include "../implementation.h"
#include "../kernels/byte_table.h"
#include "../op_table.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*!
 * \brief The op and its post-ops as one primitive.
 *
 * oneDNN's elementwise primitives have no scales. A binary one takes off the zero point or, without
 * one, multiplies by the scale; the op is its first post-op.
 *
 * \param from How `src` is quantized.
 */
Tensor EmitBinary(const NodeReader& node, PlanBuilder* plan, const Quantization& from, Tensor src) {
  const auto [scale, zero_point] = from.Values(node, plan);
  const bool is_shifted = zero_point != 0;
  ResultView view{-1, [](const Tensor& operand) { return operand; }};
  view.scale = is_shifted ? scale : 1;
  view.is_post_op = true;
  const FusedOps fused = FusePostOps(node, plan, view);
  const Tensor number = plan->NewNumber(is_shifted ? zero_point : scale, src.dims().size());
  const auto describe = [&]() {
    return dnnl::binary::primitive_desc(
        plan->engine(), is_shifted ? dnnl::algorithm::binary_sub : dnnl::algorithm::binary_mul,
        src.md, number.md, WithType(src.md, node.OutType()), fused.attr);
  };
  if (IsReference(describe())) src = plan->Plain(node, src);
  const auto desc = describe();
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, dnnl::binary(desc),
             fused.AddTo({{DNNL_ARG_SRC_0, src}, {DNNL_ARG_SRC_1, number}, {DNNL_ARG_DST, dst}},
                         node, plan, desc),
             fused.names);
  plan->OfferInPlace(DNNL_ARG_SRC_0);
  return dst;
}

/*! \brief Whether the result depends on one element of the op's input alone, wherever that is. */
bool IsFunctionOfByte(const NodeReader& node, PlanBuilder* plan) {
  for (int i = 0; i < node.NumPostOps(); ++i) {
    const NodeReader op = node.PostOp(i);
    if (op.Operand() >= 0) return false;
    if (!op.IsQNN()) continue;
    const Quantization quantization = Quantization::Read(op, plan, op.OutDims());
    if (!quantization.IsConstant(*plan) || !quantization.IsPerTensor()) return false;
  }
  return true;
}

/*! \brief The results of the op and its post-ops for each value of a byte, computed now. */
Tensor TableOf(const NodeReader& node, PlanBuilder* plan, const Quantization& from,
               dnnl::memory::data_type type) {
  std::vector<uint8_t> values(kByteValues);
  std::iota(values.begin(), values.end(), 0);
  const Tensor bytes = plan->ConstantOf(values.data(), PlainDesc({kByteValues}, type));
  PlanBuilder::Mark mark = plan->Here();
  const auto own = SpecOf(node).OwnFunction(node);
  const bool is_last = node.NumPostOps() == 0 || node.PostOp(0).OpName() == "qnn.quantize";
  if (!own || node.NumPostOps() > 1 || !is_last) {
    const Tensor table = EmitBinary(node, plan, from, bytes);
    plan->RunNow(mark);
    return table;
  }
  const Tensor floats =
      Requantized(node, plan, bytes, dnnl::memory::data_type::f32, &from, /*to=*/nullptr);
  plan->RunNow(mark);
  std::vector<float> results = plan->ValuesOf<float>(node, floats);
  own(results.data(), results.data(), kByteValues);
  const Tensor table = plan->NewConstant(results);
  if (node.NumPostOps() == 0) return table;
  mark = plan->Here();
  const Quantization to = Quantization::Read(node.PostOp(0), plan, table.dims());
  const Tensor quantized = Requantized(node, plan, table, node.OutType(), nullptr, &to);
  plan->RunNow(mark);
  return quantized;
}

/*! \brief Look the results up in a table. */
template <typename T>
Tensor EmitTable(const NodeReader& node, PlanBuilder* plan, const Tensor& given,
                 const Tensor& table) {
  const int64_t count = NumElements(given.dims());
  // The padding of blocks must stay zero, and what lies between the parts of a view as it is.
  const bool is_dense = given.md.get_size() == static_cast<size_t>(count);
  const Tensor src = is_dense ? given : plan->Plain(node, given);
  const Tensor dst = plan->NewTensor(WithType(src.md, node.OutType()));
  const auto run = [count](void* const* addresses) {
    LookUpBytes(static_cast<const T*>(addresses[1]), static_cast<const uint8_t*>(addresses[0]),
                static_cast<T*>(addresses[2]), count);
  };
  plan->EmitKernel(node, "eltwise", run,
                   {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, table}, {DNNL_ARG_DST, dst}});
  plan->SetVariant("table of results", /*flops=*/0);
  if (sizeof(T) == 1) plan->OfferInPlace(DNNL_ARG_SRC);
  return dst;
}

}  // namespace

void LowerDequantizedEltwise(const NodeReader& node, PlanBuilder* plan) {
  const NodeReader dequantize = node.Dequantization(0);
  const Tensor src = plan->Input(node, 0);
  const Quantization from = Quantization::Read(dequantize, plan, src.dims());
  const bool has_types = IsByte(src.dtype()) &&
                         (IsByte(node.OutType()) || node.OutType() == dnnl::memory::data_type::f32);
  const bool has_table =
      has_types && from.IsConstant(*plan) && from.IsPerTensor() && IsFunctionOfByte(node, plan);
  if (has_table) {
    const Tensor table = TableOf(node, plan, from, src.dtype());
    plan->SetOutput(node, table.dtype() == dnnl::memory::data_type::f32
                              ? EmitTable<float>(node, plan, src, table)
                              : EmitTable<uint8_t>(node, plan, src, table));
    return;
  }
  const OpSpec& op = SpecOf(node);
  if (op.algorithm == dnnl::algorithm::undef || op.IsSlow(node)) {
    throw dnnl::error(dnnl_unimplemented, "our function is in float32");
  }
  plan->SetOutput(node, EmitBinary(node, plan, from, src));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
