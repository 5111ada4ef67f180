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
 * \file src/runtime/contrib/dnnl/core/kernels/attention_amx.h
 * \brief Matrix products of blocks in bfloat16, in the tile registers of AMX. To be included after
 *        attention_pairs.h.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_AMX_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_AMX_H_

#include <algorithm>
#include <cstdint>

#include "attention.h"
#include "attention_pairs.h"
#include "tiles.h"
#include "vectors.h"

namespace tvm::runtime::contrib::dnnl_backend {

#if DNNL_HAS_TILES

/*! \brief c[32, N * 16] = a[32, pairs] * b[pairs, N * 16], or added to it, for N of 1 or 2. */
template <int N, bool kAdds>
DNNL_INLINE void MultiplyTiles(const Pair* a, int64_t lda, const Pair* b, int64_t ldb,
                               int64_t pairs, float* c, int64_t ldc) {
  float* below = c + kTileRows * ldc;
  if constexpr (kAdds) {
    LoadTile<0>(c, ldc);
    LoadTile<1>(below, ldc);
    if constexpr (N > 1) LoadTile<2>(c + kTileRows, ldc);
    if constexpr (N > 1) LoadTile<3>(below + kTileRows, ldc);
  } else {
    asm volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" ::);
  }
  for (int64_t k = 0; k < pairs; k += kTileRows, a += kTileRows, b += kTileRows * ldb) {
    LoadTile<4>(a, lda);
    LoadTile<6>(b, ldb);
    AddTileProduct<0, 4, 6>();
    LoadTile<5>(a + kTileRows * lda, lda);
    AddTileProduct<1, 5, 6>();
    if constexpr (N > 1) {
      LoadTile<7>(b + kTileRows, ldb);
      AddTileProduct<2, 4, 7>();
      AddTileProduct<3, 5, 7>();
    }
  }
  StoreTile<0>(c, ldc);
  StoreTile<1>(below, ldc);
  if constexpr (N > 1) StoreTile<2>(c + kTileRows, ldc);
  if constexpr (N > 1) StoreTile<3>(below + kTileRows, ldc);
}

/*! \brief As MultiplyTiles, for multiples of 32 rows, 16 columns and 16 pairs. */
template <bool kAdds>
DNNL_INLINE void MultiplyByTiles(int64_t rows, int64_t columns, const Pair* a, int64_t lda,
                                 const Pair* b, int64_t ldb, int64_t pairs, float* c, int64_t ldc) {
  for (int64_t n = 0; n < columns; n += 2 * kTileRows) {
    for (int64_t r = 0; r < rows; r += 2 * kTileRows) {
      if (n + kTileRows < columns) {
        MultiplyTiles<2, kAdds>(a + r * lda, lda, b + n, ldb, pairs, c + r * ldc + n, ldc);
      } else {
        MultiplyTiles<1, kAdds>(a + r * lda, lda, b + n, ldb, pairs, c + r * ldc + n, ldc);
      }
    }
  }
}

/*! \brief The products of a task, of numbers that are rounded to bfloat16, by AMX. */
template <int W, typename T>
class AMXProducts : public RoundedProducts<W, T> {
 public:
  /*! \brief With more keys, sums are loaded into tiles and stored fewer times. */
  static constexpr int64_t kKeys = 128;
  /*! \brief Two tiles. */
  static constexpr int64_t kRows = 32, kRowStep = kRows;

  AMXProducts(const AttentionShape& shape, float* workspace)
      : RoundedProducts<W, T>(shape, workspace) {}

  DNNL_INLINE void SetBlock(int64_t rows, const T* key, const T* value, int64_t count) {
    RoundedProducts<W, T>::SetBlock(rows, key, value, count);
    const int64_t columns = this->shape_.columns(), pairs = (count + 1) / 2;
    std::fill(this->value_ + pairs * columns, this->value_ + WholeTiles(pairs) * columns, Pair{0});
  }

  DNNL_INLINE void Score(int64_t first, int64_t rows, const float*, int64_t count, float* scores) {
    MultiplyByTiles<false>(rows, WholeTiles(count), this->query_ + first * this->pairs_,
                           this->pairs_, this->key_, kAttentionKeys, this->pairs_, scores,
                           kAttentionKeys);
  }

  DNNL_INLINE void AddValues(int64_t rows, const float*, int64_t count, float* sums) {
    const int64_t columns = this->shape_.columns();
    const int64_t all = WholeTiles((count + 1) / 2);
    if (const int64_t stored = WholeTiles(count) / 2; stored < all) {
      for (int64_t row = 0; row < rows; ++row) {
        std::fill_n(this->weights_ + row * kAttentionKeys / 2 + stored, all - stored, Pair{0});
      }
    }
    MultiplyByTiles<true>(rows, columns, this->weights_, kAttentionKeys / 2, this->value_, columns,
                          all, sums, columns);
  }

 private:
  static int64_t WholeTiles(int64_t count) {
    return (count + kTileRows - 1) / kTileRows * kTileRows;
  }

  TileRegisters registers_;
};

#endif  // DNNL_HAS_TILES

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_AMX_H_
