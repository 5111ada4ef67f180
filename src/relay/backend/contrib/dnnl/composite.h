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
 * \file src/relay/backend/contrib/dnnl/composite.h
 * \brief Reads a call of the DNNL backend, single op or composite, for both codegens.
 */
#ifndef TVM_RELAY_BACKEND_CONTRIB_DNNL_COMPOSITE_H_
#define TVM_RELAY_BACKEND_CONTRIB_DNNL_COMPOSITE_H_

#include <tvm/relay/expr.h>
#include <tvm/relay/function.h>

#include <string>
#include <vector>

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

/*!
 * \brief The name of the op that is called: Relay's, or that of a virtual op.
 *
 * A composite with the name of an op in the runtime's table stands for that op, such as gelu, which
 * Relay does not have. The body says what it computes, for TVM; the other attributes of the
 * function are those of the op.
 */
std::string OpNameOf(const CallNode* call);

/*!
 * \brief The attribute of a composite that holds all attributes of its node of the JSON graph.
 *
 * The inputs are then the arguments of the call. partition_for_dnnl writes it, TVM's MergeComposite
 * does not.
 */
constexpr const char* kKernelAttr = "dnnl_kernel";

/*! \brief An op that a composite applies to the result of its root op. */
struct PostOp {
  const CallNode* call;
  /*! \brief Which of KernelCall::inputs is the other operand; -1 for a unary op. */
  int operand;
  /*! \brief Whether the other operand is the first one, as in `operand - result`. */
  bool operand_first;
  /*! \brief For a quantize or a dequantize: which inputs are its parameters; -1 for other ops. */
  int scale{-1};
  int zero_point{-1};
};

/*! \brief An input that the kernel reads as scale * (input - zero_point). */
struct QuantizedInput {
  /*! \brief The qnn.dequantize in the composite's body. */
  const CallNode* call;
  /*! \brief Which of KernelCall::inputs they are. */
  int input;
  int scale;
  int zero_point;
};

/*! \brief A call as one kernel: a root op and what is fused to it. */
struct KernelCall {
  /*! \brief The composite's name, or the op's. */
  std::string name;
  /*! \brief The call of the root op; its arguments may be parameters of the composite. */
  const CallNode* root;
  /*! \brief In the order in which they are applied. */
  std::vector<PostOp> post_ops;
  /*!
   * \brief The root's arguments, then the operands of the post-ops, then all scales and zero
   * points, in the caller's terms.
   */
  std::vector<Expr> inputs;
  std::vector<QuantizedInput> quantized_inputs;
  /*! \brief See kKernelAttr; if defined, there is no root, no post-op and no quantized input. */
  Optional<DictAttrs> attrs{};

  bool IsComposite() const { return name != RootName(); }
  std::string RootName() const { return OpNameOf(root); }
};

/*!
 * \brief Read a call of an op, a virtual op or a composite function.
 *
 * The body of a composite must be a chain: each call but the innermost, the root, has one argument
 * that is computed inside the body. A qnn.dequantize of an argument of the composite is no part of
 * the chain, it says how the kernel reads that argument.
 */
KernelCall ReadKernelCall(const CallNode* call);

/*! \brief Whether a partition has composites that are not those of partition_for_dnnl. */
bool HasOtherComposites(const Function& partition);

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm

#endif  // TVM_RELAY_BACKEND_CONTRIB_DNNL_COMPOSITE_H_
