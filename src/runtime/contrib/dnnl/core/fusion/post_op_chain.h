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
 * \file src/runtime/contrib/dnnl/core/fusion/post_op_chain.h
 * \brief Writes what is done to a primitive's result in as few post-ops as may be.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_POST_OP_CHAIN_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_POST_OP_CHAIN_H_

#include <vector>

#include "../plan/builder.h"
#include "../plan/tensor.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief scale * x + shift. */
struct LinearFunction {
  double scale{1}, shift{0};
};

/*!
 * \brief The operations on a result, in as few post-ops as may be: each costs a pass over it.
 *
 * Linear functions become one, a clip that follows another becomes part of it, and a linear
 * function goes before a sum, whose scale it changes.
 */
class PostOpChain {
 public:
  /*! \param in_place Whether residuals are added in the result's memory. */
  explicit PostOpChain(bool in_place) : in_place_(in_place) {}

  /*! \brief Append scale * x + shift, in the way that quantized numbers become real ones. */
  void AppendLinear(double scale, double shift);
  void AppendEltwise(dnnl::algorithm algorithm, double alpha, double beta);
  /*! \param is_residual Whether the operand, of the result's shape, may lie in its memory. */
  void AppendBinary(dnnl::algorithm algorithm, const Tensor& operand, bool is_residual);

  /*! \brief Append a PReLU with slopes that have the rank of the result. */
  void AppendPReLU(const Tensor& slopes);

  /*! \brief The linear function that the chain begins with, which is no longer part of it. */
  LinearFunction TakeHead();
  /*! \brief Have the chain begin with a linear function. */
  void Prepend(double scale, double shift);

  /*!
   * \brief The post-ops for oneDNN.
   * \param result_size How many elements the result has.
   * \param operands Where the second operands go, in order.
   * \param residual Where the argument goes that is the residual.
   */
  dnnl::post_ops Finish(int64_t result_size, PlanBuilder::Args* operands, int* residual) const;

 private:
  /*! \brief A post-op to be. */
  struct Step {
    enum Kind { kLinear, kEltwise, kBinary, kPReLU, kSum };

    Kind kind;
    dnnl::algorithm algorithm;
    /*! \brief Parameters of an elementwise op; scale and shift of a linear function and a sum. */
    double alpha{1}, beta{0};
    /*! \brief The second operand of a binary op, a PReLU or a sum, in its own elements. */
    Tensor operand{};
    bool is_residual{false};
  };

  static Step Linear(double scale, double shift);
  /*! \brief Make a clip that is last but for a linear function one to these bounds, too. */
  bool Narrow(double low, double high);

  std::vector<Step> steps_;
  const bool in_place_;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_POST_OP_CHAIN_H_
