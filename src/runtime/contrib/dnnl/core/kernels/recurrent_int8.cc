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
 * \file src/runtime/contrib/dnnl/core/kernels/recurrent_int8.cc
 * \brief Products of rows and weights of 8 bits, by the dot products of VNNI.
 */
#include "recurrent_int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "quantize.h"
#include "row_panels.h"
// The last one.
#include "cpu_clones.h"
#include "vnni.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The hidden units of a panel. */
constexpr int kUnits = 16;

/*! \brief Zero, but NaN if an element is not finite. */
DNNL_VNNI float ZeroOrNaN(const float* row, int64_t size) {
  float sums[16] = {};
  int64_t i = 0;
  for (; i + 16 <= size; i += 16) {
    for (int k = 0; k < 16; ++k) sums[k] += row[i + k] * 0.f;
  }
  for (; i < size; ++i) sums[0] += row[i] * 0.f;
  float sum = 0;
  for (float each : sums) sum += each;
  return sum;
}

DNNL_VNNI int32_t SumOf(const uint8_t* values, int64_t size) {
  int32_t sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += values[i];
  return sum;
}

}  // namespace

bool HasInt8Products() { return HasVNNI(); }

void QuantizeRow(const float* row, int64_t size, uint8_t* values, QuantizedRow* result) {
  float low = 0, high = 0;
  ExtendRange(row, size, &low, &high);
  const float scale = low == high ? 1.f : (high - low) / 255.f;
  const float zero = std::clamp(0.f - low / scale, 0.f, 255.f);
  // Infinite elements make it NaN.
  const int32_t zero_point = zero == zero ? static_cast<int32_t>(std::nearbyint(zero)) : 0;
  QuantizeToUint8(row, size, scale, zero_point, values);
  // Of weights that are zero.
  for (int64_t i = size; i < PaddedToQuads(size); ++i) values[i] = 0;
  const auto size32 = static_cast<int32_t>(size);
  const auto steps = static_cast<float>(SumOf(values, size) - size32 * zero_point);
  *result = {values, scale, zero_point, scale * steps + ZeroOrNaN(row, size)};
}

#if DNNL_HAS_VNNI
namespace {

/*! \brief Add the products of four unsigned and four signed bytes each to 16 sums. */
DNNL_VNNI inline void AddQuads(__m512i values, __m512i weights, __m512i* sums) {
  // GCC 12 copies the sums twice around the intrinsic, which takes half of the time of a tile.
  asm("vpdpbusd %2, %1, %0" : "+v"(*sums) : "v"(values), "vm"(weights));
}

/*! \brief AddInt8Products for R rows and P gates. */
template <int R, int P>
DNNL_VNNI void AddTile(const QuantizedRow* rows, const RecurrentWeights& weights, int64_t column,
                       int64_t apart, int64_t quads, float* sums, int64_t row_stride) {
  __m512i total[R][P];
  const int8_t* panels[P];
  DNNL_UNROLL
  for (int p = 0; p < P; ++p) {
    panels[p] = static_cast<const int8_t*>(weights.panels) + (column + p * apart) * quads * 4;
    DNNL_UNROLL
    for (int r = 0; r < R; ++r) total[r][p] = _mm512_setzero_si512();
  }
  for (int64_t q = 0; q < quads; ++q) {
    __m512i values[R];
    DNNL_UNROLL
    for (int r = 0; r < R; ++r) {
      int32_t quad;
      std::memcpy(&quad, rows[r].values + q * 4, sizeof(quad));
      values[r] = _mm512_set1_epi32(quad);
    }
    DNNL_UNROLL
    for (int p = 0; p < P; ++p) {
      const __m512i weight = _mm512_loadu_si512(panels[p] + q * 64);
      DNNL_UNROLL
      for (int r = 0; r < R; ++r) AddQuads(values[r], weight, &total[r][p]);
    }
  }
  // With a mask, as GCC 12 warns of what the header of the other conversion leaves undefined.
  constexpr __mmask16 kAll = 0xffff;
  DNNL_UNROLL
  for (int p = 0; p < P; ++p) {
    const int64_t at = column + p * apart;
    const __m512 scales = _mm512_loadu_ps(weights.scales + at);
    const __m512 shifts = _mm512_loadu_ps(weights.shifts + at);
    const __m512i weight_sums = _mm512_loadu_si512(weights.sums + at);
    DNNL_UNROLL
    for (int r = 0; r < R; ++r) {
      float* to = sums + r * row_stride + p * kUnits;
      const __m512i shifted =
          _mm512_mullo_epi32(_mm512_set1_epi32(rows[r].zero_point), weight_sums);
      const __m512 product = _mm512_maskz_cvtepi32_ps(kAll, _mm512_sub_epi32(total[r][p], shifted));
      const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(rows[r].scale), scales);
      const __m512 shift =
          _mm512_fmadd_ps(_mm512_set1_ps(rows[r].sum), shifts, _mm512_loadu_ps(to));
      _mm512_storeu_ps(to, _mm512_fmadd_ps(scale, product, shift));
    }
  }
}

