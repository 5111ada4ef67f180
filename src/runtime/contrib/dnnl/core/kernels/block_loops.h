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
 * \file src/runtime/contrib/dnnl/core/kernels/block_loops.h
 * \brief Vector loops over weights of 4 or 8 bits that have a scale for each block of a row.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_BLOCK_LOOPS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_BLOCK_LOOPS_H_

#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Blocks are of a multiple of so many elements, a unit of the loops. */
constexpr int64_t kUnit = 32;
/*! \brief The most rows of data that `MultiplyBlocks` reads the weights for at once. */
constexpr int64_t kMostRows = 4;

/*! \brief The weight of an output channel, all of whose blocks are of the same size. */
struct BlockRow {
  /*! \brief The elements, two to a byte in 4 bits, the first in the lower ones. */
  const uint8_t* values;
  const float* scales;
  /*! \brief nullptr for 8 or 128, the middle of the range. */
  const uint8_t* zero_points;
};

/*!
 * \brief Copy a row of data in the order in which the loops read weights, padded with zeros.
 *
 * The order depends on the CPU: only these functions know it.
 *
 * \param count The elements of the row.
 * \param sums The sum of each block.
 */
void ArrangeRow(const float* src, int64_t count, int bits, int64_t block, int64_t blocks,
                float* dst, float* sums);

/*!
 * \brief dst[m * dst_stride] = sum of data times the dequantized weight, for `rows` arranged rows.
 *
 * The weight is read once.
 */
void MultiplyBlocks(const BlockRow& weight, int bits, int64_t block, int64_t blocks,
                    const float* data, const float* sums, int64_t rows, float* dst,
                    int64_t dst_stride);

/*! \brief The dequantized weight of a channel, in the order of arranged rows. */
void DequantizeBlocks(const BlockRow& weight, int bits, int64_t block, int64_t blocks, float* dst);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_BLOCK_LOOPS_H_
