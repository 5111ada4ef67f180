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
 * \brief Products of rows in int8 and weights of 4 or 8 bits, by the dot products of VNNI.
 */
#include "block_int8.h"

#include <algorithm>
#include <cstring>

#include "../onednn.h"

#if defined(__GNUC__) && defined(__x86_64__)
#define DNNL_HAS_BLOCK_INT8
#include <immintrin.h>
#endif

// The last one.
#include "cpu_clones.h"

#if defined(__GNUC__) && !defined(__clang__)
// Intrinsics of GCC 12 leave lanes undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace tvm::runtime::contrib::dnnl_backend {

#ifdef DNNL_HAS_BLOCK_INT8

#define DNNL_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define DNNL_VNNI_INLINE DNNL_VNNI DNNL_INLINE

namespace {

/*! \brief The elements of a register of float32, and of one of dot products. */
constexpr int64_t kLanes = 16;
/*! \brief The channels of a row that are multiplied at once. */
constexpr int kTogether = 4;

/*! \brief A mask of the lowest bits, one for each element that is left. */
template <typename Mask>
DNNL_INLINE Mask MaskOf(int64_t left) {
  constexpr int kBits = 8 * sizeof(Mask);
  if (left >= kBits) return static_cast<Mask>(~Mask{0});
  return static_cast<Mask>((Mask{1} << std::max<int64_t>(left, 0)) - 1);
}

/*! \brief The elements of 4 bits in the lower and the upper halves of bytes. */
DNNL_VNNI_INLINE __m512i LowerHalves(__m512i bytes) {
  return _mm512_and_si512(bytes, _mm512_set1_epi8(15));
}
DNNL_VNNI_INLINE __m512i UpperHalves(__m512i bytes) {
  return LowerHalves(_mm512_srli_epi16(bytes, 4));
}

DNNL_VNNI void QuantizeOnVNNI(const float* src, int64_t count, const BlockSizes& sizes,
                              const Int8Rows& row) {
  constexpr float kLargest = 127.f, kSmallest = 1e-36f;
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
    for (int64_t k = 0; k < sizes.block; k += kLanes) {
      const __m512i bits = _mm512_castps_si512(load(k));
      const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
      magnitudes = _mm512_max_epu32(magnitudes, magnitude);
    }
    // As an integer, NaN is larger than infinity.
    const uint32_t bits = _mm512_reduce_max_epu32(magnitudes);
    float largest, nan;
    std::memcpy(&largest, &bits, sizeof(largest));
    const bool is_finite = bits < kInfinity, is_zero = is_finite && largest < kSmallest;
    const __m512 inverse = _mm512_set1_ps(is_finite && !is_zero ? kLargest / largest : 0.f);
    __m512i sums = _mm512_setzero_si512();
    for (int64_t k = 0; k < sizes.block; k += kLanes) {
      const __m512i steps = _mm512_cvtps_epi32(_mm512_mul_ps(load(k), inverse));
      const __m128i bytes = _mm_shuffle_epi8(_mm512_cvtepi32_epi8(steps), order);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(row.values + first + k), bytes);
      sums = _mm512_add_epi32(sums, steps);
    }
    constexpr uint32_t kNaN = 0x7fc00000;
    std::memcpy(&nan, &kNaN, sizeof(nan));
    const float scale = is_zero ? 0.f : is_finite ? largest / kLargest : nan;
    row.scales[b] = scale;
    row.shifts[b] = -scale * static_cast<float>(_mm512_reduce_add_epi32(sums));
  }
  std::memset(row.values + sizes.padded(), 0, sizes.row_bytes() - sizes.padded());
}

