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
 * \file src/runtime/contrib/dnnl/core/kernels/norm.cc
 * \brief Normalization of rows of float32 and bfloat16.
 */
#include "norm.h"

#include <algorithm>
#include <cmath>

#include "../exec/parallel.h"
#include "isa.h"
#include "vectors.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

constexpr int kLanes = 8;
/*! \brief Vectors of sums, of which each addition has its own; and how many terms float32 adds. */
constexpr int kVectors = 4, kTerms = 64;
constexpr int kStep = kLanes * kVectors;

DNNL_INLINE void StoreOne(float value, float* dst) { *dst = value; }
DNNL_INLINE void StoreOne(float value, uint16_t* dst) { *dst = ToBFloat16(value); }
DNNL_INLINE float LoadOne(const float* src) { return *src; }
DNNL_INLINE float LoadOne(const uint16_t* src) {
  return FloatOf(static_cast<uint32_t>(*src) << 16);
}

/*! \brief The sums of x - pivot and of its squares over a row: floats in blocks, then doubles. */
struct Sums {
  double first{0}, second{0};
};

template <bool kSquares, typename T>
DNNL_INLINE Sums SumRow(const T* row, int64_t count, float pivot) {
  Sums sums;
  int64_t i = 0;
  while (i + kStep <= count) {
    const int64_t end = std::min(count, i + kStep * kTerms) - kStep;
    Floats<kLanes> first[kVectors] = {}, second[kVectors] = {};
    for (; i <= end; i += kStep) {
      DNNL_UNROLL
      for (int k = 0; k < kVectors; ++k) {
        const Floats<kLanes> x = Load<kLanes>(row + i + k * kLanes) - pivot;
        first[k] += x;
        if (kSquares) second[k] += x * x;
      }
    }
    for (int k = 1; k < kVectors; ++k) {
      first[0] += first[k];
      if (kSquares) second[0] += second[k];
    }
    float lanes[2][kLanes];
    Store<kLanes>(first[0], lanes[0]);
    if (kSquares) Store<kLanes>(second[0], lanes[1]);
    for (int k = 0; k < kLanes; ++k) {
      sums.first += lanes[0][k];
      if (kSquares) sums.second += lanes[1][k];
    }
  }
  for (; i < count; ++i) {
    const float x = LoadOne(row + i) - pivot;
    sums.first += x;
    if (kSquares) sums.second += x * x;
  }
  return sums;
}

/*! \brief A row's mean, as the sum of two floats, and what its differences are multiplied by. */
struct Statistics {
  float mean, rest, factor;
};

template <typename T>
DNNL_INLINE Statistics StatisticsOf(const T* row, int64_t count, float epsilon) {
  const double size = static_cast<double>(count);
  // Differences from an element are exact where the deviation is small beside the mean.
  const float pivot = LoadOne(row);
  const float mean = static_cast<float>(pivot + SumRow<false>(row, count, pivot).first / size);
  const Sums sums = SumRow<true>(row, count, mean);
  const double rest = sums.first / size;
  const double variance = std::max(sums.second / size - rest * rest, 0.);
  return {mean, static_cast<float>(rest), static_cast<float>(1. / std::sqrt(variance + epsilon))};
}

/*! \brief Those of a row that is divided by the root of the mean of its squares. */
template <typename T>
DNNL_INLINE Statistics RootOf(const T* row, int64_t count, float epsilon) {
  const double mean = SumRow<true>(row, count, 0.f).second / static_cast<double>(count);
  return {0.f, 0.f, static_cast<float>(1. / std::sqrt(mean + epsilon))};
}

/*! \brief Columns that share a factor and a shift. */
template <typename T, typename Result>
DNNL_INLINE void ScaleRun(const T* src, int64_t count, const Statistics& row, float factor,
                          float shift, Result* dst) {
  for (int64_t i = 0; i < count; ++i) {
    StoreOne((LoadOne(src + i) - row.mean - row.rest) * factor + shift, dst + i);
  }
}

/*! \brief Columns with a factor each and, if `kShifts`, a shift from `beta`. */
template <bool kShifts, typename T, typename Result>
DNNL_INLINE void ScaleEach(const T* src, int64_t count, const Statistics& row, const float* gamma,
                           const float* beta, Result* dst) {
  for (int64_t i = 0; i < count; ++i) {
    const float x = (LoadOne(src + i) - row.mean - row.rest) * row.factor;
    StoreOne(kShifts ? x * gamma[i] + beta[i] : x * gamma[i], dst + i);
  }
}

