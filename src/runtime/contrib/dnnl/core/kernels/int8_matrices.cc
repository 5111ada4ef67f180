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
 * \file src/runtime/contrib/dnnl/core/kernels/int8_matrices.cc
 * \brief Exact matmuls of 8-bit integers, on CPUs with AVX2 but without VNNI.
 *
 * Pairs of 16-bit numbers are multiplied and added up in 32 bits. The instruction for bytes, which
 * oneDNN uses on these CPUs, adds up in 16 bits, and saturates.
 */
#include "int8_matrices.h"

#include <algorithm>
#include <cstring>
#if defined(__GNUC__) && defined(__x86_64__)
#define DNNL_HAS_INT8_MATRICES
#include <immintrin.h>
#endif

#include "../exec/parallel.h"
#include "isa.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

constexpr int64_t kPanel = Int8Matrix::kPanel;

/*! \brief The rows of a tile, the sums of which are in registers. */
constexpr int kTile = 6;
/*! \brief The 16-bit numbers of rows that stay in a cache while a panel is multiplied by them. */
constexpr int64_t kCached = 65536;
/*! \brief Products, and elements that are copied, that are worth a thread. */
constexpr int64_t kWork = 1 << 18, kElements = 1 << 15;

/*! \brief Pack a panel, the columns of which may be fewer. */
DNNL_INLINE void PackPanel(const Int8Matrix& matrix, int64_t columns, const uint8_t* src,
                           uint8_t* to) {
  const uint8_t sign = matrix.is_signed ? 0 : 0x80;
  std::memset(to, 0, matrix.pairs() * 2 * kPanel);
  for (int64_t k = 0; k < matrix.inner; ++k) {
    const uint8_t* from = src + k * matrix.row_stride;
    uint8_t* pairs = to + k / 2 * 2 * kPanel + k % 2;
    for (int64_t n = 0; n < columns; ++n) pairs[2 * n] = from[n * matrix.column_stride] ^ sign;
  }
}

/*! \brief A full panel of a row-major matrix. */
DNNL_INLINE void PackRowMajor(const Int8Matrix& matrix, const uint8_t* src, uint8_t* to) {
  const uint8_t sign = matrix.is_signed ? 0 : 0x80;
  int64_t k = 0;
  for (; k + 2 <= matrix.inner; k += 2, to += 2 * kPanel) {
    const uint8_t *even = src + k * matrix.row_stride, *odd = even + matrix.row_stride;
    for (int64_t n = 0; n < kPanel; ++n) {
      to[2 * n] = even[n] ^ sign;
      to[2 * n + 1] = odd[n] ^ sign;
    }
  }
  if (k == matrix.inner) return;
  for (int64_t n = 0; n < kPanel; ++n) {
    to[2 * n] = src[k * matrix.row_stride + n] ^ sign;
    to[2 * n + 1] = 0;
  }
}

/*! \brief A full panel of a matrix whose columns are contiguous. */
DNNL_INLINE void PackColumnMajor(const Int8Matrix& matrix, const uint8_t* src, uint8_t* to) {
  const uint16_t signs = matrix.is_signed ? 0 : 0x8080;
  int64_t k = 0;
  for (; k + 2 <= matrix.inner; k += 2, to += 2 * kPanel) {
    uint16_t pairs[kPanel];
    for (int64_t n = 0; n < kPanel; ++n) {
      std::memcpy(pairs + n, src + n * matrix.column_stride + k, sizeof(pairs[n]));
    }
    for (uint16_t& pair : pairs) pair ^= signs;
    std::memcpy(to, pairs, sizeof(pairs));
  }
  if (k == matrix.inner) return;
  for (int64_t n = 0; n < kPanel; ++n) {
    to[2 * n] = src[n * matrix.column_stride + k] ^ static_cast<uint8_t>(signs);
    to[2 * n + 1] = 0;
  }
}

DNNL_FOR_CPUS void PackPanels(const Int8Matrix& matrix, const uint8_t* src, uint8_t* packed,
                              int64_t first, int64_t last) {
  const int64_t panels = matrix.panels(), bytes = matrix.pairs() * 2 * kPanel;
  for (int64_t i = first; i < last; ++i) {
    const int64_t begin = i % panels * kPanel;
    const uint8_t* from =
        src + i / panels * matrix.inner * matrix.columns + begin * matrix.column_stride;
    uint8_t* to = packed + i * bytes;
    if (begin + kPanel > matrix.columns) {
      PackPanel(matrix, matrix.columns - begin, from, to);
    } else if (matrix.column_stride == 1) {
      PackRowMajor(matrix, from, to);
    } else if (matrix.row_stride == 1) {
      PackColumnMajor(matrix, from, to);
    } else {
      PackPanel(matrix, kPanel, from, to);
    }
  }
}