/*! \brief MultiplyInt8Row for C channels, from the first one of the weights on. */
template <int kBits, int C>
DNNL_VNNI_INLINE void MultiplyChannels(const BlockRow& weights, const BlockSizes& sizes,
                                       const Int8Rows& row, float* dst) {
  // The elements in a register of weights, and in one of its lanes.
  constexpr int64_t kGroup = 64 * 8 / kBits, kInLane = kGroup / kLanes;
  const int64_t blocks = sizes.blocks, bytes = sizes.weight_bytes();
  const int64_t scales = std::max<int64_t>(1, kGroup / sizes.block);
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  // Blocks have a power of two of lanes, or fill them all.
  const __m512i block_of_lane = _mm512_srli_epi32(
      lanes, static_cast<unsigned>(__builtin_ctzll(std::min(sizes.block, kGroup) / kInLane)));
  const __m512i even = _mm512_add_epi32(lanes, lanes);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  __m512 totals[C];
  for (int c = 0; c < C; ++c) totals[c] = _mm512_setzero_ps();
  for (int64_t k = 0; k < sizes.padded(); k += kGroup) {
    const int64_t b = k / sizes.block;
    const auto mask = MaskOf<__mmask16>((sizes.padded() - k) / kInLane);
    const auto some = static_cast<__mmask8>((1 << std::min(scales, blocks - b)) - 1);
    __m512i first = _mm512_loadu_si512(row.values + k), second = first;
    if (kBits == 4) {
      const __m512i next = _mm512_loadu_si512(row.values + k + kGroup / 2);
      second = _mm512_permutex2var_epi32(first, odd, next);
      first = _mm512_permutex2var_epi32(first, even, next);
    }
    const __m128 row_scales = _mm_maskz_loadu_ps(some, row.scales + b);
    for (int c = 0; c < C; ++c) {
      const __m512i values =
          _mm512_maskz_loadu_epi32(mask, weights.values + c * bytes + k * kBits / 8);
      __m512i sums = _mm512_setzero_si512();
      if (kBits == 4) {
        sums = _mm512_dpbusd_epi32(sums, LowerHalves(values), first);
        sums = _mm512_dpbusd_epi32(sums, UpperHalves(values), second);
      } else {
        sums = _mm512_dpbusd_epi32(sums, values, first);
      }
      const __m128 scale = _mm_maskz_loadu_ps(some, weights.scales + c * blocks + b);
      const __m512 in_lanes = _mm512_permutexvar_ps(
          block_of_lane, _mm512_castps128_ps512(_mm_mul_ps(scale, row_scales)));
      totals[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), in_lanes, totals[c]);
    }
  }
  for (int64_t b = 0; b < blocks; b += kLanes) {
    const auto mask = MaskOf<__mmask16>(blocks - b);
    const __m512 shifts = _mm512_maskz_loadu_ps(mask, row.shifts + b);
    for (int c = 0; c < C; ++c) {
      __m512 zeros = _mm512_set1_ps(1 << (kBits - 1));
      if (weights.zero_points != nullptr) {
        const __m128i points = _mm_maskz_loadu_epi8(mask, weights.zero_points + c * blocks + b);
        zeros = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(points));
      }
      const __m512 scale = _mm512_maskz_loadu_ps(mask, weights.scales + c * blocks + b);
      totals[c] = _mm512_fmadd_ps(_mm512_mul_ps(zeros, scale), shifts, totals[c]);
    }
  }
  for (int c = 0; c < C; ++c) dst[c] = _mm512_reduce_add_ps(totals[c]);
}

template <int kBits>
DNNL_VNNI void MultiplyRowOnVNNI(const BlockRow& weights, int64_t channels, const BlockSizes& sizes,
                                 const Int8Rows& row, float* dst) {
  int64_t n = 0;
  for (; n + kTogether <= channels; n += kTogether) {
    MultiplyChannels<kBits, kTogether>(sizes.Channel(weights, n), sizes, row, dst + n);
  }
  for (; n < channels; ++n) {
    MultiplyChannels<kBits, 1>(sizes.Channel(weights, n), sizes, row, dst + n);
  }
}

/*! \brief The elements of a channel that are unpacked together, so that they stay in the caches. */
constexpr int64_t kChunk = 768;
/*! \brief The registers of channels that a tile has. */
constexpr int kWidth = kInt8Channels / kLanes;

/*! \brief Unpacked weights, by quads of elements or by blocks, and in each by channel. */
struct alignas(64) UnpackedWeights {
  uint8_t values[kChunk / 4][kWidth][4 * kLanes];
  float scales[kChunk / kUnit][kWidth][kLanes];
  /*! \brief Scales times zero points. */
  float zeros[kChunk / kUnit][kWidth][kLanes];
};

/*!
 * \brief Load 16 rows of 64 bytes, and transpose them by quads of bytes.
 * \param rows, bytes There are no more than these; zeros pad them.
 */
