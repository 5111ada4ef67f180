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
 * \file src/runtime/contrib/dnnl/core/fusion/second_operand.h
 * \brief The second operands of binary ops and of post-ops.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_SECOND_OPERAND_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_SECOND_OPERAND_H_

#include "../node_reader.h"
#include "../plan/builder.h"
#include "../plan/tensor.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Whether a binary op gives the same with its operands swapped. */
bool IsCommutative(dnnl::algorithm algorithm);

/*! \brief A second operand with leading dimensions of 1, so that it has the rank of the result. */
Tensor AlignRank(const NodeReader& node, PlanBuilder* plan, const Tensor& operand, size_t rank);

/*!
 * \brief The second operand of a binary op with the rank of the result, in Relay's order.
 * \param node The node that the op is part of, or is.
 */
Tensor SecondOperand(const NodeReader& node, const NodeReader& op, PlanBuilder* plan,
                     const Tensor& operand, size_t rank);

/*! \brief The second operand of a post-op: scale * (value - zero_point). */
struct PostOpOperand {
  Tensor value;
  double scale{1}, zero_point{0};
  /*! \brief Whether the post-op reads the quantized elements. */
  bool is_quantized{false};
};

/*!
 * \brief Read the second operand of a post-op. A quantized one that the post-op cannot read is
 * dequantized in a step of its own, a constant at once.
 */
PostOpOperand ReadPostOpOperand(const NodeReader& node, const NodeReader& post_op,
                                PlanBuilder* plan, dnnl::algorithm algorithm);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_SECOND_OPERAND_H_
