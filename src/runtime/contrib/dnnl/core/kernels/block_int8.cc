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
 * \file src/runtime/contrib/dnnl/core/kernels/block_int8.cc
 * \brief Quantizes rows to int8 in blocks, and multiplies one by weights of 4 or 8 bits.
 */
#include "block_int8.h"

#include <algorithm>
#include <cstring>

// The last one.
#include "cpu_clones.h"
#include "vnni.h"

namespace tvm::runtime::contrib::dnnl_backend {

bool HasBlockInt8(int64_t block) {
  return HasVNNI() && (block == 32 || block == 64 || block == 128 || block == 256);
}

#if DNNL_HAS_VNNI

namespace {

/*! \brief The channels whose sums are added up at once. */
constexpr int kTogether = 4;
/*! \brief The bytes of a row that a register of weights of 4 bits is multiplied by. */
constexpr int64_t kGroupBytes = 128;

/*!
 * \brief How many bytes ahead weights are prefetched, and their scales, as hardware stops at the
 *        end of a page.
 */
constexpr int64_t kAhead = 3072, kScalesAhead = 384;

DNNL_VNNI_INLINE void Prefetch(const void* from, int64_t bytes) {
  _mm_prefetch(static_cast<const char*>(from) + bytes, _MM_HINT_T0);
}

/*! \brief Store the quantized elements from k on, a register of 16, where the kernels read them. */
DNNL_VNNI_INLINE void StoreElements(__m128i bytes, const BlockSizes& sizes, int64_t k,
                                    int8_t* row) {
  if (sizes.bits == 8) return _mm_storeu_si128(reinterpret_cast<__m128i*>(row + k), bytes);
  // A register of weights of 4 bits has the even elements of eight in the lower halves of four
  // bytes, and the odd ones in the upper halves.
  const __m128i even_first = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  const __m128i halves = _mm_shuffle_epi8(bytes, even_first);
  if (sizes.digits == 1) {
    const __m128i quads = _mm_shuffle_epi32(halves, _MM_SHUFFLE(3, 1, 2, 0));
    return _mm_storeu_si128(reinterpret_cast<__m128i*>(row + k), quads);
  }
  int8_t* const even = row + k / kGroupBytes * kGroupBytes + k % kGroupBytes / 2;
  int8_t* const odd = even + kGroupBytes / 2;
  _mm_storel_epi64(reinterpret_cast<__m128i*>(even), halves);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(odd), _mm_unpackhi_epi64(halves, halves));
}

DNNL_VNNI void QuantizeOnVNNI(const float* src, int64_t count, const BlockSizes& sizes,
                              const Int8Rows& row) {
  // One less than the largest number leaves room for rounding errors of the inverse.
  const float largest_step = sizes.digits == 1 ? 127.f : sizes.digits == 2 ? 32638.f : 8355710.f;
  const float smallest = sizes.digits == 1 ? 1e-36f : 1e-31f;
  constexpr uint32_t kInfinity = 0x7f800000;
  for (int digit = 1; digit <= sizes.digits; ++digit) {
    // Its padding, if there is any.
    std::memset(row.values + digit * sizes.row_bytes() - kGroupBytes, 0, kGroupBytes);
  }
  for (int64_t b = 0; b < sizes.blocks; ++b) {
    const int64_t first = b * sizes.block;
    const auto load = [&](int64_t k) DNNL_VNNI {
      return _mm512_maskz_loadu_ps(MaskOf<__mmask16>(count - first - k), src + first + k);
    };
    __m512i magnitudes = _mm512_setzero_si512();
    for (int64_t k = 0; k < sizes.block; k += kInt8Lanes) {
      const __m512i bits = _mm512_castps_si512(load(k));
      const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
      magnitudes = _mm512_max_epu32(magnitudes, magnitude);
    }
    // As an integer, NaN is larger than infinity.
    const uint32_t bits = _mm512_reduce_max_epu32(magnitudes);
    float largest, nan;
    std::memcpy(&largest, &bits, sizeof(largest));
    const bool is_finite = bits < kInfinity, is_zero = is_finite && largest < smallest;
    const __m512 inverse = _mm512_set1_ps(is_finite && !is_zero ? largest_step / largest : 0.f);
    // NaN has no step. The scale of the block is NaN then, whatever its values.
    const __mmask16 finite = is_finite ? 0xffff : 0;
    __m512i sums = _mm512_setzero_si512();
    for (int64_t k = 0; k < sizes.block; k += kInt8Lanes) {
      __m512i steps = _mm512_maskz_cvtps_epi32(finite, _mm512_mul_ps(load(k), inverse));
      sums = _mm512_add_epi32(sums, steps);
      for (int digit = 0; digit < sizes.digits; ++digit) {
        StoreElements(_mm512_cvtepi32_epi8(steps), sizes, first + k,
                      row.values + digit * sizes.row_bytes());
        // Digits are signed: the next one makes up for a negative one.
        const __m512i lowest = _mm512_srai_epi32(_mm512_slli_epi32(steps, 24), 24);
        steps = _mm512_srai_epi32(_mm512_sub_epi32(steps, lowest), 8);
      }
    }
    constexpr uint32_t kNaN = 0x7fc00000;
    std::memcpy(&nan, &kNaN, sizeof(nan));
    const float scale = is_zero ? 0.f : is_finite ? largest / largest_step : nan;
    row.scales[b] = scale;
    row.shifts[b] = -scale * static_cast<float>(_mm512_reduce_add_epi32(sums));
  }
}

/*!
 * \brief Sums of the products of a register of weights and elements of a row, D digits of each, in
 *        the lanes of the weights.
 */
template <int kBits, int D>
DNNL_VNNI_INLINE __m512 Dot(__m512i weights, const int8_t* row, int64_t digit_bytes) {
  const __m512i lower = kBits == 4 ? LowerHalves(weights) : weights;
  __m512i sums[D];
  DNNL_UNROLL
  for (int d = 0; d < D; ++d, row += digit_bytes) {
    sums[d] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), lower, _mm512_loadu_si512(row));
    if (kBits == 8) continue;
    const __m512i odd = _mm512_loadu_si512(row + kGroupBytes / 2);
    sums[d] = _mm512_dpbusd_epi32(sums[d], UpperHalves(weights), odd);
  }
  // Two digits fit into an integer of 32 bits, and a float has as many bits as three.
  const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(sums[D - 1], 8), sums[D - 2]);
  const __m512 total = _mm512_cvtepi32_ps(upper);
  if (D < 3) return total;
  return _mm512_fmadd_ps(total, _mm512_set1_ps(256.f), _mm512_cvtepi32_ps(sums[0]));
}

