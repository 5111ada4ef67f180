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
 * \file src/runtime/contrib/dnnl/core/kernels/int8_tiles.h
 * \brief Tiles of exact matmuls of 8-bit integers, with AVX2: a few rows by a panel of columns.
 *
 * Pairs of 16-bit numbers are multiplied and added up in 32 bits. The instruction for bytes, which
 * oneDNN uses on CPUs without VNNI, adds up in 16 bits, and saturates.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_INT8_TILES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_INT8_TILES_H_

#include <cstdint>
#include <cstring>
#if defined(__GNUC__) && defined(__x86_64__)
#define DNNL_HAS_INT8_MATRICES
#include <immintrin.h>
#endif

#include "int8_matrices.h"
#include "isa.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The rows of a tile, the sums of which are in registers. */
constexpr int kInt8Tile = 6;
/*! \brief The 16-bit numbers of rows that stay in a cache while a panel is multiplied by them. */
constexpr int64_t kInt8Cached = 65536;
/*! \brief Products, and elements that are copied, that are worth a thread. */
constexpr int64_t kInt8Work = 1 << 18, kInt8Elements = 1 << 15;

#ifdef DNNL_HAS_INT8_MATRICES

/*!
 * \brief A tile of results: rows by a panel.
 *
 * A row consists of runs of pairs; each run is multiplied by a panel of its own.
 */
struct Int8Tile {
  const int16_t* rows[kInt8Tile];
  /*! \brief The sum of each row, for the zero point of the panel. */
  const int32_t* sums;
  /*! \brief Where the runs of a row begin. */
  const int64_t* runs;
  int64_t num_runs;
  /*! \brief Of a run. */
  int64_t pairs;
  const int8_t* panel;
  /*! \brief From the panel of a run to that of the next. */
  int64_t panel_stride;
  int64_t columns, dst_stride;
  const float *scales, *bias;
  const Int8Finish* finish;
  char* dst;
};

DNNL_AVX2 DNNL_INLINE __m256 Finished(__m256i sums, const Int8Tile& work, int row, int half) {
  const Int8Finish& finish = *work.finish;
  const __m256i correction = _mm256_set1_epi32(work.sums[row] * finish.zero_point);
  const __m256 value = _mm256_cvtepi32_ps(_mm256_sub_epi32(sums, correction));
  const __m256 scale =
      _mm256_mul_ps(_mm256_loadu_ps(work.scales + 8 * half), _mm256_set1_ps(finish.factor));
  const __m256 result = _mm256_fmadd_ps(value, scale, _mm256_loadu_ps(work.bias + 8 * half));
  return _mm256_min_ps(_mm256_max_ps(result, _mm256_set1_ps(finish.low)),
                       _mm256_set1_ps(finish.high));
}

DNNL_AVX2 DNNL_INLINE void StoreRow(__m256 first, __m256 second, const Int8Tile& work, char* dst) {
  alignas(32) float floats[Int8Matrix::kPanel];
  if (!work.finish->is_rounded) {
    const bool is_full = work.columns == Int8Matrix::kPanel;
    float* const to = is_full ? reinterpret_cast<float*>(dst) : floats;
    _mm256_storeu_ps(to, first);
    _mm256_storeu_ps(to + 8, second);
    if (!is_full) std::memcpy(dst, floats, work.columns * sizeof(float));
    return;
  }
  const __m256i zero_point = _mm256_set1_epi32(work.finish->result_zero_point);
  const auto rounded = [zero_point](__m256 value) DNNL_AVX2 {
    return _mm256_add_epi32(_mm256_cvtps_epi32(value), zero_point);
  };
  // The lowest byte of each.
  const __m256i bytes =
      _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12, -1,
                       -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i fours = _mm256_setr_epi32(0, 4, 0, 0, 0, 0, 0, 0);
  const auto eight = [&](__m256 value) DNNL_AVX2 {
    const __m256i shuffled = _mm256_shuffle_epi8(rounded(value), bytes);
    return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(shuffled, fours));
  };
  const __m128i result = _mm_unpacklo_epi64(eight(first), eight(second));
  if (work.columns == Int8Matrix::kPanel) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst), result);
  } else {
    char block[Int8Matrix::kPanel];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(block), result);
    std::memcpy(dst, block, work.columns);
  }
}

template <int R>
DNNL_AVX2 void MultiplyTile(const Int8Tile& work) {
  __m256i sums[R][2];
  DNNL_UNROLL
  for (int row = 0; row < R; ++row) sums[row][0] = sums[row][1] = _mm256_setzero_si256();
  const int16_t* rows[R];
  DNNL_UNROLL
  for (int row = 0; row < R; ++row) rows[row] = work.rows[row];
  for (int64_t run = 0; run < work.num_runs; ++run) {
    const auto* panel = reinterpret_cast<const __m128i*>(work.panel + run * work.panel_stride);
    const int64_t begin = work.runs[run], end = begin + 2 * work.pairs;
    for (int64_t k = begin; k < end; k += 2, panel += 2) {
      const __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128(panel));
      const __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128(panel + 1));
      DNNL_UNROLL
      for (int row = 0; row < R; ++row) {
        int32_t pair;
        std::memcpy(&pair, rows[row] + k, sizeof(pair));
        const __m256i data = _mm256_set1_epi32(pair);
        sums[row][0] = _mm256_add_epi32(sums[row][0], _mm256_madd_epi16(data, first));
        sums[row][1] = _mm256_add_epi32(sums[row][1], _mm256_madd_epi16(data, second));
      }
      // Otherwise GCC copies each sum from register to register, and some to the stack.
      DNNL_UNROLL
      for (int row = 0; row < R; ++row) __asm__("" : "+x"(sums[row][0]), "+x"(sums[row][1]));
    }
  }
  char* dst = work.dst;
  DNNL_UNROLL
  for (int row = 0; row < R; ++row, dst += work.dst_stride) {
    StoreRow(Finished(sums[row][0], work, row, 0), Finished(sums[row][1], work, row, 1), work, dst);
  }
}

/*! \brief Multiply the first rows of a tile. */
inline void MultiplyTile(const Int8Tile& work, int64_t rows) {
  constexpr void (*kCode[])(const Int8Tile&) = {MultiplyTile<1>, MultiplyTile<2>, MultiplyTile<3>,
                                                MultiplyTile<4>, MultiplyTile<5>, MultiplyTile<6>};
  static_assert(sizeof(kCode) / sizeof(kCode[0]) == kInt8Tile);
  kCode[rows - 1](work);
}

#endif  // DNNL_HAS_INT8_MATRICES

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_INT8_TILES_H_
