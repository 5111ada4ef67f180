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
 * \file src/runtime/contrib/dnnl/core/kernels/reduce_loops.h
 * \brief Reductions of a matrix along one of its dimensions.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_REDUCE_LOOPS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_REDUCE_LOOPS_H_

#include <cstdint>
#include <type_traits>

#include "reduce_ops.h"
#include "vectors.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Lanes of a vector; it is two on a CPU without AVX2. */
constexpr int kLanes = 8;
/*! \brief Vectors that are summed at once: their sums are in registers. */
constexpr int kVectors = 8;
/*! \brief The columns of such a block, and how many terms float32 adds one after the other. */
constexpr int kBlock = kLanes * kVectors, kTerms = 64;
/*! \brief Vectors that are joined at once where a row is contiguous. */
constexpr int kRowVectors = 4;
/*! \brief Columns of an item of work: so much of a row is read at once. */
constexpr int kColumns = 4 * kBlock;
/*! \brief Rows that are shorter are not worth vectors of their own. */
constexpr int kShortRow = 16;

DNNL_INLINE float ValueOf(float value) { return value; }
DNNL_INLINE float ValueOf(uint16_t bfloat16) {
  return FloatOf(static_cast<uint32_t>(bfloat16) << 16);
}

/*! \brief Join rows of so many vectors each to `sums`, in float32. */
template <typename Op, int kCount, typename T>
DNNL_INLINE void JoinRows(const T* src, int64_t stride, int64_t rows, double* sums) {
  Floats<kLanes> own[kCount];
  DNNL_UNROLL
  for (int i = 0; i < kCount; ++i) own[i] = Filled<kLanes>(Op::kBegin);
  for (int64_t k = 0; k < rows; ++k) {
    const T* row = src + k * stride;
    DNNL_UNROLL
    for (int i = 0; i < kCount; ++i) {
      own[i] = Op::template Join<Floats<kLanes>>(
          own[i], Op::template Of<Floats<kLanes>>(Load<kLanes>(row + i * kLanes)));
    }
  }
  float results[kCount * kLanes];
  DNNL_UNROLL
  for (int i = 0; i < kCount; ++i) Store<kLanes>(own[i], results + i * kLanes);
  for (int i = 0; i < kCount * kLanes; ++i) {
    sums[i] = Op::template Join<double>(sums[i], results[i]);
  }
}

/*! \brief Join the rows of a matrix of at most kColumns contiguous columns to `sums`. */
template <typename Op, typename T>
DNNL_INLINE void JoinColumns(const T* src, int64_t stride, int64_t rows, int64_t width,
                             double* sums) {
  for (int64_t k = 0; k < rows; k += kTerms) {
    const int64_t count = rows - k < kTerms ? rows - k : kTerms;
    const T* block = src + k * stride;
    int64_t j = 0;
    for (; j + kBlock <= width; j += kBlock) {
      JoinRows<Op, kVectors>(block + j, stride, count, sums + j);
    }
    for (; j + kLanes <= width; j += kLanes) {
      JoinRows<Op, 1>(block + j, stride, count, sums + j);
    }
    for (; j < width; ++j) {
      float sum = Op::kBegin;
      for (int64_t i = 0; i < count; ++i) {
        sum = Op::template Join<float>(sum, Op::template Of<float>(ValueOf(block[i * stride + j])));
      }
      sums[j] = Op::template Join<double>(sums[j], sum);
    }
  }
}

/*! \brief A matrix that is reduced along one of its dimensions, and what the results join. */
struct Matrix {
  const char* src;
  int64_t rows, row_stride;
  /*! \brief The dimension of the results. */
  int64_t columns, column_stride;
  double* sums;
};

/*! \brief The same for columns of so many rows, each contiguous and after the one before. */
template <typename Op, int kRows, typename T>
DNNL_INLINE void JoinNeighbors(const T* src, const Matrix& matrix) {
  float own[kColumns];
  for (int64_t j = 0; j < matrix.columns; ++j) {
    float sum = Op::template Of<float>(ValueOf(src[j * kRows]));
    DNNL_UNROLL
    for (int k = 1; k < kRows; ++k) {
      sum = Op::template Join<float>(sum, Op::template Of<float>(ValueOf(src[j * kRows + k])));
    }
    own[j] = sum;
  }
  for (int64_t j = 0; j < matrix.columns; ++j) {
    matrix.sums[j] = Op::template Join<double>(matrix.sums[j], own[j]);
  }
}

/*! \brief The same for a few rows of columns that are not contiguous. */
template <typename Op, typename T>
DNNL_INLINE void JoinShort(const T* src, const Matrix& matrix) {
  if (matrix.row_stride == 1 && matrix.column_stride == matrix.rows) {
    // A constant stride is one that vectors are loaded with.
    if (matrix.rows == 2) return JoinNeighbors<Op, 2>(src, matrix);
    if (matrix.rows == 3) return JoinNeighbors<Op, 3>(src, matrix);
    if (matrix.rows == 4) return JoinNeighbors<Op, 4>(src, matrix);
  }
  float own[kColumns];
  for (int64_t j = 0; j < matrix.columns; ++j) own[j] = Op::kBegin;
  for (int64_t k = 0; k < matrix.rows; ++k) {
    const T* row = src + k * matrix.row_stride;
    for (int64_t j = 0; j < matrix.columns; ++j) {
      const float x = ValueOf(row[j * matrix.column_stride]);
      own[j] = Op::template Join<float>(own[j], Op::template Of<float>(x));
    }
  }
  for (int64_t j = 0; j < matrix.columns; ++j) {
    matrix.sums[j] = Op::template Join<double>(matrix.sums[j], own[j]);
  }
}

/*! \brief Join so many neighbors, in float32. */
template <typename Op, typename T>
DNNL_INLINE float Joined(const T* values, int64_t count) {
  Floats<kLanes> own[kRowVectors];
  DNNL_UNROLL
  for (auto& each : own) each = Filled<kLanes>(Op::kBegin);
  const auto join = [values](int64_t from, Floats<kLanes>* to) {
    const Floats<kLanes> loaded = Load<kLanes>(values + from);
    *to = Op::template Join<Floats<kLanes>>(*to, Op::template Of<Floats<kLanes>>(loaded));
  };
  int64_t i = 0;
  for (; i + kRowVectors * kLanes <= count; i += kRowVectors * kLanes) {
    DNNL_UNROLL
    for (int k = 0; k < kRowVectors; ++k) join(i + k * kLanes, own + k);
  }
  for (; i + kLanes <= count; i += kLanes) join(i, own);
  DNNL_UNROLL
  for (int half = kRowVectors / 2; half > 0; half /= 2) {
    DNNL_UNROLL
    for (int k = 0; k < half; ++k) {
      own[k] = Op::template Join<Floats<kLanes>>(own[k], own[k + half]);
    }
  }
  float lanes[kLanes];
  Store<kLanes>(own[0], lanes);
  DNNL_UNROLL
  for (int half = kLanes / 2; half > 0; half /= 2) {
    DNNL_UNROLL
    for (int k = 0; k < half; ++k) lanes[k] = Op::template Join<float>(lanes[k], lanes[k + half]);
  }
  for (; i < count; ++i) {
    lanes[0] = Op::template Join<float>(lanes[0], Op::template Of<float>(ValueOf(values[i])));
  }
  return lanes[0];
}

/*! \brief The product of neighbors, in float64: roundings of float32 would add up. */
template <typename T>
DNNL_INLINE double ProductOf(const T* values, int64_t count) {
  double own[kLanes];
  for (double& each : own) each = 1;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    DNNL_UNROLL
    for (int k = 0; k < kLanes; ++k) own[k] *= ValueOf(values[i + k]);
  }
  for (; i < count; ++i) own[0] *= ValueOf(values[i]);
  for (int k = 1; k < kLanes; ++k) own[0] *= own[k];
  return own[0];
}

/*! \brief The same for columns whose rows are contiguous. */
template <typename Op, typename T>
DNNL_INLINE void JoinContiguous(const T* src, const Matrix& matrix) {
  // Each lane and the tail add up to half of kTerms, and the rest is to join them.
  constexpr int64_t kLongest = kTerms / 2 * kRowVectors * kLanes;
  for (int64_t j = 0; j < matrix.columns; ++j, src += matrix.column_stride) {
    if constexpr (std::is_same_v<Op, ProdOp>) {
      matrix.sums[j] *= ProductOf(src, matrix.rows);
      continue;
    }
    for (int64_t k = 0; k < matrix.rows; k += kLongest) {
      const int64_t count = matrix.rows - k < kLongest ? matrix.rows - k : kLongest;
      matrix.sums[j] = Op::template Join<double>(matrix.sums[j], Joined<Op>(src + k, count));
    }
  }
}

template <typename Op, typename T>
DNNL_INLINE void JoinMatrix(const Matrix& matrix) {
  const T* src = reinterpret_cast<const T*>(matrix.src);
  const bool is_wide = matrix.column_stride == 1;
  if (!is_wide && matrix.rows < kShortRow) return JoinShort<Op>(src, matrix);
  if (!is_wide && matrix.row_stride == 1) return JoinContiguous<Op>(src, matrix);
  // Columns that are not contiguous are one matrix each.
  const int64_t matrices = is_wide ? 1 : matrix.columns, width = is_wide ? matrix.columns : 1;
  // Several contiguous rows of few columns are as one.
  const bool is_narrow =
      matrix.row_stride == width && width <= kBlock / 2 && matrix.rows >= kShortRow;
  const int64_t joined = is_narrow ? kBlock / width : 1, full = matrix.rows / joined;
  for (int64_t i = 0; i < matrices; ++i, src += matrix.column_stride) {
    double wide[kBlock];
    for (double& value : wide) value = Op::kBegin;
    double* sums = is_narrow ? wide : matrix.sums + i;
    for (int64_t begin = 0, factor = joined; begin < matrix.rows; begin = full * joined) {
      const int64_t rows = factor == joined ? full : matrix.rows - begin;
      JoinColumns<Op>(src + begin * matrix.row_stride, factor * matrix.row_stride, rows,
                      factor * width, sums);
      if (factor == 1) break;
      factor = 1;
    }
    if (!is_narrow) continue;
    for (int64_t k = 0; k < joined; ++k) {
      for (int64_t j = 0; j < width; ++j) {
        double* sum = matrix.sums + i + j;
        *sum = Op::template Join<double>(*sum, wide[k * width + j]);
      }
    }
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_REDUCE_LOOPS_H_
