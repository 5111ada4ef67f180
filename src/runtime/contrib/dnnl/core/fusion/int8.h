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
 * \file src/runtime/contrib/dnnl/core/fusion/int8.h
 * \brief Multiplications of 8-bit numbers: what oneDNN's kernels accept, and where they are right.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_INT8_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_INT8_H_

#include <optional>

#include "../node_reader.h"
#include "../plan/builder.h"
#include "../plan/tensor.h"
#include "post_ops.h"
#include "quantization.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief Whether this CPU adds two products of bytes in 16 bits, where they may saturate.
 *
 * x86 without VNNI has vpmaddubsw only, whose sum of two products of 255 and 127 would need 17.
 */
bool SumsIn16Bits();

/*! \brief A kernel's demands on the second operand. */
struct Int8Weights {
  /*! \brief The axis, in Relay's order, along which scales may differ. */
  int axis;
  /*! \brief How many scales there are then. */
  int64_t channels;
  bool is_convolution;
  /*! \brief Whether it multiplies exactly on this CPU, whatever the weights are. */
  bool is_exact{false};
};

/*! \brief The operands of a convolution or matmul of 8-bit numbers. */
struct Int8Operands {
  Quantization src;
  /*! \brief The second input, made signed. */
  Tensor weights;
  Quantization weights_are;
  Int8Weights kernel;
};

/*!
 * \brief Why oneDNN's kernels for this CPU would compute a product, but not exactly; nullptr where
 * they are exact.
 */
const char* WhyInexact(const NodeReader& node, PlanBuilder* plan, const Tensor& src,
                       const Tensor& weights, bool is_convolution);

/*!
 * \brief The operands of a node whose first two inputs are dequantized, to multiply them as they
 * are; nothing for a node in float32.
 *
 * An error of oneDNN's kind says why no kernel of this CPU computes what the node does.
 */
std::optional<Int8Operands> ReadInt8(const NodeReader& node, PlanBuilder* plan,
                                     const Int8Weights& kernel);

/*!
 * \brief Make the second operand signed, and check that a kernel of this CPU multiplies both.
 * \param src The first operand, in 8 bits.
 * \param operands How it is quantized, and the second one as it is given.
 */
Int8Operands CheckInt8(const NodeReader& node, PlanBuilder* plan, const Tensor& src,
                       Int8Operands operands);

/*!
 * \brief Read the post-ops of a convolution or matmul and, of one in 8 bits, have the primitive
 * multiply the dequantized values of the operands.
 *
 * Where the scales are constant, one scale for each channel does it, in which all is that is linear
 * from the sums of products to the first post-op, and a bias: of the scales of source and weights,
 * `FusedOps::head` and, where nothing is padded, the source's zero point. oneDNN has its best code
 * for operands without zero points, and each post-op less is a pass over the result less.
 *
 * \param view How the primitive sees the result; here it gets what both kinds have in common.
 * \param operands What `ReadInt8` returned.
 * \param mask oneDNN's of the weights' scales, where they differ along an axis.
 * \param is_padded Whether sums at the border are of fewer products.
 */
FusedOps FuseInt8(const NodeReader& node, PlanBuilder* plan, ResultView view,
                  const std::optional<Int8Operands>& operands, int mask, bool is_padded);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_INT8_H_
