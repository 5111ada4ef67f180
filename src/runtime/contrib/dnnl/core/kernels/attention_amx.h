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

/*!
 * \brief c[rows, columns] = a[rows, pairs] * b[pairs, columns], or added to it, of multiples of 16
 *        pairs and columns and of up to 32 rows, in steps among which other code may run.
 *
 * The tile registers compute beside those of vectors. Rows are written up to a multiple of 16.
 */
class TileProduct {
 public:
  DNNL_INLINE void Start(bool adds, int64_t rows, int64_t columns, const Pair* a, int64_t lda,
                         const Pair* b, int64_t ldb, int64_t pairs, float* c, int64_t ldc) {
    adds_ = adds;
    rows_ = rows;
    columns_ = columns;
    pairs_ = pairs;
    lda_ = lda;
    ldb_ = ldb;
    ldc_ = ldc;
    a_ = a;
    b_ = b;
    c_ = c;
    column_ = pair_ = 0;
  }

  DNNL_INLINE int64_t steps() const {
    return (columns_ + 2 * kTileRows - 1) / (2 * kTileRows) * (pairs_ / kTileRows);
  }

  /*! \brief Add the products of 16 pairs; false where there are no more. */
  DNNL_INLINE bool Step() {
    if (column_ >= columns_) return false;
    if (column_ + kTileRows < columns_) {
      rows_ > kTileRows ? StepOf<2, 2>() : StepOf<1, 2>();
    } else {
      rows_ > kTileRows ? StepOf<2, 1>() : StepOf<1, 1>();
    }
    return true;
  }

  DNNL_INLINE void Finish() {
    while (Step()) {
    }
  }

 private:
  /*! \brief For so many tiles of rows and columns. */
  template <int R, int N>
  DNNL_INLINE void StepOf() {
    float *c = c_ + column_, *below = c + kTileRows * ldc_;
    if (pair_ == 0 && adds_) {
      LoadTile<0>(c, ldc_);
      if constexpr (R > 1) LoadTile<1>(below, ldc_);
      if constexpr (N > 1) LoadTile<2>(c + kTileRows, ldc_);
      if constexpr (R > 1 && N > 1) LoadTile<3>(below + kTileRows, ldc_);
    } else if (pair_ == 0) {
      asm volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" ::);
    }
    const Pair *a = a_ + pair_, *b = b_ + pair_ * ldb_ + column_;
    LoadTile<4>(a, lda_);
    LoadTile<6>(b, ldb_);
    AddTileProduct<0, 4, 6>();
    if constexpr (R > 1) LoadTile<5>(a + kTileRows * lda_, lda_);
    if constexpr (R > 1) AddTileProduct<1, 5, 6>();
    if constexpr (N > 1) LoadTile<7>(b + kTileRows, ldb_);
    if constexpr (N > 1) AddTileProduct<2, 4, 7>();
    if constexpr (R > 1 && N > 1) AddTileProduct<3, 5, 7>();
    pair_ += kTileRows;
    if (pair_ < pairs_) return;
    StoreTile<0>(c, ldc_);
    if constexpr (R > 1) StoreTile<1>(below, ldc_);
    if constexpr (N > 1) StoreTile<2>(c + kTileRows, ldc_);
    if constexpr (R > 1 && N > 1) StoreTile<3>(below + kTileRows, ldc_);
    pair_ = 0;
    column_ += N * kTileRows;
  }

  bool adds_ = false;
  int64_t rows_ = 0, columns_ = 0, pairs_ = 0, lda_ = 0, ldb_ = 0, ldc_ = 0;
  const Pair *a_ = nullptr, *b_ = nullptr;
  float* c_ = nullptr;
  /*! \brief Where the next step begins. */
  int64_t column_ = 0, pair_ = 0;
};

/*!
 * \brief The products of a task, of numbers that are rounded to bfloat16, by AMX.
 *
 * While the exponentials of a block are computed, so are the scores of the next one and the sums of
 * the one before.
 */
template <int W, typename T>
class AMXProducts : public RoundedProducts<W, T> {
 public:
  /*! \brief With more keys, sums are loaded into tiles and stored fewer times. */
  static constexpr int64_t kKeys = 128;
  static constexpr int64_t kRowStep = kGroupRows;

  AMXProducts(const AttentionShape& shape, float* workspace)
      : RoundedProducts<W, T>(shape, workspace) {}

  DNNL_INLINE void SetBlock(int64_t rows, const T* key, const T* value, int64_t count) {
    RoundedProducts<W, T>::SetBlock(rows, key, value, count);
    const int64_t columns = this->shape_.columns(), pairs = (count + 1) / 2;
    std::fill(this->value_ + pairs * columns, this->value_ + WholeTiles(pairs) * columns, Pair{0});
  }

  DNNL_INLINE float* Score(const VisibleBlock& block, const VisibleBlock& next, const float*,
                           float* scores) {
    if (!has_scores_) StartScores(block, scores);
    score_.Finish();
    float* result = scores + block_ * kGroupRows * kAttentionKeys;
    this->weights_ = all_weights_ + block_ * kGroupRows * kAttentionKeys / 2;
    block_ = 1 - block_;
    has_scores_ = next.rows > 0;
    if (has_scores_) StartScores(next, scores);
    rows_ = block.rows;
    steps_ = credit_ = 0;
    if (has_scores_) steps_ = score_.steps();
    steps_ += sum_.steps();
    return result;
  }

  DNNL_INLINE void Continue() {
    for (credit_ += steps_; credit_ >= rows_; credit_ -= rows_) {
      if (!sum_.Step()) score_.Step();
    }
  }

  DNNL_INLINE void AddValues(const VisibleBlock& block, const float*, float* sums) {
    const int64_t columns = this->shape_.columns();
    const int64_t pairs = WholeTiles((block.keys + 1) / 2);
    if (const int64_t stored = WholeTiles(block.keys) / 2; stored < pairs) {
      for (int64_t row = 0; row < block.rows; ++row) {
        std::fill_n(this->weights_ + row * kAttentionKeys / 2 + stored, pairs - stored, Pair{0});
      }
    }
    sum_.Finish();
    sum_.Start(true, block.rows, columns, this->weights_, kAttentionKeys / 2, this->value_, columns,
               pairs, sums, columns);
    if (!has_scores_) sum_.Finish();
  }

 private:
  static int64_t WholeTiles(int64_t count) {
    return (count + kTileRows - 1) / kTileRows * kTileRows;
  }

  DNNL_INLINE void StartScores(const VisibleBlock& block, float* scores) {
    score_.Start(false, block.rows, WholeTiles(block.keys),
                 this->query_ + block.first_row * this->pairs_, this->pairs_, this->key_,
                 kAttentionKeys, this->pairs_, scores + block_ * kGroupRows * kAttentionKeys,
                 kAttentionKeys);
  }

  TileRegisters registers_;
  TileProduct score_, sum_;
  Pair* const all_weights_ = this->weights_;
  bool has_scores_ = false;
  /*! \brief Which half of the scores and weights the next block has. */
  int block_ = 0;
  int64_t steps_ = 0, rows_ = 0, credit_ = 0;
};

#endif  // DNNL_HAS_TILES

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_AMX_H_
