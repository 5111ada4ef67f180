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
 * \file src/runtime/contrib/dnnl/core/kernels/log_softmax.cc
 * \brief The logarithm of a softmax of contiguous rows, in float32.
 */
#include "log_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../exec/parallel.h"
#include "isa.h"
#include "vectors.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Vectors that are summed at once, and how many each sum adds in float32. */
constexpr int kVectors = 4, kTerms = 64;

/*! \brief Load the rest of a row; the other lanes are -inf, whose exponential is zero. */
template <int W>
DNNL_INLINE Floats<W> LoadRest(const float* src, int64_t count) {
  float block[W];
  for (int i = 0; i < W; ++i) block[i] = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < count; ++i) block[i] = src[i];
  return Load<W>(block);
}

template <int W>
DNNL_INLINE float LargestOfRow(const float* row, int64_t count) {
  Floats<W> largest[kVectors];
  DNNL_UNROLL
  for (int k = 0; k < kVectors; ++k) {
    largest[k] = Filled<W>(-std::numeric_limits<float>::infinity());
  }
  int64_t i = 0;
  for (; i + kVectors * W <= count; i += kVectors * W) {
    DNNL_UNROLL
    for (int k = 0; k < kVectors; ++k) {
      largest[k] = Largest::Of<W>(Load<W>(row + i + k * W), largest[k]);
    }
  }
  for (; i < count; i += W) {
    largest[0] = Largest::Of<W>(LoadRest<W>(row + i, std::min<int64_t>(W, count - i)), largest[0]);
  }
  return LargestOf<W>(Largest::Of<W>(Largest::Of<W>(largest[0], largest[1]),
                                     Largest::Of<W>(largest[2], largest[3])));
}

/*! \brief The sum of exp(row[i] - largest). */
template <int W>
DNNL_INLINE double SumOfExponentials(const float* row, int64_t count, float largest) {
  double total = 0;
  int64_t i = 0;
  while (i + kVectors * W <= count) {
    Floats<W> sums[kVectors];
    DNNL_UNROLL
    for (int k = 0; k < kVectors; ++k) sums[k] = Filled<W>(0.f);
    const int64_t end = std::min(count, i + kTerms * kVectors * W);
    for (; i + kVectors * W <= end; i += kVectors * W) {
      DNNL_UNROLL
      for (int k = 0; k < kVectors; ++k) {
        sums[k] += ExpOfNegative<W>(Load<W>(row + i + k * W) - largest);
      }
    }
    total += SumOf<W>((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
  for (; i < count; i += W) {
    const Floats<W> rest = LoadRest<W>(row + i, std::min<int64_t>(W, count - i));
    total += SumOf<W>(ExpOfNegative<W>(rest - largest));
  }
  return total;
}

/*!
 * \brief Compute rows.
 *
 * A NaN makes the sum, and so the whole row, NaN, as do an infinity and -inf alone, whose
 * differences from the largest value are NaN.
 */
template <int W>
DNNL_INLINE void ComputeRows(const float* src, float* dst, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row, src += columns, dst += columns) {
    const float largest = LargestOfRow<W>(src, columns);
    const auto log = static_cast<float>(std::log(SumOfExponentials<W>(src, columns, largest)));
    for (int64_t i = 0; i < columns; ++i) dst[i] = (src[i] - largest) - log;
  }
}

using Code = void (*)(const float* src, float* dst, int64_t rows, int64_t columns);

void ComputeOnAny(const float* src, float* dst, int64_t rows, int64_t columns) {
  ComputeRows<4>(src, dst, rows, columns);
}
DNNL_AVX2 void ComputeOnAVX2(const float* src, float* dst, int64_t rows, int64_t columns) {
  ComputeRows<8>(src, dst, rows, columns);
}
DNNL_AVX512 void ComputeOnAVX512(const float* src, float* dst, int64_t rows, int64_t columns) {
  ComputeRows<16>(src, dst, rows, columns);
}

}  // namespace

void LogSoftmaxOfRows(const float* src, float* dst, int64_t rows, int64_t columns) {
  // A thread is worth some 10 us.
  const int64_t grain = std::max<int64_t>(1, 8192 / columns);
  const Code code = CodeForCPU<Code>(ComputeOnAny, ComputeOnAVX2, ComputeOnAVX512);
  ParallelFor(rows, grain, [&](int64_t first, int64_t last) {
    code(src + first * columns, dst + first * columns, last - first, columns);
  });
}

}  // namespace tvm::runtime::contrib::dnnl_backend
