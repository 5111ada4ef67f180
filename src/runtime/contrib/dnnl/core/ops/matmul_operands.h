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
 * \file src/runtime/contrib/dnnl/core/ops/matmul_operands.h
 * \brief The operands of a matrix multiplication as oneDNN sees them.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_MATMUL_OPERANDS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_MATMUL_OPERANDS_H_

#include <optional>

#include "../fusion/int8.h"
#include "../node_reader.h"
#include "../plan/builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The attributes of an op about its operands. */
struct MatMulKind {
  /*! \brief Whether the first operand is quantized as the model runs. */
  bool is_dense, is_batch, is_dynamic, transpose_a, transpose_b;

  static MatMulKind Read(const NodeReader& node);
};

/*! \brief The matrices to multiply: (..., M, K) by (..., K, N). */
struct MatMulOperands {
  Tensor src;
  Tensor weights;
  Dims dst_dims;
  /*! \brief Whether the result is seen as a matrix of rows. */
  bool is_flat{false};
  /*! \brief Whether all dimensions but the last two are seen as one. */
  bool is_batch{false};
  /*! \brief Whether all is seen as (A, B, M, N). */
  bool is_interleaved{false};
  /*! \brief For a matmul in 8 bits. */
  std::optional<Int8Operands> int8;

  /*! \brief Dims of the result, or of an operand of its rank, as the matmul sees them. */
  Dims View(const Dims& dims) const;
  /*! \brief The source in a layout that oneDNN reads correctly. */
  dnnl::memory::desc SrcDesc() const;
};

/*! \brief A view with the last two dimensions swapped. */
Tensor Transposed(const Tensor& value);

/*! \brief All dimensions but the last two as one. */
Dims AsMatrices(Dims dims);

/*!
 * \brief The operands as one matrix of rows, or as one batch of matrices.
 * \param in_float32 Whether operands that are quantized as the model runs are dequantized again.
 */
MatMulOperands ReadOperands(const NodeReader& node, PlanBuilder* plan, bool in_float32 = false);

/*!
 * \brief The same without a copy of operands whose rows lie between those of other matrices, such
 * as the heads of attention; nothing where oneDNN does not read them so.
 *
 * In µs on two cores with AMX, queries by keys and what that gives by values, as they are, in turn
 * with the copies that rank 3 needs:
 *   12 heads of 128x64, bfloat16   22 + 16, 53 + 28      float32   85 + 79, 104 + 92
 *   3 heads of 197x64, bfloat16    21 + 24, 47 + 39      float32   60 + 48,  84 + 47
 */
std::optional<MatMulOperands> ReadInterleaved(const NodeReader& node, PlanBuilder* plan);

/*!
 * \brief Whether an inner_product of rows is slower than a convolution.
 *
 * oneDNN's blocks for AVX2 have at most 2,048 elements of a sum. In µs on two cores of an AMD EPYC
 * (Zen 1), as an inner_product and as a 1x1 convolution of rows:
 *   1x3072 by 3072x768     680  775     16x4096 by 4096x1024  2945 2440
 *   8x3072 by 3072x768    1161  969     64x4096 by 4096x1024  9879 7601
 *   32x3072 by 3072x768   3051 2349     64x2048 by 2048x512   1940 1889
 */
bool IsSlowProduct(const dnnl::primitive_desc_base& desc);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_MATMUL_OPERANDS_H_
