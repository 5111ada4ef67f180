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
 * \file src/runtime/contrib/dnnl/core/kernels/attention.h
 * \brief softmax(scale * query * key^T + mask) * value, in blocks that stay in the caches.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_H_

#include <array>
#include <cstdint>

#include "zero_rows.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The most masks that are added to the scores. */
constexpr int kAttentionMasks = 2;

/*! \brief Rows of queries that share a block of keys, and keys of a block, at most. */
constexpr int64_t kAttentionRows = 256, kAttentionKeys = 128;

/*!
 * \brief Sizes and strides, all in elements, known when the kernel runs only: no code and no
 *        primitive depends on them.
 */
struct AttentionShape {
  int64_t batch, heads, kv_heads, queries, keys, width, value_width;
  /*! \brief Of batch, head and row; the elements of a row are contiguous. */
  std::array<int64_t, 3> query, key, value, result;
  /*!
   * \brief Of each mask, of batch, head, query and key: zero where it is broadcast; 0 or 1 for the
   *        key.
   */
  std::array<std::array<int64_t, 4>, kAttentionMasks> masks;
  /*! \brief Rows of a page of keys and values, and elements from page to page; 0 for no pages. */
  int64_t page_rows, page;
  float scale;
  bool is_causal;
  /*! \brief Whether float32 may be rounded to bfloat16 to be multiplied. */
  bool allows_bfloat16;
  ZeroRows zeros;

  /*! \brief Query heads that read one head of keys and values. */
  int64_t group() const { return heads / kv_heads; }
  /*! \brief Queries that read the same keys and values. */
  int64_t rows() const { return group() * queries; }
  /*! \brief The width of a row of values in whole vectors. */
  int64_t columns() const { return (value_width + 15) / 16 * 16; }
};

/*! \brief The floats that so many threads need as workspace. */
int64_t AttentionWorkspace(const AttentionShape& shape, int64_t threads);

/*! \brief Where the tensors are; those of type T are float, or uint16_t for bfloat16. */
template <typename T>
struct AttentionData {
  const T* query;
  const T* key;
  const T* value;
  /*! \brief nullptr for none; of floats where `mask_is_float`, else of T. */
  std::array<const void*, kAttentionMasks> masks;
  std::array<bool, kAttentionMasks> mask_is_float;
  T* result;
  /*! \brief The number of each page of a sequence, where there are pages. */
  const int32_t* pages = nullptr;
  /*!
   * \brief If not nullptr: the logarithm to base 2 of the sum of exponentials of each row of the
   *        result, in its order.
   */
  float* log_sums = nullptr;
  /*! \brief AttentionWorkspace(shape, threads) floats. */
  float* workspace;
  int64_t threads;
};

/*! \brief Compute attention, with sums and exponentials in float32. */
void Attention(const AttentionShape& shape, const AttentionData<float>& data);
void Attention(const AttentionShape& shape, const AttentionData<uint16_t>& data);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_H_
