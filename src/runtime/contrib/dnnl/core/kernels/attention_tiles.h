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
 * \file src/runtime/contrib/dnnl/core/kernels/attention_tiles.h
 * \brief Matrix products of blocks of queries, keys and values. To be included last.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_TILES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_TILES_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "attention.h"
#include "vectors.h"

namespace tvm::runtime::contrib::dnnl_backend {

template <int W>
DNNL_INLINE Floats<W> PlusProduct(Floats<W> sum, Floats<W> row, float factor) {
  return sum + row * factor;
}

/*!
 * \brief c[R, N * W] = a[R, count] * b[count, N * W], or added to it, by `PlusProduct` of a row of
 * b and an element of a.
 */
template <int W, bool kAdds, int R, int N, typename A, typename T>
DNNL_INLINE void MultiplyTile(const A* a, int64_t lda, const T* b, int64_t ldb, int64_t count,
                              float* c, int64_t ldc) {
  Floats<W> sums[R][N] = {};
  if constexpr (kAdds) {
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) sums[r][n] = Load<W>(c + r * ldc + n * W);
    }
  }
  for (int64_t k = 0; k < count; ++k, b += ldb) {
    Floats<W> row[N];
    for (int n = 0; n < N; ++n) row[n] = Load<W>(b + n * W);
    for (int r = 0; r < R; ++r) {
      const A factor = a[r * lda + k];
      for (int n = 0; n < N; ++n) sums[r][n] = PlusProduct<W>(sums[r][n], row[n], factor);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) Store<W>(sums[r][n], c + r * ldc + n * W);
  }
}

/*! \brief As many columns of R rows as are multiples of W, from a column on; the next one. */
template <int W, bool kAdds, int R, int N, typename A, typename T>
DNNL_INLINE int64_t MultiplyColumns(int64_t column, int64_t columns, const A* a, int64_t lda,
                                    const T* b, int64_t ldb, int64_t count, float* c, int64_t ldc) {
  for (; column + N * W <= columns; column += N * W) {
    MultiplyTile<W, kAdds, R, N>(a, lda, b + column, ldb, count, c + column, ldc);
  }
  return column;
}

template <int W, bool kAdds, int R, typename A, typename T>
DNNL_INLINE void MultiplyRows(int64_t columns, const A* a, int64_t lda, const T* b, int64_t ldb,
                              int64_t count, float* c, int64_t ldc) {
  constexpr int kVectors = R <= 2 ? 4 : 2;
  int64_t at = MultiplyColumns<W, kAdds, R, kVectors>(0, columns, a, lda, b, ldb, count, c, ldc);
  at = MultiplyColumns<W, kAdds, R, 1>(at, columns, a, lda, b, ldb, count, c, ldc);
  if constexpr (W > 8 && std::is_same_v<A, float>) {
    at = MultiplyColumns<8, kAdds, R, 1>(at, columns, a, lda, b, ldb, count, c, ldc);
  }
  // Pairs have whole vectors.
  if constexpr (std::is_same_v<A, float>) {
    if (at == columns) return;
    for (int r = 0; r < R; ++r, a += lda, c += ldc) {
      const int64_t rest =
          MultiplyColumns<4, kAdds, 1, 1>(at, columns, a, lda, b, ldb, count, c, ldc);
      MultiplyColumns<1, kAdds, 1, 1>(rest, columns, a, lda, b, ldb, count, c, ldc);
    }
  }
}

/*! \brief As many rows as are multiples of R, from a row on; the next one. */
template <int W, bool kAdds, int R, typename A, typename T>
DNNL_INLINE int64_t MultiplyBlocks(int64_t row, int64_t rows, int64_t columns, const A* a,
                                   int64_t lda, const T* b, int64_t ldb, int64_t count, float* c,
                                   int64_t ldc) {
  for (; row + R <= rows; row += R) {
    MultiplyRows<W, kAdds, R>(columns, a + row * lda, lda, b, ldb, count, c + row * ldc, ldc);
  }
  return row;
}