template <int R>
void AddTiles(const QuantizedRow** rows, int* count, const RecurrentWeights& weights,
              int64_t column, int gates, int64_t apart, int64_t quads, float** sums,
              int64_t row_stride) {
  for (; *count >= R; *count -= R, *rows += R, *sums += R * row_stride) {
    int p = 0;
    for (; p + 4 <= gates; p += 4) {
      AddTile<R, 4>(*rows, weights, column + p * apart, apart, quads, *sums + p * kUnits,
                    row_stride);
    }
    for (; p < gates; ++p) {
      AddTile<R, 1>(*rows, weights, column + p * apart, apart, quads, *sums + p * kUnits,
                    row_stride);
    }
  }
}

}  // namespace
#endif

void AddInt8Products(const QuantizedRow* rows, int count, const RecurrentWeights& weights,
                     int64_t column, int gates, int64_t apart, int64_t size, float* sums,
                     int64_t row_stride) {
#if DNNL_HAS_VNNI
  const int64_t quads = PaddedToQuads(size) / 4;
  AddTiles<4>(&rows, &count, weights, column, gates, apart, quads, &sums, row_stride);
  AddTiles<1>(&rows, &count, weights, column, gates, apart, quads, &sums, row_stride);
#endif
}

std::vector<char> PackInt8(const std::vector<int8_t>& weights, const std::vector<float>& scales,
                           const std::vector<int32_t>& zero_points, int64_t gates, int64_t hidden,
                           int64_t size) {
  const int64_t padded = (hidden + kUnits - 1) / kUnits * kUnits, columns = gates * padded;
  const int64_t row = PaddedToQuads(size);
  std::vector<char> packed(columns * (row + 12), 0);
  const RecurrentWeights to = Int8Weights(packed.data(), columns, size);
  const auto set = [&packed](const auto* address, auto value) {
    const auto offset = reinterpret_cast<const char*>(address) - packed.data();
    std::memcpy(packed.data() + offset, &value, sizeof(value));
  };
  for (int64_t gate = 0; gate < gates; ++gate) {
    for (int64_t j = 0; j < hidden; ++j) {
      const int64_t from = gate * hidden + j, column = gate * padded + j;
      char* panel = packed.data() + (column - j % kUnits) * row + j % kUnits * 4;
      int32_t sum = 0;
      for (int64_t k = 0; k < size; ++k) {
        const int8_t value = weights[from * size + k];
        panel[k / 4 * 4 * kUnits + k % 4] = static_cast<char>(value);
        sum += value;
      }
      set(to.scales + column, scales[from]);
      set(to.shifts + column, -scales[from] * static_cast<float>(zero_points[from]));
      set(to.sums + column, sum);
    }
  }
  return packed;
}

RecurrentWeights Int8Weights(const void* packed, int64_t columns, int64_t size) {
  const auto* vectors = reinterpret_cast<const float*>(static_cast<const char*>(packed) +
                                                       columns * PaddedToQuads(size));
  return {packed, vectors, vectors + columns,
          reinterpret_cast<const int32_t*>(vectors + 2 * columns)};
}

}  // namespace tvm::runtime::contrib::dnnl_backend
