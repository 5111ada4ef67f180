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
 * \file src/runtime/contrib/dnnl/core/kernels/byte_table.cc
 * \brief Functions of 8-bit integers by a table of their results.
 */
#include "byte_table.h"

#include <algorithm>
#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#endif

#include "../exec/parallel.h"
#include "isa.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

template <typename T>
DNNL_INLINE void LookUp(const T* table, const uint8_t* src, T* dst, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] = table[src[i]];
}

void LookUpOnAny(const uint8_t* table, const uint8_t* src, uint8_t* dst, int64_t count) {
  LookUp(table, src, dst, count);
}

#if defined(__GNUC__) && defined(__x86_64__)
/*!
 * \brief By shuffles, each of which looks up the lower four bits of bytes in a row of 16 entries,
 *        and gives zero for negative bytes.
 *
 * Rows are looked up in their order, as 16 is taken off the bytes, which then are negative for the
 * rows after their own. A row holds its difference (XOR) from the one before it, so that the XOR of
 * what was found up to a byte's own row is the entry. The rows of negative bytes follow in the same
 * way.
 */
DNNL_AVX2 void LookUpOnAVX2(const uint8_t* table, const uint8_t* src, uint8_t* dst, int64_t count) {
  constexpr int kRows = 16, kVectors = 4, kBytes = 32;
  __m256i rows[kRows];
  for (int row = 0; row < kRows; ++row) {
    const auto load = [table](int row) DNNL_AVX2 {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(table) + row);
    };
    const __m128i own = load(row);
    const bool is_first = row % (kRows / 2) == 0;
    rows[row] = _mm256_broadcastsi128_si256(is_first ? own : _mm_xor_si128(own, load(row - 1)));
  }
  const __m256i row_size = _mm256_set1_epi8(16), sign = _mm256_set1_epi8(-128);
  int64_t i = 0;
  for (; i + kVectors * kBytes <= count; i += kVectors * kBytes) {
    __m256i values[kVectors], found[kVectors];
    DNNL_UNROLL
    for (int k = 0; k < kVectors; ++k) {
      values[k] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + i) + k);
      found[k] = _mm256_setzero_si256();
    }
    DNNL_UNROLL
    for (int half = 0; half < 2; ++half) {
      __m256i left[kVectors];
      DNNL_UNROLL
      for (int k = 0; k < kVectors; ++k) {
        left[k] = half == 0 ? values[k] : _mm256_xor_si256(values[k], sign);
      }
      DNNL_UNROLL
      for (int row = 0; row < kRows / 2; ++row) {
        DNNL_UNROLL
        for (int k = 0; k < kVectors; ++k) {
          const __m256i entries = _mm256_shuffle_epi8(rows[half * kRows / 2 + row], left[k]);
          found[k] = _mm256_xor_si256(found[k], entries);
          left[k] = _mm256_subs_epi8(left[k], row_size);
        }
      }
    }
    DNNL_UNROLL
    for (int k = 0; k < kVectors; ++k) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i) + k, found[k]);
    }
  }
  LookUp(table, src + i, dst + i, count - i);
}
#else
constexpr auto LookUpOnAVX2 = LookUpOnAny;
#endif

/*! \brief Look up parts of a tensor, as many of which are worth a thread as this says. */
template <typename T, typename Code>
void LookUpParts(const T* table, const uint8_t* src, T* dst, int64_t count, int64_t grain,
                 const Code& code) {
  constexpr int64_t kPart = 4096;
  ParallelFor((count + kPart - 1) / kPart, grain, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kPart, end = std::min(count, last * kPart);
    code(table, src + begin, dst + begin, end - begin);
  });
}

}  // namespace

void LookUpBytes(const uint8_t* table, const uint8_t* src, uint8_t* dst, int64_t count) {
  using Code = void (*)(const uint8_t*, const uint8_t*, uint8_t*, int64_t);
  const Code code = CodeForCPU<Code>(LookUpOnAny, LookUpOnAVX2, LookUpOnAVX2);
  LookUpParts(table, src, dst, count, 16, code);
}

void LookUpBytes(const float* table, const uint8_t* src, float* dst, int64_t count) {
  LookUpParts(table, src, dst, count, 4, LookUp<float>);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
