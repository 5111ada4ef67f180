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
 * \file src/runtime/contrib/dnnl/core/fusion/second_operand.cc
 * \brief The second operands of binary ops and of post-ops.
 */
#include "second_operand.h"

#include <tuple>

#include "../op_table.h"
#include "quantization.h"

namespace tvm::runtime::contrib::dnnl_backend {

bool IsCommutative(dnnl::algorithm algorithm) {
  return algorithm == dnnl::algorithm::binary_add || algorithm == dnnl::algorithm::binary_mul ||
         algorithm == dnnl::algorithm::binary_max || algorithm == dnnl::algorithm::binary_min;
}

Tensor AlignRank(const NodeReader& node, PlanBuilder* plan, const Tensor& operand, size_t rank) {
  Dims dims = operand.dims();
  CORE_CHECK(dims.size() <= rank) << node.Where() << ": an operand of shape " << ToText(dims)
                                  << " does not broadcast to rank " << rank;
  dims.insert(dims.begin(), rank - dims.size(), 1);
  return plan->Reshaped(node, operand, dims);
}

Tensor SecondOperand(const NodeReader& node, const NodeReader& op, PlanBuilder* plan,
                     const Tensor& operand, size_t rank) {
  if (op.OpName() != "nn.bias_add" && op.OpName() != "nn.prelu") {
    return AlignRank(node, plan, operand, rank);
  }
  // These name the axis of their vector; numpy's rules would put it last.
  Dims dims(rank, 1);
  dims[op.Axis("axis", 1, static_cast<int>(rank))] = operand.dims()[0];
  return plan->Plain(node, operand).Reshaped(dims);
}

PostOpOperand ReadPostOpOperand(const NodeReader& node, const NodeReader& post_op,
                                PlanBuilder* plan, dnnl::algorithm algorithm) {
  CORE_CHECK(post_op.Operand() >= 0) << post_op.Where() << ": the second operand is missing";
  PostOpOperand operand;
  operand.value = plan->Input(node, post_op.Operand());
  if (!node.IsDequantized(post_op.Operand())) {
    operand.value = SecondOperand(node, post_op, plan, operand.value, post_op.OutDims().size());
    return operand;
  }
  const NodeReader dequantize = node.Dequantization(post_op.Operand());
  const Quantization from = Quantization::Read(dequantize, plan, operand.value.dims());
  const bool is_sum =
      algorithm == dnnl::algorithm::binary_add || algorithm == dnnl::algorithm::binary_sub;
  const bool is_product = algorithm == dnnl::algorithm::binary_mul && !from.HasZeroPoint();
  operand.is_quantized = (is_sum || is_product) && !plan->IsConstant(operand.value) &&
                         operand.value.dtype() != dnnl::memory::data_type::s32 &&
                         from.IsConstant(*plan) && from.IsPerTensor();
  if (operand.is_quantized) {
    std::tie(operand.scale, operand.zero_point) = from.Values(dequantize, plan);
  } else {
    operand.value = Dequantized(dequantize, plan);
  }
  operand.value = SecondOperand(node, post_op, plan, operand.value, post_op.OutDims().size());
  return operand;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