/*! \brief A row of D digits times a channel; the result is the sum of the lanes. */
template <int kBits, int D>
DNNL_VNNI_INLINE __m512 MultiplyChannel(const BlockRow& weights, const BlockSizes& sizes,
                                        const Int8Rows& row) {
  // The elements in a register of weights, and in one of its lanes.
  constexpr int64_t kGroup = 64 * 8 / kBits, kInLane = kGroup / kInt8Lanes;
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i first_elements = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(kInLane));
  // A block is a power of two.
  const __m128i block_bits = _mm_cvtsi32_si128(__builtin_ctzll(sizes.block));
  const int64_t digit_bytes = sizes.row_bytes();
  __m512 total = _mm512_setzero_ps();
  for (int64_t b = 0; b < sizes.blocks; b += kInt8Lanes) {
    const auto own = MaskOf<__mmask16>(sizes.blocks - b);
    __m512 zeros = _mm512_set1_ps(1 << (kBits - 1));
    if (weights.zero_points != nullptr) {
      const __m128i points = _mm_maskz_loadu_epi8(own, weights.zero_points + b);
      zeros = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(points));
    }
    Prefetch(weights.scales + b, kScalesAhead);
    const __m512 weight_scales = _mm512_maskz_loadu_ps(own, weights.scales + b);
    const __m512 row_shifts = _mm512_maskz_loadu_ps(own, row.shifts + b);
    total = _mm512_fmadd_ps(_mm512_mul_ps(zeros, weight_scales), row_shifts, total);
    const __m512 row_scales = _mm512_maskz_loadu_ps(own, row.scales + b);
    const __m512 scales = _mm512_mul_ps(weight_scales, row_scales);
    const int64_t begin = b * sizes.block;
    const int64_t end = std::min(sizes.padded(), begin + kInt8Lanes * sizes.block);
    __m512i elements = first_elements;
    for (int64_t k = begin; k < end; k += kGroup) {
      const auto mask = MaskOf<__mmask16>((end - k) / kInLane);
      const uint8_t* const from = weights.values + k * kBits / 8;
      Prefetch(from, kAhead);
      const __m512i values = _mm512_maskz_loadu_epi32(mask, from);
      const __m512 sums = Dot<kBits, D>(values, row.values + k, digit_bytes);
      const __m512i blocks = _mm512_srl_epi32(elements, block_bits);
      total = _mm512_fmadd_ps(sums, _mm512_permutexvar_ps(blocks, scales), total);
      elements = _mm512_add_epi32(elements, _mm512_set1_epi32(kGroup));
    }
  }
  return total;
}