template <typename T, typename Result>
DNNL_INLINE void NormalizeRow(const NormRows& norm, const T* src, const float* gamma,
                              const float* beta, Result* dst) {
  const Statistics row = norm.is_centered ? StatisticsOf(src, norm.columns, norm.epsilon)
                                          : RootOf(src, norm.columns, norm.epsilon);
  if (gamma == nullptr && beta == nullptr) {
    ScaleRun(src, norm.columns, row, row.factor, 0.f, dst);
  } else if (norm.shared == 1 && gamma != nullptr && beta != nullptr) {
    ScaleEach<true>(src, norm.columns, row, gamma, beta, dst);
  } else if (norm.shared == 1 && gamma != nullptr) {
    ScaleEach<false>(src, norm.columns, row, gamma, beta, dst);
  } else {
    for (int64_t begin = 0, k = 0; begin < norm.columns; begin += norm.shared, ++k) {
      const float factor = gamma != nullptr ? row.factor * gamma[k] : row.factor;
      ScaleRun(src + begin, norm.shared, row, factor, beta != nullptr ? beta[k] : 0.f, dst + begin);
    }
  }
}

DNNL_FOR_CPUS void NormalizeFloats(const NormRows& norm, const float* src, const float* gamma,
                                   const float* beta, float* dst) {
  NormalizeRow(norm, src, gamma, beta, dst);
}

DNNL_FOR_CPUS void NormalizeBFloats(const NormRows& norm, const uint16_t* src, const float* gamma,
                                    const float* beta, uint16_t* dst) {
  NormalizeRow(norm, src, gamma, beta, dst);
}

DNNL_FOR_CPUS void NormalizeToBFloats(const NormRows& norm, const float* src, const float* gamma,
                                      const float* beta, uint16_t* dst) {
  NormalizeRow(norm, src, gamma, beta, dst);
}

/*! \brief 1 / sqrt(variance + epsilon) of rows, from the sums of their differences' squares. */
template <int W>
DNNL_INLINE Floats<W> FactorsOf(const Floats<W>& squares, const Floats<W>& rests, float size,
                                float epsilon) {
  const Floats<W> variances = squares / size - rests * rests;
  float values[W];
  Store<W>((variances < 0.f ? Filled<W>(0.f) : variances) + epsilon, values);
  // The builtin is one instruction; std::sqrt is a call, as it is compiled for any CPU.
  for (float& value : values) value = 1.f / __builtin_sqrtf(value);
  return Load<W>(values);
}

/*!
 * \brief Normalize up to W short rows, the sums of which are reduced together.
 *
 * A row's result does not depend on the others.
 *
 * \tparam kCenters Whether rows have their mean subtracted, and a shift added.
 */
template <int W, bool kCenters, typename T, typename Result>
DNNL_INLINE void NormalizeTogether(const NormRows& norm, int count, const T* src,
                                   const float* gamma, const float* beta, Result* dst) {
  const int64_t columns = norm.columns;
  const auto size = static_cast<float>(columns);
  Floats<W> first[W] = {}, second[W] = {}, means = {};
  for (int r = 0; kCenters && r < count; ++r) {
    const T* row = src + r * columns;
    const float pivot = LoadOne(row);
    for (int64_t i = 0; i < columns; i += W) first[r] += Load<W>(row + i) - pivot;
    means[r] = pivot;
  }
  if (kCenters) means += ReduceLanes<W, Sum>(first) / size;
  for (int r = 0; r < count; ++r) {
    const T* row = src + r * columns;
    const float mean = means[r];
    Floats<W> sum = {}, squares = {};
    for (int64_t i = 0; i < columns; i += W) {
      const Floats<W> x = Load<W>(row + i) - mean;
      if (kCenters) sum += x;
      squares += x * x;
    }
    first[r] = sum;
    second[r] = squares;
  }
  const Floats<W> rests = kCenters ? ReduceLanes<W, Sum>(first) / size : Floats<W>{};
  const Floats<W> factors = FactorsOf<W>(ReduceLanes<W, Sum>(second), rests, size, norm.epsilon);
  for (int r = 0; r < count; ++r) {
    const T* row = src + r * columns;
    const float mean = means[r], rest = rests[r], factor = factors[r];
    for (int64_t i = 0; i < columns; i += W) {
      const Floats<W> x = (Load<W>(row + i) - mean - rest) * factor * Load<W>(gamma + i);
      Store<W>(kCenters ? x + Load<W>(beta + i) : x, dst + r * columns + i);
    }
  }
}

