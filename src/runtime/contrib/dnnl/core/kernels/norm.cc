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

/*! \brief Columns that share a factor and a shift. */
template <typename T, typename Result>
DNNL_INLINE void ScaleRun(const T* src, int64_t count, const Statistics& row, float factor,
                          float shift, Result* dst) {
  for (int64_t i = 0; i < count; ++i) {
    StoreOne((LoadOne(src + i) - row.mean - row.rest) * factor + shift, dst + i);
  }
}

/*! \brief Columns with a factor and a shift each. */
template <typename T, typename Result>
DNNL_INLINE void ScaleEach(const T* src, int64_t count, const Statistics& row, const float* gamma,
                           const float* beta, Result* dst) {
  for (int64_t i = 0; i < count; ++i) {
    const float x = (LoadOne(src + i) - row.mean - row.rest) * row.factor;
    StoreOne(x * gamma[i] + beta[i], dst + i);
  }
}

template <typename T, typename Result>
DNNL_INLINE void NormalizeRow(const NormRows& norm, const T* src, const float* gamma,
                              const float* beta, Result* dst) {
  const Statistics row = StatisticsOf(src, norm.columns, norm.epsilon);
  if (gamma == nullptr && beta == nullptr) {
    ScaleRun(src, norm.columns, row, row.factor, 0.f, dst);
  } else if (norm.shared == 1 && gamma != nullptr && beta != nullptr) {
    ScaleEach(src, norm.columns, row, gamma, beta, dst);
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

template <typename T, typename Result, typename Normalize>
void NormalizeMatrix(const NormRows& norm, const void* src, const float* gamma, const float* beta,
                     void* dst, const Normalize& normalize) {
  // A thread is worth some 10 us.
  const int64_t grain = std::max<int64_t>(1, 8192 / norm.columns);
  const int64_t factors = norm.columns / norm.shared;
  const auto* from = static_cast<const T*>(src);
  auto* to = static_cast<Result*>(dst);
  ParallelFor(norm.rows, grain, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const int64_t at = row % norm.cycle * factors;
      normalize(norm, from + row * norm.columns, gamma != nullptr ? gamma + at : nullptr,
                beta != nullptr ? beta + at : nullptr, to + row * norm.columns);
    }
  });
}

template <typename Result>
DNNL_INLINE void NormalizeByRoot(const float* row, const float* gamma, int64_t count, float epsilon,
                                 Result* dst) {
  const float root = 1.f / std::sqrt(MeanOfSquares(row, count) + epsilon);
  if (gamma == nullptr) {
    for (int64_t i = 0; i < count; ++i) StoreOne(row[i] * root, dst + i);
  } else {
    for (int64_t i = 0; i < count; ++i) StoreOne(row[i] * root * gamma[i], dst + i);
  }
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

DNNL_FOR_CPUS float MeanOfSquares(const float* row, int64_t count) {
  return static_cast<float>(SumRow<true>(row, count, 0.f).second / static_cast<double>(count));
}

DNNL_FOR_CPUS void NormalizeRMS(const float* row, const float* gamma, int64_t count, float epsilon,
                                float* dst) {
  NormalizeByRoot(row, gamma, count, epsilon, dst);
}
DNNL_FOR_CPUS void NormalizeRMSTo(const float* row, const float* gamma, int64_t count,
                                  float epsilon, uint16_t* dst) {
  NormalizeByRoot(row, gamma, count, epsilon, dst);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