/*! \brief Rows in 16 bits without their zero point, with padding, and their sums. */
template <typename T>
DNNL_INLINE void Widen(const T* src, int64_t count, int64_t padded, int32_t zero_point,
                       int64_t rows, int16_t* dst, int32_t* sums) {
  for (int64_t m = 0; m < rows; ++m, src += count, dst += padded) {
    int32_t sum = 0;
    for (int64_t k = 0; k < count; ++k) {
      const auto value = static_cast<int16_t>(src[k] - zero_point);
      dst[k] = value;
      sum += value;
    }
    if (padded > count) dst[count] = 0;
    sums[m] = sum;
  }
}

DNNL_FOR_CPUS void WidenRows(const uint8_t* src, int64_t count, int64_t padded, int32_t zero_point,
                             int64_t rows, int16_t* dst, int32_t* sums) {
  Widen(src, count, padded, zero_point, rows, dst, sums);
}
DNNL_FOR_CPUS void WidenRows(const int8_t* src, int64_t count, int64_t padded, int32_t zero_point,
                             int64_t rows, int16_t* dst, int32_t* sums) {
  Widen(src, count, padded, zero_point, rows, dst, sums);
}

#ifdef DNNL_HAS_INT8_MATRICES

/*! \brief A tile of results: rows by a panel. */
struct TileWork {
  const int16_t* rows;
  const int32_t* sums;
  const int8_t* panel;
  int64_t pairs, columns, dst_stride;
  const float *scales, *bias;
  const Int8Finish* finish;
  char* dst;
};

DNNL_AVX2 DNNL_INLINE __m256 Finished(__m256i sums, const TileWork& work, int row, int half) {
  const Int8Finish& finish = *work.finish;
  const __m256i correction = _mm256_set1_epi32(work.sums[row] * finish.zero_point);
  const __m256 value = _mm256_cvtepi32_ps(_mm256_sub_epi32(sums, correction));
  const __m256 scale =
      _mm256_mul_ps(_mm256_loadu_ps(work.scales + 8 * half), _mm256_set1_ps(finish.factor));
  const __m256 result = _mm256_fmadd_ps(value, scale, _mm256_loadu_ps(work.bias + 8 * half));
  return _mm256_min_ps(_mm256_max_ps(result, _mm256_set1_ps(finish.low)),
                       _mm256_set1_ps(finish.high));
}

DNNL_AVX2 DNNL_INLINE void StoreRow(__m256 first, __m256 second, const TileWork& work, char* dst) {
  alignas(32) float floats[kPanel];
  if (!work.finish->is_rounded) {
    const bool is_full = work.columns == kPanel;
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
  if (work.columns == kPanel) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst), result);
  } else {
    char block[kPanel];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(block), result);
    std::memcpy(dst, block, work.columns);
  }
}

template <int R>
DNNL_AVX2 void MultiplyTile(const TileWork& work) {
  __m256i sums[R][2];
  DNNL_UNROLL
  for (int row = 0; row < R; ++row) sums[row][0] = sums[row][1] = _mm256_setzero_si256();
  const int64_t stride = 2 * work.pairs;
  const int16_t* rows = work.rows;
  const auto* panel = reinterpret_cast<const __m128i*>(work.panel);
  for (int64_t k = 0; k < work.pairs; ++k, rows += 2, panel += 2) {
    const __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128(panel));
    const __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128(panel + 1));
    DNNL_UNROLL
    for (int row = 0; row < R; ++row) {
      int32_t pair;
      std::memcpy(&pair, rows + row * stride, sizeof(pair));
      const __m256i data = _mm256_set1_epi32(pair);
      sums[row][0] = _mm256_add_epi32(sums[row][0], _mm256_madd_epi16(data, first));
      sums[row][1] = _mm256_add_epi32(sums[row][1], _mm256_madd_epi16(data, second));
    }
    // Otherwise GCC copies each sum from register to register, and some to the stack.
    DNNL_UNROLL
    for (int row = 0; row < R; ++row) __asm__("" : "+x"(sums[row][0]), "+x"(sums[row][1]));
  }
  char* dst = work.dst;
  DNNL_UNROLL
  for (int row = 0; row < R; ++row, dst += work.dst_stride) {
    StoreRow(Finished(sums[row][0], work, row, 0), Finished(sums[row][1], work, row, 1), work, dst);
  }
}

