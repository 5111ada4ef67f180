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
 * \file src/runtime/contrib/dnnl/core/ops/attention_tiles.h
 * \brief Matrix products of blocks of queries, keys and values. To be included last.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_ATTENTION_TILES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_ATTENTION_TILES_H_

#include <algorithm>
#include <cstdint>

#include "attention_kernel.h"
#include "vectors.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief c[R, N * W] += a[R, count] * b[count, N * W]. */
template <int W, int R, int N, typename T>
DNNL_INLINE void MultiplyTile(const float* a, int64_t lda, const T* b, int64_t ldb, int64_t count,
                              float* c, int64_t ldc) {
  Floats<W> sums[R][N];
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) sums[r][n] = Load<W>(c + r * ldc + n * W);
  }
  for (int64_t k = 0; k < count; ++k, b += ldb) {
    Floats<W> row[N];
    for (int n = 0; n < N; ++n) row[n] = Load<W>(b + n * W);
    for (int r = 0; r < R; ++r) {
      const float factor = a[r * lda + k];
      for (int n = 0; n < N; ++n) sums[r][n] += row[n] * factor;
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) Store<W>(sums[r][n], c + r * ldc + n * W);
  }
}

/*! \brief As many columns of R rows as are multiples of W, from a column on; the next one. */
template <int W, int R, int N, typename T>
DNNL_INLINE int64_t MultiplyColumns(int64_t column, int64_t columns, const float* a, int64_t lda,
                                    const T* b, int64_t ldb, int64_t count, float* c, int64_t ldc) {
  for (; column + N * W <= columns; column += N * W) {
    MultiplyTile<W, R, N>(a, lda, b + column, ldb, count, c + column, ldc);
  }
  return column;
}

template <int W, int R, typename T>
DNNL_INLINE void MultiplyRows(int64_t columns, const float* a, int64_t lda, const T* b, int64_t ldb,
                              int64_t count, float* c, int64_t ldc) {
  constexpr int kVectors = R <= 2 ? 4 : 2;
  int64_t at = MultiplyColumns<W, R, kVectors>(0, columns, a, lda, b, ldb, count, c, ldc);
  at = MultiplyColumns<W, R, 1>(at, columns, a, lda, b, ldb, count, c, ldc);
  if (at == columns) return;
  for (int r = 0; r < R; ++r, a += lda, c += ldc) {
    const int64_t rest = MultiplyColumns<4, 1, 1>(at, columns, a, lda, b, ldb, count, c, ldc);
    MultiplyColumns<1, 1, 1>(rest, columns, a, lda, b, ldb, count, c, ldc);
  }
}

/*! \brief As many rows as are multiples of R, from a row on; the next one. */
template <int W, int R, typename T>
DNNL_INLINE int64_t MultiplyBlocks(int64_t row, int64_t rows, int64_t columns, const float* a,
                                   int64_t lda, const T* b, int64_t ldb, int64_t count, float* c,
                                   int64_t ldc) {
  for (; row + R <= rows; row += R) {
    MultiplyRows<W, R>(columns, a + row * lda, lda, b, ldb, count, c + row * ldc, ldc);
  }
  return row;
}

/*! \brief c[rows, columns] += a[rows, count] * b[count, columns]. */
template <int W, typename T>
DNNL_INLINE void Multiply(int64_t rows, int64_t columns, const float* a, int64_t lda, const T* b,
                          int64_t ldb, int64_t count, float* c, int64_t ldc) {
  // So many rows of sums, two vectors each, fit into the registers.
  constexpr int kTile = W == 16 ? 8 : 4;
  int64_t row = 0;
  row = MultiplyBlocks<W, kTile>(row, rows, columns, a, lda, b, ldb, count, c, ldc);
  row = MultiplyBlocks<W, 4>(row, rows, columns, a, lda, b, ldb, count, c, ldc);
  row = MultiplyBlocks<W, 2>(row, rows, columns, a, lda, b, ldb, count, c, ldc);
  MultiplyBlocks<W, 1>(row, rows, columns, a, lda, b, ldb, count, c, ldc);
}

/*! \brief packed[W, kAttentionKeys] = key[W, W]^T, in registers. */
template <int W, typename T>
DNNL_INLINE void PackTile(const T* key, int64_t stride, float* packed) {
  Floats<W> tile[W];
  for (int t = 0; t < W; ++t) tile[t] = Load<W>(key + t * stride);
  Transpose<W>(tile);
  for (int t = 0; t < W; ++t) Store<W>(tile[t], packed + t * kAttentionKeys);
}

/*! \brief packed[width, kAttentionKeys] = key[count, width]^T, with zeros up to a multiple of W
 * columns. */
template <int W, typename T>
DNNL_INLINE void Pack(const T* key, int64_t stride, int64_t count, int64_t width, float* packed) {
  const int64_t columns = count / W * W, rows = width / W * W;
  for (int64_t j = 0; j < columns; j += W) {
    for (int64_t e = 0; e < rows; e += W) {
      PackTile<W>(key + j * stride + e, stride, packed + e * kAttentionKeys + j);
    }
  }
  for (int64_t e = 0; e < width; ++e) {
    for (int64_t j = e < rows ? columns : 0; j < (count + W - 1) / W * W; ++j) {
      packed[e * kAttentionKeys + j] = j < count ? Load<1>(key + j * stride + e)[0] : 0.f;
    }
  }
}

/*! \brief scores[rows, kAttentionKeys] = query[rows, width] * key[count, width]^T, row by row. */
template <int W, typename T>
DNNL_INLINE void Dots(int64_t rows, const float* query, const T* key, int64_t stride, int64_t count,
                      int64_t width, float* scores) {
  const int64_t full = width / W * W;
  int64_t j = 0;
  for (; j + W <= count; j += W) {
    const T* tile = key + j * stride;
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = query + r * width;
      Floats<W> sums[W] = {};
      for (int64_t e = 0; e < full; e += W) {
        const Floats<W> own = Load<W>(row + e);
        for (int t = 0; t < W; ++t) sums[t] += own * Load<W>(tile + t * stride + e);
      }
      if (full < width) {
        const Floats<W> own = LoadSome<W>(row + full, width - full);
        for (int t = 0; t < W; ++t) {
          sums[t] += own * LoadSome<W>(tile + t * stride + full, width - full);
        }
      }
      Store<W>(Sums<W>(sums), scores + r * kAttentionKeys + j);
    }
  }
  for (; j < count; ++j) {
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = query + r * width;
      Floats<W> sum = {};
      for (int64_t e = 0; e < full; e += W) {
        sum += Load<W>(row + e) * Load<W>(key + j * stride + e);
      }
      if (full < width) {
        sum += LoadSome<W>(row + full, width - full) *
               LoadSome<W>(key + j * stride + full, width - full);
      }
      scores[r * kAttentionKeys + j] = SumOf<W>(sum);
    }
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_ATTENTION_TILES_H_
