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
 * \file src/runtime/contrib/dnnl/core/kernels/block_int8.h
 * \brief Products of rows in int8 and weights of 4 or 8 bits, by the dot products of VNNI.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_BLOCK_INT8_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_BLOCK_INT8_H_

#include <cstdint>

#include "block_loops.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The channels of weights that are unpacked together for many rows. */
constexpr int64_t kInt8Channels = 32;

/*! \brief The channels of a register of float32, and of one of dot products. */
constexpr int64_t kInt8Lanes = 16;

/*! \brief How rows are divided into blocks, the bits of the weights, and the digits of the data. */
struct BlockSizes {
  int bits;
  int64_t block, blocks;
  /*!
   * \brief The digits in int8 of an element of a row, to base 256: 1 of many rows, 2 or 3 of one.
   *        With 3, the largest elements of a block are as exact as in float32.
   */
  int digits = 1;

  int64_t padded() const { return blocks * block; }
  /*! \brief The bytes of a row in int8: a multiple of two vector registers. */
  int64_t row_bytes() const { return (padded() + 127) / 128 * 128; }
  int64_t weight_bytes() const { return padded() * bits / 8; }
  /*! \brief The weights from a channel on. */
  BlockRow Channel(const BlockRow& weights, int64_t n) const {
    return {weights.values + n * weight_bytes(), weights.scales + n * blocks,
            weights.zero_points == nullptr ? nullptr : weights.zero_points + n * blocks};
  }
};

/*! \brief Rows of integers, a scale for each block. */
struct Int8Rows {
  /*!
   * \brief (rows, digits, row_bytes), the lowest digit first; for weights of 4 bits in the order in
   *        which MultiplyInt8Row or MultiplyInt8Rows, by the number of digits, unpacks these.
   */
  int8_t* values;
  /*! \brief (rows, blocks); NaN if an element of the block is not finite. */
  float* scales;
  /*! \brief Minus the sum of the dequantized block, (rows, blocks). */
  float* shifts;

  Int8Rows Row(const BlockSizes& sizes, int64_t m) const {
    return {values + m * sizes.digits * sizes.row_bytes(), scales + m * sizes.blocks,
            shifts + m * sizes.blocks};
  }
};

/*! \brief Whether this CPU has VNNI, ONEDNN_MAX_CPU_ISA allows it, and the blocks fit. */
bool HasBlockInt8(int64_t block);

/*!
 * \brief Quantize a row symmetrically: a block's largest magnitude becomes the largest number of so
 *        many digits, such as 127.
 *
 * Blocks below 1e-36, or 1e-31 with more than one digit, become zero: the inverse of their scale
 * would not be finite.
 *
 * \param count The elements of the row; zeros pad it.
 * \param row The first row of the result.
 */
void QuantizeBlocks(const float* src, int64_t count, const BlockSizes& sizes, const Int8Rows& row);

/*! \brief dst[n] = the row times the weight of channel n, which is read as it is. */
void MultiplyInt8Row(const BlockRow& weights, int64_t channels, const BlockSizes& sizes,
                     const Int8Rows& row, float* dst);

/*!
 * \brief dst[m * dst_stride + n] = row m times channel n, for kInt8Channels channels at most.
 *
 * The weights are unpacked once. Rows have one digit.
 */
void MultiplyInt8Rows(const BlockRow& weights, int64_t channels, const BlockSizes& sizes,
                      const Int8Rows& data, int64_t rows, float* dst, int64_t dst_stride);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_BLOCK_INT8_H_