/*! \brief Sums of neighboring lanes, of `a` and `b` in turns. */
DNNL_VNNI_INLINE __m512 AddPairs(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

/*! \brief The sums of the lanes of each of four registers. */
DNNL_VNNI_INLINE __m128 SumsOfLanes(const __m512* from) {
  const __m512d a = _mm512_castps_pd(AddPairs(from[0], from[1]));
  const __m512d b = _mm512_castps_pd(AddPairs(from[2], from[3]));
  const __m512 quads = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                                     _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  const __m256 upper = _mm512_extractf32x8_ps(quads, 1);
  const __m256 halves = _mm256_add_ps(_mm512_castps512_ps256(quads), upper);
  return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

/*!
 * \brief Multiply channel by channel, so that weights are read in their order.
 *
 * Hardware prefetches that: to alternate between channels takes twice as long.
 */
template <int kBits, int D>
DNNL_VNNI void MultiplyRowOnVNNI(const BlockRow& weights, int64_t channels, const BlockSizes& sizes,
                                 const Int8Rows& row, float* dst) {
  for (int64_t n = 0; n < channels; n += kTogether) {
    const int64_t count = std::min<int64_t>(kTogether, channels - n);
    __m512 totals[kTogether];
    for (int64_t i = 0; i < count; ++i) {
      totals[i] = MultiplyChannel<kBits, D>(sizes.Channel(weights, n + i), sizes, row);
    }
    for (int64_t i = count; i < kTogether; ++i) totals[i] = _mm512_setzero_ps();
    _mm_mask_storeu_ps(dst + n, MaskOf<__mmask8>(count), SumsOfLanes(totals));
  }
}

template <int kBits>
void MultiplyRow(const BlockRow& weights, int64_t channels, const BlockSizes& sizes,
                 const Int8Rows& row, float* dst) {
  const auto multiply =
      sizes.digits == 2 ? MultiplyRowOnVNNI<kBits, 2> : MultiplyRowOnVNNI<kBits, 3>;
  multiply(weights, channels, sizes, row, dst);
}

}  // namespace

void QuantizeBlocks(const float* src, int64_t count, const BlockSizes& sizes, const Int8Rows& row) {
  QuantizeOnVNNI(src, count, sizes, row);
}

void MultiplyInt8Row(const BlockRow& weights, int64_t channels, const BlockSizes& sizes,
                     const Int8Rows& row, float* dst) {
  const auto multiply = sizes.bits == 4 ? MultiplyRow<4> : MultiplyRow<8>;
  multiply(weights, channels, sizes, row, dst);
}

#else

void QuantizeBlocks(const float*, int64_t, const BlockSizes&, const Int8Rows&) {}
void MultiplyInt8Row(const BlockRow&, int64_t, const BlockSizes&, const Int8Rows&, float*) {}

#endif

}  // namespace tvm::runtime::contrib::dnnl_backend
