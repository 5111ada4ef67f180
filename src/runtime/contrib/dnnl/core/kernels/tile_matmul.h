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
 * \file src/runtime/contrib/dnnl/core/kernels/tile_matmul.h
 * \brief Some hundred rows in bfloat16 by a packed matrix, in the tile registers of AMX.
 *
 * In a run of a model, the weights of a layer are not in the caches of a core. These kernels
 * prefetch the next panel of weights as they multiply by the one before it.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_TILE_MATMUL_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_TILE_MATMUL_H_

#include <cstdint>
#include <vector>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Whether this CPU and the compiler have the instructions. */
bool HasTileMatMul();

/*! \brief An op on the sums of products, in float32, before they are rounded. */
struct TilePostOp {
  enum Kind { kAdd, kMultiply, kRelu, kGeluErf, kGeluTanh, kSwish };

  Kind kind;
  /*! \brief The address of a second operand among those of the call; -1 for a unary op. */
  int operand{-1};
  /*! \brief A second operand is a float32 number of each column, or else as the result. */
  bool is_row{false};
  /*! \brief Its type, if not float32. */
  bool is_bfloat16{false};
};

/*! \brief A product: src[rows, inner] * weights[inner, columns]. */
struct TileMatMul {
  /*! \brief The fewest rows. */
  static constexpr int64_t kBlock = 32;
  /*! \brief Columns of a panel of weights: oneDNN's layout is BA16a32b2a. */
  static constexpr int64_t kPanel = 32;

  /*! \brief The last two are multiples of 32. */
  int64_t rows, inner, columns;
  /*! \brief The type of the result, if not float32. */
  bool writes_bfloat16;
  std::vector<TilePostOp> post_ops;
};

/*!
 * \brief Multiply, apply the post-ops, and store.
 * \param src Row-major, in bfloat16.
 * \param weights Panels of columns; in them, pairs of rows, as two numbers of a column each.
 * \param addresses Where the operands of the post-ops begin.
 * \param dst Row-major. May be an operand of the result's shape and type.
 */
void MultiplyByPanels(const TileMatMul& product, const uint16_t* src, const uint16_t* weights,
                      void* const* addresses, void* dst);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_TILE_MATMUL_H_