/*! \brief Multiply rows by a panel. */
void MultiplyRows(TileWork work, int64_t rows) {
  constexpr void (*kCode[])(const TileWork&) = {MultiplyTile<1>, MultiplyTile<2>, MultiplyTile<3>,
                                                MultiplyTile<4>, MultiplyTile<5>, MultiplyTile<6>};
  static_assert(sizeof(kCode) / sizeof(kCode[0]) == kTile);
  for (int64_t m = 0; m < rows; m += kTile) {
    const int64_t some = std::min<int64_t>(kTile, rows - m);
    kCode[some - 1](work);
    work.rows += some * 2 * work.pairs;
    work.sums += some;
    work.dst += some * work.dst_stride;
  }
}

#endif

}  // namespace

bool HasInt8Matrices() {
#ifdef DNNL_HAS_INT8_MATRICES
  return HasISA(ISA::kAVX2) && !HasISA(ISA::kAVX512);
#else
  return false;
#endif
}

void PackInt8Matrices(const Int8Matrix& matrix, int64_t count, const void* src, int8_t* packed) {
  const int64_t grain = std::max<int64_t>(1, kElements / (matrix.inner * kPanel));
  ParallelFor(count * matrix.panels(), grain, [&](int64_t first, int64_t last) {
    PackPanels(matrix, static_cast<const uint8_t*>(src), reinterpret_cast<uint8_t*>(packed), first,
               last);
  });
}

#ifdef DNNL_HAS_INT8_MATRICES

void MultiplyInt8(const Int8Source& src, const Int8Matrix& matrix, int64_t matrices,
                  const int8_t* packed, const Int8Finish& given, int16_t* workspace, void* dst) {
  const int64_t count = matrix.inner, padded = 2 * matrix.pairs();
  // The sums come first, aligned as the workspace is.
  auto* const sums = reinterpret_cast<int32_t*>(workspace);
  int16_t* const wide = workspace + 2 * src.rows;
  const int64_t grain = std::max<int64_t>(1, kElements / count);
  ParallelFor(src.rows, grain, [&](int64_t first, int64_t last) {
    const auto widen = [&](const auto* values) {
      WidenRows(values + first * count, count, padded, src.zero_point, last - first,
                wide + first * padded, sums + first);
    };
    src.is_signed ? widen(static_cast<const int8_t*>(src.values))
                  : widen(static_cast<const uint8_t*>(src.values));
  });
  Int8Finish finish = given;
  // As the elements of the matrix.
  if (!matrix.is_signed) finish.zero_point -= 128;
  const int64_t rows = src.rows / matrices, panels = matrix.panels();
  const int64_t tiles = std::max<int64_t>(1, kCached / (padded * kTile));
  const int64_t chunk = std::min(rows, tiles * kTile), chunks = (rows + chunk - 1) / chunk;
  const int64_t bytes = finish.is_rounded ? 1 : sizeof(float), row_bytes = matrix.columns * bytes;
  const int64_t tasks = std::max<int64_t>(1, kWork / (chunk * kPanel * count));
  ParallelFor(matrices * chunks * panels, tasks, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t panel = i % panels, part = i / panels % chunks, which = i / panels / chunks;
      const int64_t begin = which * rows + part * chunk, column = panel * kPanel;
      const TileWork work = {wide + begin * padded,
                             sums + begin,
                             packed + (which * panels + panel) * padded * kPanel,
                             matrix.pairs(),
                             std::min(kPanel, matrix.columns - column),
                             row_bytes,
                             finish.scales + column,
                             finish.bias + column,
                             &finish,
                             static_cast<char*>(dst) + begin * row_bytes + column * bytes};
      MultiplyRows(work, std::min(chunk, rows - part * chunk));
    }
  });
}

#else

void MultiplyInt8(const Int8Source&, const Int8Matrix&, int64_t, const int8_t*, const Int8Finish&,
                  int16_t*, void*) {}

#endif

}  // namespace tvm::runtime::contrib::dnnl_backend
