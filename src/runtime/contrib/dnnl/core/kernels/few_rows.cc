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
 * \file src/runtime/contrib/dnnl/core/kernels/few_rows.cc
 * \brief Matmuls of few rows, of any sizes.
 */
#include "few_rows.h"

// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

constexpr int64_t kColumns = kFewRowsColumns;
/*! \brief The rows that a loop computes at once: as many as there are registers for. */
constexpr int kRows = 4;
/*! \brief So many floats are a few vectors of any CPU. */
constexpr int kLanes = 16;
/*! \brief Columns [first, last) of the products of rows of a and rows of b. */
template <int kCount>
DNNL_INLINE void MultiplyByRows(const float* a, const float* b, float* c, const FewRows& sizes,
                                int64_t first, int64_t last) {
  for (int64_t n = first; n < last; ++n) {
    const float* column = b + n * sizes.b_stride;
    float sums[kCount][kLanes] = {};
    int64_t k = 0;
    for (; k + kLanes <= sizes.sum; k += kLanes) {
      for (int m = 0; m < kCount; ++m) {
        for (int i = 0; i < kLanes; ++i) {
          sums[m][i] += a[m * sizes.a_stride + k + i] * column[k + i];
        }
      }
    }
    for (int m = 0; m < kCount; ++m) {
      for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) sums[m][i] += sums[m][i + half];
      }
      float sum = sums[m][0];
      for (int64_t rest = k; rest < sizes.sum; ++rest) {
        sum += a[m * sizes.a_stride + rest] * column[rest];
      }
      c[m * sizes.c_stride + n] = sizes.scale * sum;
    }
  }
}

/*! \brief Columns [first, last), at most kColumns, of the sums of multiples of rows of b. */
template <int kCount>
DNNL_INLINE void AddRows(const float* a, const float* b, float* c, const FewRows& sizes,
                         int64_t first, int64_t last) {
  float sums[kCount][kColumns] = {};
  if (last - first == kColumns) {
    for (int64_t k = 0; k < sizes.sum; ++k) {
      const float* row = b + k * sizes.b_stride + first;
      for (int m = 0; m < kCount; ++m) {
        const float factor = a[m * sizes.a_stride + k];
        for (int i = 0; i < kColumns; ++i) sums[m][i] += factor * row[i];
      }
    }
  } else {
    for (int64_t k = 0; k < sizes.sum; ++k) {
      const float* row = b + k * sizes.b_stride + first;
      for (int m = 0; m < kCount; ++m) {
        const float factor = a[m * sizes.a_stride + k];
        for (int64_t i = 0; i < last - first; ++i) sums[m][i] += factor * row[i];
      }
    }
  }
  for (int m = 0; m < kCount; ++m) {
    for (int64_t i = 0; i < last - first; ++i) {
      c[m * sizes.c_stride + first + i] = sizes.scale * sums[m][i];
    }
  }
}

}  // namespace

DNNL_FOR_CPUS void MultiplyFewRows(const float* a, const float* b, float* c, const FewRows& sizes,
                                   bool is_transposed, int64_t first, int64_t last) {
  int64_t row = 0;
  for (; row + kRows <= sizes.rows; row += kRows) {
    const float* rows = a + row * sizes.a_stride;
    float* results = c + row * sizes.c_stride;
    if (is_transposed) {
      MultiplyByRows<kRows>(rows, b, results, sizes, first, last);
    } else {
      AddRows<kRows>(rows, b, results, sizes, first, last);
    }
  }
  for (; row < sizes.rows; ++row) {
    const float* rows = a + row * sizes.a_stride;
    float* results = c + row * sizes.c_stride;
    if (is_transposed) {
      MultiplyByRows<1>(rows, b, results, sizes, first, last);
    } else {
      AddRows<1>(rows, b, results, sizes, first, last);
    }
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend
