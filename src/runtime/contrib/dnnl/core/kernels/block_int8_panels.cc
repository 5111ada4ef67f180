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
 * \file src/runtime/contrib/dnnl/core/kernels/block_int8_panels.cc
 * \brief Products of many rows in int8 and weights of 4 or 8 bits, which are unpacked once.
 */
#include <algorithm>
#include <cstring>

#include "block_int8.h"
// The last one.
#include "cpu_clones.h"
#include "vnni.h"

namespace tvm::runtime::contrib::dnnl_backend {

#if DNNL_HAS_VNNI

namespace {

/*! \brief The elements of a channel that are unpacked together, so that they stay in the caches. */
constexpr int64_t kChunk = 768;
/*! \brief The registers of channels that a tile has. */
constexpr int kWidth = kInt8Channels / kInt8Lanes;

/*! \brief Unpacked weights, by quads of elements or by blocks, and in each by channel. */
struct alignas(64) UnpackedWeights {
  uint8_t values[kChunk / 4][kWidth][4 * kInt8Lanes];
  float scales[kChunk / kUnit][kWidth][kInt8Lanes];
  /*! \brief Scales times zero points, if there are such. */
  float zeros[kChunk / kUnit][kWidth][kInt8Lanes];
};

/*!
 * \brief Load 16 rows of 64 bytes, and transpose them by quads of bytes.
 * \param rows, bytes There are no more than these; zeros pad them.
 */
DNNL_VNNI_INLINE void LoadTransposed(const void* from, int64_t stride, int64_t rows, int64_t bytes,
                                     __m512i* to) {
  const auto mask = MaskOf<__mmask64>(bytes);
  __m512i loaded[kInt8Lanes], pairs[kInt8Lanes];
  for (int i = 0; i < kInt8Lanes; ++i) {
    loaded[i] =
        _mm512_maskz_loadu_epi8(i < rows ? mask : 0, static_cast<const char*>(from) + i * stride);
  }
  for (int i = 0; i < kInt8Lanes; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(loaded[i], loaded[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(loaded[i], loaded[i + 1]);
  }
  // Quads of rows; register i + j has columns j, j + 4, j + 8 and j + 12.
  for (int i = 0; i < kInt8Lanes; i += 4) {
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
  __m512i columns[kInt8Lanes];
  const int64_t stop = end * kBits / 8, first = begin * kBits / 8;
  for (int64_t at = first; at < stop; at += 64) {
    LoadTransposed(weights.values + at, sizes.weight_bytes(), channels, stop - at, columns);
    const int64_t count = std::min(kInt8Lanes, (stop - at) / 4);
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
  for (int64_t b = 0; b < blocks; b += kInt8Lanes) {
    LoadTransposed(weights.scales + block + b, sizes.blocks * sizeof(float), channels,
                   (blocks - b) * sizeof(float), columns);
    for (int64_t j = 0; j < std::min(kInt8Lanes, blocks - b); ++j) {
      _mm512_store_ps(to->scales[b + j][width], _mm512_castsi512_ps(columns[j]));
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
template <int R, bool kHasZeros>
DNNL_VNNI_INLINE void MultiplyTile(const UnpackedWeights& weights, int64_t block, int64_t blocks,
                                   const Int8Rows& data, const BlockSizes& sizes,
                                   const TileResult& result) {
  const int64_t stride = sizes.row_bytes(), quads = block / 4;
  // Without zero points, that of all blocks.
  const float middle = kHasZeros ? 1.f : static_cast<float>(1 << (sizes.bits - 1));
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
    DNNL_UNROLL
    for (int r = 0; r < R; ++r) {
      const __m512 x_scale = _mm512_set1_ps(data.scales[r * sizes.blocks + b]);
      const __m512 x_shift = _mm512_set1_ps(data.shifts[r * sizes.blocks + b] * middle);
      for (int p = 0; p < kWidth; ++p) {
        const __m512 scale = _mm512_load_ps(weights.scales[b][p]);
        __m512& total = totals[r][p];
        __m512 sum = _mm512_cvtepi32_ps(sums[r][p]);
        if (kHasZeros) {
          total = _mm512_fmadd_ps(_mm512_load_ps(weights.zeros[b][p]), x_shift, total);
          sum = _mm512_mul_ps(sum, x_scale);
        } else {
          sum = _mm512_fmadd_ps(sum, x_scale, x_shift);
        }
        total = _mm512_fmadd_ps(sum, scale, total);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < kWidth; ++p) {
      const auto mask = MaskOf<__mmask16>(result.channels - p * kInt8Lanes);
      float* to = result.dst + r * result.stride + p * kInt8Lanes;
      if (result.adds) totals[r][p] = _mm512_add_ps(totals[r][p], _mm512_maskz_loadu_ps(mask, to));
      _mm512_mask_storeu_ps(to, mask, totals[r][p]);
    }
  }
}

/*! \brief Multiply R rows at a time, as long as there are as many. */
template <int R, bool kHasZeros>
DNNL_VNNI void MultiplyTiles(const UnpackedWeights& weights, int64_t blocks, int64_t rows,
                             const BlockSizes& sizes, Int8Rows data, TileResult result,
                             int64_t* done) {
  for (; *done + R <= rows; *done += R) {
    const Int8Rows from = data.Row(sizes, *done);
    TileResult to = result;
    to.dst += *done * result.stride;
    // Most blocks have this size: it is a constant of the loop.
    if (sizes.block == kUnit) {
      MultiplyTile<R, kHasZeros>(weights, kUnit, blocks, from, sizes, to);
    } else {
      MultiplyTile<R, kHasZeros>(weights, sizes.block, blocks, from, sizes, to);
    }
  }
}

template <int kBits, bool kHasZeros>
DNNL_VNNI void MultiplyRowsOnVNNI(const BlockRow& weights, int64_t channels,
                                  const BlockSizes& sizes, const Int8Rows& data, int64_t rows,
                                  const TileResult& to) {
  UnpackedWeights unpacked;
  TileResult result = to;
  const int64_t chunks = (sizes.padded() + kChunk - 1) / kChunk;
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t first = sizes.blocks * i / chunks, last = sizes.blocks * (i + 1) / chunks;
    for (int p = 0; p < kWidth; ++p) {
      Unpack<kBits>(sizes.Channel(weights, p * kInt8Lanes),
                    std::min(kInt8Lanes, channels - p * kInt8Lanes), sizes, first * sizes.block,
                    last * sizes.block, p, &unpacked);
    }
    const Int8Rows from = {data.values + first * sizes.block, data.scales + first,
                           data.shifts + first};
    int64_t done = 0;
    MultiplyTiles<6, kHasZeros>(unpacked, last - first, rows, sizes, from, result, &done);
    MultiplyTiles<4, kHasZeros>(unpacked, last - first, rows, sizes, from, result, &done);
    MultiplyTiles<2, kHasZeros>(unpacked, last - first, rows, sizes, from, result, &done);
    MultiplyTiles<1, kHasZeros>(unpacked, last - first, rows, sizes, from, result, &done);
    result.adds = true;
  }
}

}  // namespace

void MultiplyInt8Rows(const BlockRow& weights, int64_t channels, const BlockSizes& sizes,
                      const Int8Rows& data, int64_t rows, float* dst, int64_t dst_stride) {
  constexpr decltype(&MultiplyRowsOnVNNI<8, true>) kByBitsAndZeros[2][2] = {
      {MultiplyRowsOnVNNI<4, false>, MultiplyRowsOnVNNI<4, true>},
      {MultiplyRowsOnVNNI<8, false>, MultiplyRowsOnVNNI<8, true>}};
  kByBitsAndZeros[sizes.bits == 8][weights.zero_points != nullptr](
      weights, channels, sizes, data, rows, {dst, dst_stride, channels, false});
}

#else

void MultiplyInt8Rows(const BlockRow&, int64_t, const BlockSizes&, const Int8Rows&, int64_t, float*,
                      int64_t) {}

#endif

}  // namespace tvm::runtime::contrib::dnnl_backend