/*! \brief c[rows, columns] = a[rows, count] * b[count, columns], or added to it. */
template <int W, bool kAdds, typename A, typename T>
DNNL_INLINE void Multiply(int64_t rows, int64_t columns, const A* a, int64_t lda, const T* b,
                          int64_t ldb, int64_t count, float* c, int64_t ldc) {
  // So many rows of sums, two vectors each, fit into the registers.
  constexpr int kTile = W == 16 ? 8 : W == 8 ? 6 : 4;
  int64_t row = 0;
  row = MultiplyBlocks<W, kAdds, kTile>(row, rows, columns, a, lda, b, ldb, count, c, ldc);
  row = MultiplyBlocks<W, kAdds, 4>(row, rows, columns, a, lda, b, ldb, count, c, ldc);
  row = MultiplyBlocks<W, kAdds, 2>(row, rows, columns, a, lda, b, ldb, count, c, ldc);
  MultiplyBlocks<W, kAdds, 1>(row, rows, columns, a, lda, b, ldb, count, c, ldc);
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
      Store<W>(ReduceLanes<W, Sum>(sums), scores + r * kAttentionKeys + j);
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

/*! \brief With fewer rows, keys are not transposed: that takes longer than the sums of lanes. */
constexpr int64_t kPackedRows = 6;

/*! \brief The products of a task, in float32. */
template <int W, typename T>
class FloatProducts {
 public:
  /*! \brief Keys of a block: scores of so many stay in the nearest cache with the operands. */
  static constexpr int64_t kKeys = 64;
  /*! \brief Rows that go through a block of keys at once: whole vectors and tiles. */
  static constexpr int64_t kRows = W == 16 ? 32 : kAttentionRows;
  /*! \brief The first row of a group that sees a key is rounded down to a multiple of this. */
  static constexpr int64_t kRowStep = W;
  /*! \brief See ExpOfScore. */
  static constexpr int kExpDegree = 5;

  FloatProducts(const AttentionShape& shape, float* workspace)
      : shape_(shape), packed_(workspace) {}

  /*! \brief The floats of the workspace. */
  static int64_t Size(const AttentionShape& shape) { return kAttentionKeys * shape.width; }

  /*! \brief Set a row of queries, before they are scaled. */
  DNNL_INLINE void SetQuery(int64_t, const T*) {}

  /*! \brief What the scores are still to be multiplied by. */
  DNNL_INLINE float ScoreScale() const { return 1.f; }

  /*! \brief Set the block of keys and values that all rows of a task are multiplied by. */
  DNNL_INLINE void SetBlock(int64_t rows, const T* key, const T* value, int64_t count) {
    is_packed_ = rows >= kPackedRows;
    key_ = key;
    value_ = value;
    if (is_packed_) Pack<W>(key, shape_.key[2], count, shape_.width, packed_);
  }

  /*!
   * \brief scores[rows, kAttentionKeys] = query[rows, width] * key[count, width]^T.
   * \param scaled_query Rows of all queries, from the row `first` on.
   */
  DNNL_INLINE void Score(int64_t /*first*/, int64_t rows, const float* scaled_query, int64_t count,
                         float* scores) {
    const int64_t width = shape_.width;
    if (!is_packed_) {
      return Dots<W>(rows, scaled_query, key_, shape_.key[2], count, width, scores);
    }
    Multiply<W, false>(rows, (count + W - 1) / W * W, scaled_query, width, packed_, kAttentionKeys,
                       width, scores, kAttentionKeys);
  }

  /*! \brief Set what replaces scores. */
  DNNL_INLINE void SetWeights(int64_t row, int64_t key, Floats<W> weights, float* scores) {
    Store<W>(weights, scores + row * kAttentionKeys + key);
  }

  /*! \brief sums[rows, columns] += weights[rows, count] * value[count, value_width]. */
  DNNL_INLINE void AddValues(int64_t rows, const float* weights, int64_t count, float* sums) {
    Multiply<W, true>(rows, shape_.value_width, weights, kAttentionKeys, value_, shape_.value[2],
                      count, sums, shape_.columns());
  }

 private:
  const AttentionShape& shape_;
  float* packed_;
  bool is_packed_ = false;
  const T *key_ = nullptr, *value_ = nullptr;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_TILES_H_