DNNL_VNNI_INLINE void LoadTransposed(const void* from, int64_t stride, int64_t rows, int64_t bytes,
                                     __m512i* to) {
  const auto mask = MaskOf<__mmask64>(bytes);
  __m512i loaded[kLanes], pairs[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    loaded[i] =
        _mm512_maskz_loadu_epi8(i < rows ? mask : 0, static_cast<const char*>(from) + i * stride);
  }
  for (int i = 0; i < kLanes; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(loaded[i], loaded[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(loaded[i], loaded[i + 1]);
  }
  // Quads of rows; register i + j has columns j, j + 4, j + 8 and j + 12.
  for (int i = 0; i < kLanes; i += 4) {
    loaded[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    loaded[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    loaded[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    loaded[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(loaded[j], loaded[j + 4], 0x44);
    const __m512i b = _mm512_shuffle_i32x4(loaded[j], loaded[j + 4], 0xee);
    const __m512i c = _mm512_shuffle_i32x4(loaded[j + 8], loaded[j + 12], 0x44);
    const __m512i d = _mm512_shuffle_i32x4(loaded[j + 8], loaded[j + 12], 0xee);
    to[j] = _mm512_shuffle_i32x4(a, c, 0x88);
    to[j + 4] = _mm512_shuffle_i32x4(a, c, 0xdd);
    to[j + 8] = _mm512_shuffle_i32x4(b, d, 0x88);
    to[j + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

/*! \brief Unpack elements [begin, end) of up to 16 channels. */
template <int kBits>
DNNL_VNNI void Unpack(const BlockRow& weights, int64_t channels, const BlockSizes& sizes,
                      int64_t begin, int64_t end, int width, UnpackedWeights* to) {
  __m512i columns[kLanes];
  const int64_t stop = end * kBits / 8, first = begin * kBits / 8;
  for (int64_t at = first; at < stop; at += 64) {
    LoadTransposed(weights.values + at, sizes.weight_bytes(), channels, stop - at, columns);
    const int64_t count = std::min(kLanes, (stop - at) / 4);
    for (int64_t j = 0; j < count; ++j) {
      const int64_t column = (at - first) / 4 + j;
      if (kBits == 4) {
        _mm512_store_si512(to->values[2 * column][width], LowerHalves(columns[j]));
        _mm512_store_si512(to->values[2 * column + 1][width], UpperHalves(columns[j]));
      } else {
        _mm512_store_si512(to->values[column][width], columns[j]);
      }
    }
  }
  const int64_t block = begin / sizes.block, blocks = end / sizes.block - block;
  const __m512 middle = _mm512_set1_ps(1 << (kBits - 1));
  for (int64_t b = 0; b < blocks; b += kLanes) {
    LoadTransposed(weights.scales + block + b, sizes.blocks * sizeof(float), channels,
                   (blocks - b) * sizeof(float), columns);
    for (int64_t j = 0; j < std::min(kLanes, blocks - b); ++j) {
      const __m512 scale = _mm512_castsi512_ps(columns[j]);
      _mm512_store_ps(to->scales[b + j][width], scale);
      _mm512_store_ps(to->zeros[b + j][width], _mm512_mul_ps(scale, middle));
    }
  }
  static_assert(kChunk / kUnit <= 64);
  if (weights.zero_points == nullptr) return;
  LoadTransposed(weights.zero_points + block, sizes.blocks, channels, blocks, columns);
  for (int64_t b = 0; b < blocks; ++b) {
    const __m512i shifted =
        _mm512_srlv_epi32(columns[b / 4], _mm512_set1_epi32(static_cast<int32_t>(b % 4 * 8)));
    const __m512i points = _mm512_and_si512(shifted, _mm512_set1_epi32(255));
    const __m512 scale = _mm512_load_ps(to->scales[b][width]);
    _mm512_store_ps(to->zeros[b][width], _mm512_mul_ps(scale, _mm512_cvtepi32_ps(points)));
  }
}

/*! \brief Where a tile's products go. */
struct TileResult {
  float* dst;
  int64_t stride, channels;
  /*! \brief Whether they are added to those of earlier elements. */
  bool adds;
};

/*! \brief Multiply R rows by unpacked weights. */
template <int R>
DNNL_VNNI_INLINE void MultiplyTile(const UnpackedWeights& weights, int64_t block, int64_t blocks,
                                   const Int8Rows& data, const BlockSizes& sizes,
                                   const TileResult& result) {
  const int64_t stride = sizes.row_bytes(), quads = block / 4;
  __m512 totals[R][kWidth];
  DNNL_UNROLL
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < kWidth; ++p) totals[r][p] = _mm512_setzero_ps();
  }
  for (int64_t b = 0; b < blocks; ++b) {
    __m512i sums[R][kWidth];
    DNNL_UNROLL
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < kWidth; ++p) sums[r][p] = _mm512_setzero_si512();
    }
    for (int64_t q = b * quads; q < (b + 1) * quads; ++q) {
      __m512i values[kWidth];
      for (int p = 0; p < kWidth; ++p) values[p] = _mm512_load_si512(weights.values[q][p]);
      DNNL_UNROLL
      for (int r = 0; r < R; ++r) {
        int32_t quad;
        std::memcpy(&quad, data.values + r * stride + q * 4, sizeof(quad));
        const __m512i x = _mm512_set1_epi32(quad);
        for (int p = 0; p < kWidth; ++p) {
          sums[r][p] = _mm512_dpbusd_epi32(sums[r][p], values[p], x);
        }
      }
    }
    for (int p = 0; p < kWidth; ++p) {
      const __m512 scale = _mm512_load_ps(weights.scales[b][p]);
      const __m512 zero = _mm512_load_ps(weights.zeros[b][p]);
      DNNL_UNROLL
      for (int r = 0; r < R; ++r) {
        const __m512 x_scale = _mm512_set1_ps(data.scales[r * sizes.blocks + b]);
        const __m512 x_shift = _mm512_set1_ps(data.shifts[r * sizes.blocks + b]);
        const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r][p]), scale);
        totals[r][p] = _mm512_fmadd_ps(product, x_scale, totals[r][p]);
        totals[r][p] = _mm512_fmadd_ps(zero, x_shift, totals[r][p]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < kWidth; ++p) {
      const auto mask = MaskOf<__mmask16>(result.channels - p * kLanes);
      float* to = result.dst + r * result.stride + p * kLanes;
      if (result.adds) totals[r][p] = _mm512_add_ps(totals[r][p], _mm512_maskz_loadu_ps(mask, to));
      _mm512_mask_storeu_ps(to, mask, totals[r][p]);
    }
  }
}

/*! \brief Multiply R rows at a time, as long as there are as many. */
template <int R>
DNNL_VNNI void MultiplyTiles(const UnpackedWeights& weights, int64_t blocks, int64_t rows,
                             const BlockSizes& sizes, Int8Rows data, TileResult result,
                             int64_t* done) {
  for (; *done + R <= rows; *done += R) {
    const Int8Rows from = data.Row(sizes, *done);
    TileResult to = result;
    to.dst += *done * result.stride;
    // Most blocks have this size: it is a constant of the loop.
    if (sizes.block == kUnit) {
      MultiplyTile<R>(weights, kUnit, blocks, from, sizes, to);
    } else {
      MultiplyTile<R>(weights, sizes.block, blocks, from, sizes, to);
    }
  }
}

template <int kBits>
DNNL_VNNI void MultiplyRowsOnVNNI(const BlockRow& weights, int64_t channels,
                                  const BlockSizes& sizes, const Int8Rows& data, int64_t rows,
                                  const TileResult& to) {
  UnpackedWeights unpacked;
  TileResult result = to;
  const int64_t chunks = (sizes.padded() + kChunk - 1) / kChunk;
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t first = sizes.blocks * i / chunks, last = sizes.blocks * (i + 1) / chunks;
    for (int p = 0; p < kWidth; ++p) {
      Unpack<kBits>(sizes.Channel(weights, p * kLanes), std::min(kLanes, channels - p * kLanes),
                    sizes, first * sizes.block, last * sizes.block, p, &unpacked);
    }
    const Int8Rows from = {data.values + first * sizes.block, data.scales + first,
                           data.shifts + first};
    int64_t done = 0;
    MultiplyTiles<6>(unpacked, last - first, rows, sizes, from, result, &done);
    MultiplyTiles<4>(unpacked, last - first, rows, sizes, from, result, &done);
    MultiplyTiles<2>(unpacked, last - first, rows, sizes, from, result, &done);
    MultiplyTiles<1>(unpacked, last - first, rows, sizes, from, result, &done);
    result.adds = true;
  }
}

}  // namespace

bool HasBlockInt8(int64_t block) {
  const bool is_fit = block == 32 || block == 64 || block == 128 || block == 256;
  return is_fit && HasISA(dnnl::cpu_isa::avx512_core_vnni);
}

void QuantizeBlocks(const float* src, int64_t count, const BlockSizes& sizes, const Int8Rows& row) {
  QuantizeOnVNNI(src, count, sizes, row);
}

void MultiplyInt8Row(const BlockRow& weights, int64_t channels, const BlockSizes& sizes,
                     const Int8Rows& row, float* dst) {
  const auto multiply = sizes.bits == 4 ? MultiplyRowOnVNNI<4> : MultiplyRowOnVNNI<8>;
  multiply(weights, channels, sizes, row, dst);
}

void MultiplyInt8Rows(const BlockRow& weights, int64_t channels, const BlockSizes& sizes,
                      const Int8Rows& data, int64_t rows, float* dst, int64_t dst_stride) {
  const auto multiply = sizes.bits == 4 ? MultiplyRowsOnVNNI<4> : MultiplyRowsOnVNNI<8>;
  multiply(weights, channels, sizes, data, rows, {dst, dst_stride, channels, false});
}

#else

bool HasBlockInt8(int64_t) { return false; }
void QuantizeBlocks(const float*, int64_t, const BlockSizes&, const Int8Rows&) {}
void MultiplyInt8Row(const BlockRow&, int64_t, const BlockSizes&, const Int8Rows&, float*) {}
void MultiplyInt8Rows(const BlockRow&, int64_t, const BlockSizes&, const Int8Rows&, int64_t, float*,
                      int64_t) {}

#endif

}  // namespace tvm::runtime::contrib::dnnl_backend