template <int W, bool kCenters, typename T, typename Result>
DNNL_INLINE void NormalizeShortRows(const NormRows& norm, int64_t rows, const T* src,
                                    const float* gamma, const float* beta, Result* dst) {
  for (int64_t row = 0; row < rows; row += W) {
    NormalizeTogether<W, kCenters>(norm, static_cast<int>(std::min<int64_t>(W, rows - row)),
                                   src + row * norm.columns, gamma, beta, dst + row * norm.columns);
  }
}

template <bool kCenters, typename T, typename Result>
struct ShortRows {
  using Code = void (*)(const NormRows& norm, int64_t rows, const T* src, const float* gamma,
                        const float* beta, Result* dst);

  static void OnAny(const NormRows& norm, int64_t rows, const T* src, const float* gamma,
                    const float* beta, Result* dst) {
    NormalizeShortRows<4, kCenters>(norm, rows, src, gamma, beta, dst);
  }
  DNNL_AVX2 static void OnAVX2(const NormRows& norm, int64_t rows, const T* src, const float* gamma,
                               const float* beta, Result* dst) {
    NormalizeShortRows<8, kCenters>(norm, rows, src, gamma, beta, dst);
  }
  DNNL_AVX512 static void OnAVX512(const NormRows& norm, int64_t rows, const T* src,
                                   const float* gamma, const float* beta, Result* dst) {
    NormalizeShortRows<16, kCenters>(norm, rows, src, gamma, beta, dst);
  }

  /*! \brief The code for rows that float32 adds up, and that stay in a cache; else nullptr. */
  static Code For(const NormRows& norm) {
    const int width = CodeForCPU(4, 8, 16);
    const int64_t bytes = width * norm.columns * static_cast<int64_t>(sizeof(T));
    const bool is_short =
        norm.columns % width == 0 && norm.columns <= width * kTerms && bytes <= 32768;
    if (!is_short || norm.shared != 1 || norm.cycle != 1) return nullptr;
    return CodeForCPU<Code>(OnAny, OnAVX2, OnAVX512);
  }
};

template <typename T, typename Result, typename Normalize>
void NormalizeMatrix(const NormRows& norm, const void* src, const float* gamma, const float* beta,
                     void* dst, const Normalize& normalize) {
  // A thread is worth some 10 us.
  const int64_t grain = std::max<int64_t>(1, (norm.is_centered ? 8192 : 65536) / norm.columns);
  const int64_t factors = norm.columns / norm.shared;
  const auto* from = static_cast<const T*>(src);
  auto* to = static_cast<Result*>(dst);
  const bool is_usual = gamma != nullptr && (beta != nullptr) == norm.is_centered;
  const auto code = !is_usual          ? nullptr
                    : norm.is_centered ? ShortRows<true, T, Result>::For(norm)
                                       : ShortRows<false, T, Result>::For(norm);
  if (code != nullptr) {
    ParallelFor(norm.rows, grain, [&](int64_t first, int64_t last) {
      const int64_t at = first * norm.columns;
      code(norm, last - first, from + at, gamma, beta, to + at);
    });
    return;
  }
  ParallelFor(norm.rows, grain, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const int64_t at = row % norm.cycle * factors;
      normalize(norm, from + row * norm.columns, gamma != nullptr ? gamma + at : nullptr,
                beta != nullptr ? beta + at : nullptr, to + row * norm.columns);
    }
  });
}

}  // namespace

void NormalizeRows(const NormRows& norm, const void* src, const float* gamma, const float* beta,
                   void* dst) {
  if (norm.reads_bfloat16) {
    NormalizeMatrix<uint16_t, uint16_t>(norm, src, gamma, beta, dst, NormalizeBFloats);
  } else if (norm.writes_bfloat16) {
    NormalizeMatrix<float, uint16_t>(norm, src, gamma, beta, dst, NormalizeToBFloats);
  } else {
    NormalizeMatrix<float, float>(norm, src, gamma, beta, dst, NormalizeFloats);
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend
