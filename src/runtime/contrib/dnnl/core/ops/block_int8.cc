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
 * \file src/runtime/contrib/dnnl/core/ops/block_int8.cc
 * \brief Quantizes rows to int8 in blocks, and multiplies one by weights of 4 or 8 bits.
 */
#include "block_int8.h"

#include <algorithm>
#include <cstring>

// The last one.
#include "vnni.h"

namespace tvm::runtime::contrib::dnnl_backend {

bool HasBlockInt8(int64_t block) {
  return HasVNNI() && (block == 32 || block == 64 || block == 128 || block == 256);
}

#if DNNL_HAS_VNNI

namespace {

/*! \brief The channels that are multiplied at once. */
constexpr int kTogether = 4;

DNNL_VNNI void QuantizeOnVNNI(const float* src, int64_t count, const BlockSizes& sizes,
                              const Int8Rows& row) {
  // One less than the largest number leaves room for rounding errors of the inverse.
  const float largest_step = sizes.digits == 1 ? 127.f : sizes.digits == 2 ? 32638.f : 8355710.f;
  const float smallest = sizes.digits == 1 ? 1e-36f : 1e-31f;
  constexpr uint32_t kInfinity = 0x7f800000;
  // A register of weights of 4 bits has the even elements of eight in the lower halves of four
  // bytes, and the odd ones in the upper halves.
  const __m128i order = sizes.bits == 4
                            ? _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)
                            : _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
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
        int8_t* const to = row.values + digit * sizes.row_bytes() + first + k;
        const __m128i bytes = _mm_shuffle_epi8(_mm512_cvtepi32_epi8(steps), order);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
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
  for (int digit = 0; digit < sizes.digits; ++digit) {
    int8_t* const padding = row.values + digit * sizes.row_bytes() + sizes.padded();
    std::memset(padding, 0, sizes.row_bytes() - sizes.padded());
  }
}

/*! \brief The elements of a row that a register of weights is multiplied by, D digits of each. */
template <int kBits, int D>
struct RowGroups {
  __m512i first[D], second[D];

  DNNL_VNNI_INLINE RowGroups(const int8_t* values, int64_t digit_bytes) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    DNNL_UNROLL
    for (int d = 0; d < D; ++d, values += digit_bytes) {
      first[d] = _mm512_loadu_si512(values);
      if (kBits == 8) continue;
      const __m512i next = _mm512_loadu_si512(values + 64);
      second[d] = _mm512_permutex2var_epi32(first[d], odd, next);
      first[d] = _mm512_permutex2var_epi32(first[d], even, next);
    }
  }

  /*! \brief Sums of the products by weights, in the lanes of these. */
  DNNL_VNNI_INLINE __m512 Dot(__m512i weights) const {
    const __m512i lower = kBits == 4 ? LowerHalves(weights) : weights;
    __m512i sums[D];
    DNNL_UNROLL
    for (int d = 0; d < D; ++d) {
      sums[d] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), lower, first[d]);
      if (kBits == 4) sums[d] = _mm512_dpbusd_epi32(sums[d], UpperHalves(weights), second[d]);
    }
    // Two digits fit into an integer of 32 bits, and a float has as many bits as three.
    __m512i upper = sums[D - 1];
    if constexpr (D > 1) upper = _mm512_add_epi32(_mm512_slli_epi32(upper, 8), sums[D - 2]);
    const __m512 total = _mm512_cvtepi32_ps(upper);
    if (D < 3) return total;
    return _mm512_fmadd_ps(total, _mm512_set1_ps(256.f), _mm512_cvtepi32_ps(sums[0]));
  }
};

/*! \brief MultiplyInt8Row of D digits for C channels, from the first one of the weights on. */
template <int kBits, int D, int C>
DNNL_VNNI_INLINE void MultiplyChannels(const BlockRow& weights, const BlockSizes& sizes,
                                       const Int8Rows& row, float* dst) {
  // The elements in a register of weights, and in one of its lanes.
  constexpr int64_t kGroup = 64 * 8 / kBits, kInLane = kGroup / kInt8Lanes;
  const int64_t blocks = sizes.blocks, bytes = sizes.weight_bytes();
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  // Blocks have a power of two of lanes, or fill them all.
  const __m512i block_of_lane = _mm512_srli_epi32(
      lanes, static_cast<unsigned>(__builtin_ctzll(std::min(sizes.block, kGroup) / kInLane)));
  __m512 totals[C], scales[C];
  for (int c = 0; c < C; ++c) totals[c] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; b += kInt8Lanes) {
    const auto own = MaskOf<__mmask16>(blocks - b);
    const __m512 row_scales = _mm512_maskz_loadu_ps(own, row.scales + b);
    const __m512 row_shifts = _mm512_maskz_loadu_ps(own, row.shifts + b);
    for (int c = 0; c < C; ++c) {
      __m512 zeros = _mm512_set1_ps(1 << (kBits - 1));
      if (weights.zero_points != nullptr) {
        const __m128i points = _mm_maskz_loadu_epi8(own, weights.zero_points + c * blocks + b);
        zeros = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(points));
      }
      const __m512 scale = _mm512_maskz_loadu_ps(own, weights.scales + c * blocks + b);
      totals[c] = _mm512_fmadd_ps(_mm512_mul_ps(zeros, scale), row_shifts, totals[c]);
      scales[c] = _mm512_mul_ps(scale, row_scales);
    }
    const int64_t begin = b * sizes.block;
    const int64_t end = std::min(sizes.padded(), begin + kInt8Lanes * sizes.block);
    for (int64_t k = begin; k < end; k += kGroup) {
      const auto mask = MaskOf<__mmask16>((end - k) / kInLane);
      const auto block = static_cast<int32_t>((k - begin) / sizes.block);
      const __m512i blocks_of_lanes = _mm512_add_epi32(block_of_lane, _mm512_set1_epi32(block));
      const RowGroups<kBits, D> data(row.values + k, sizes.row_bytes());
      for (int c = 0; c < C; ++c) {
        const __m512i values =
            _mm512_maskz_loadu_epi32(mask, weights.values + c * bytes + k * kBits / 8);
        const __m512 in_lanes = _mm512_permutexvar_ps(blocks_of_lanes, scales[c]);
        totals[c] = _mm512_fmadd_ps(data.Dot(values), in_lanes, totals[c]);
      }
    }
  }
  for (int c = 0; c < C; ++c) dst[c] = _mm512_reduce_add_ps(totals[c]);
}

template <int kBits, int D>
DNNL_VNNI void MultiplyRowOnVNNI(const BlockRow& weights, int64_t channels, const BlockSizes& sizes,
                                 const Int8Rows& row, float* dst) {
  int64_t n = 0;
  for (; n + kTogether <= channels; n += kTogether) {
    MultiplyChannels<kBits, D, kTogether>(sizes.Channel(weights, n), sizes, row, dst + n);
  }
  for (; n < channels; ++n) {
    MultiplyChannels<kBits, D, 1>(sizes.Channel(weights, n), sizes, row, dst + n);
  }
}

template <int kBits>
void MultiplyRow(const BlockRow& weights, int64_t channels, const BlockSizes& sizes,
                 const Int8Rows& row, float* dst) {
  constexpr decltype(&MultiplyRowOnVNNI<kBits, 1>) kByDigits[] = {
      MultiplyRowOnVNNI<kBits, 1>, MultiplyRowOnVNNI<kBits, 2>, MultiplyRowOnVNNI<kBits, 3>};
  kByDigits[sizes.digits - 1](weights, channels, sizes, row, dst);
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
