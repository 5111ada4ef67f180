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
 * \file src/runtime/contrib/dnnl/core/kernels/int8_matrices.cc
 * \brief Exact matmuls of 8-bit integers, on CPUs with AVX2 but without VNNI.
 */
#include "int8_matrices.h"

#include <algorithm>
#include <cstring>

#include "../exec/parallel.h"
#include "int8_tiles.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

constexpr int64_t kPanel = Int8Matrix::kPanel;

/*! \brief Pack a panel, the columns of which may be fewer. */
DNNL_INLINE void PackPanel(const Int8Matrix& matrix, int64_t columns, const uint8_t* src,
                           uint8_t* to) {
  const uint8_t sign = matrix.is_signed ? 0 : 0x80;
  std::memset(to, 0, matrix.pairs() * 2 * kPanel);
  for (int64_t k = 0; k < matrix.inner; ++k) {
    const uint8_t* from = src + k * matrix.row_stride;
    uint8_t* pairs = to + k / 2 * 2 * kPanel + k % 2;
    for (int64_t n = 0; n < columns; ++n) pairs[2 * n] = from[n * matrix.column_stride] ^ sign;
  }
}

/*! \brief A full panel of a row-major matrix. */
DNNL_INLINE void PackRowMajor(const Int8Matrix& matrix, const uint8_t* src, uint8_t* to) {
  const uint8_t sign = matrix.is_signed ? 0 : 0x80;
  int64_t k = 0;
  for (; k + 2 <= matrix.inner; k += 2, to += 2 * kPanel) {
    const uint8_t *even = src + k * matrix.row_stride, *odd = even + matrix.row_stride;
    for (int64_t n = 0; n < kPanel; ++n) {
      to[2 * n] = even[n] ^ sign;
      to[2 * n + 1] = odd[n] ^ sign;
    }
  }
  if (k == matrix.inner) return;
  for (int64_t n = 0; n < kPanel; ++n) {
    to[2 * n] = src[k * matrix.row_stride + n] ^ sign;
    to[2 * n + 1] = 0;
  }
}

/*! \brief A full panel of a matrix whose columns are contiguous. */
DNNL_INLINE void PackColumnMajor(const Int8Matrix& matrix, const uint8_t* src, uint8_t* to) {
  const uint16_t signs = matrix.is_signed ? 0 : 0x8080;
  int64_t k = 0;
  for (; k + 2 <= matrix.inner; k += 2, to += 2 * kPanel) {
    uint16_t pairs[kPanel];
    for (int64_t n = 0; n < kPanel; ++n) {
      std::memcpy(pairs + n, src + n * matrix.column_stride + k, sizeof(pairs[n]));
    }
    for (uint16_t& pair : pairs) pair ^= signs;
    std::memcpy(to, pairs, sizeof(pairs));
  }
  if (k == matrix.inner) return;
  for (int64_t n = 0; n < kPanel; ++n) {
    to[2 * n] = src[n * matrix.column_stride + k] ^ static_cast<uint8_t>(signs);
    to[2 * n + 1] = 0;
  }
}

DNNL_FOR_CPUS void PackPanels(const Int8Matrix& matrix, const uint8_t* src, uint8_t* packed,
                              int64_t first, int64_t last) {
  const int64_t panels = matrix.panels(), bytes = matrix.pairs() * 2 * kPanel;
  for (int64_t i = first; i < last; ++i) {
    const int64_t begin = i % panels * kPanel;
    const uint8_t* from =
        src + i / panels * matrix.inner * matrix.columns + begin * matrix.column_stride;
    uint8_t* to = packed + i * bytes;
    if (begin + kPanel > matrix.columns) {
      PackPanel(matrix, matrix.columns - begin, from, to);
    } else if (matrix.column_stride == 1) {
      PackRowMajor(matrix, from, to);
    } else if (matrix.row_stride == 1) {
      PackColumnMajor(matrix, from, to);
    } else {
      PackPanel(matrix, kPanel, from, to);
    }
  }
}

/*! \brief Rows in 16 bits without their zero point, with padding, and their sums. */
template <typename T>
DNNL_INLINE void Widen(const T* src, int64_t count, int64_t padded, int32_t zero_point,
                       int64_t rows, int16_t* dst, int32_t* sums) {
  for (int64_t m = 0; m < rows; ++m, src += count, dst += padded) {
    int32_t sum = 0;
    for (int64_t k = 0; k < count; ++k) {
      const auto value = static_cast<int16_t>(src[k] - zero_point);
      dst[k] = value;
      sum += value;
    }
    if (padded > count) dst[count] = 0;
    sums[m] = sum;
  }
}

DNNL_FOR_CPUS void WidenRows(const uint8_t* src, int64_t count, int64_t padded, int32_t zero_point,
                             int64_t rows, int16_t* dst, int32_t* sums) {
  Widen(src, count, padded, zero_point, rows, dst, sums);
}
DNNL_FOR_CPUS void WidenRows(const int8_t* src, int64_t count, int64_t padded, int32_t zero_point,
                             int64_t rows, int16_t* dst, int32_t* sums) {
  Widen(src, count, padded, zero_point, rows, dst, sums);
}

#ifdef DNNL_HAS_INT8_MATRICES

/*! \brief Multiply rows, which lie side by side, by a panel. */
void MultiplyRows(Int8Tile work, const int16_t* from, int64_t rows) {
  const int64_t stride = 2 * work.pairs;
  for (int64_t m = 0; m < rows; m += kInt8Tile) {
    const int64_t some = std::min<int64_t>(kInt8Tile, rows - m);
    for (int64_t row = 0; row < some; ++row) work.rows[row] = from + (m + row) * stride;
    MultiplyTile(work, some);
    work.sums += some;
    work.dst += some * work.dst_stride;
  }
}

#endif

}  // namespace

bool HasInt8Matrices() {
#ifdef DNNL_HAS_INT8_MATRICES
  return HasISA(ISA::kAVX2) && !HasISA(ISA::kAVX512);
#else
  return false;
#endif
}

void PackInt8Matrices(const Int8Matrix& matrix, int64_t count, const void* src, int8_t* packed) {
  const int64_t grain = std::max<int64_t>(1, kInt8Elements / (matrix.inner * kPanel));
  ParallelFor(count * matrix.panels(), grain, [&](int64_t first, int64_t last) {
    PackPanels(matrix, static_cast<const uint8_t*>(src), reinterpret_cast<uint8_t*>(packed), first,
               last);
  });
}

#ifdef DNNL_HAS_INT8_MATRICES

void MultiplyInt8(const Int8Source& src, const Int8Matrix& matrix, int64_t matrices,
                  const int8_t* packed, const Int8Finish& given, int16_t* workspace, void* dst) {
  static constexpr int64_t kFirst = 0;  // A row is one run.
  const int64_t count = matrix.inner, padded = 2 * matrix.pairs();
  // The sums come first, aligned as the workspace is.
  auto* const sums = reinterpret_cast<int32_t*>(workspace);
  int16_t* const wide = workspace + 2 * src.rows;
  const int64_t grain = std::max<int64_t>(1, kInt8Elements / count);
  ParallelFor(src.rows, grain, [&](int64_t first, int64_t last) {
    const auto widen = [&](const auto* values) {
      WidenRows(values + first * count, count, padded, src.zero_point, last - first,
                wide + first * padded, sums + first);
    };
    src.is_signed ? widen(static_cast<const int8_t*>(src.values))
                  : widen(static_cast<const uint8_t*>(src.values));
  });
  Int8Finish finish = given;
  // As the elements of the matrix.
  if (!matrix.is_signed) finish.zero_point -= 128;
  const int64_t rows = src.rows / matrices, panels = matrix.panels();
  const int64_t tiles = std::max<int64_t>(1, kInt8Cached / (padded * kInt8Tile));
  const int64_t chunk = std::min(rows, tiles * kInt8Tile), chunks = (rows + chunk - 1) / chunk;
  const int64_t bytes = finish.is_rounded ? 1 : sizeof(float), row_bytes = matrix.columns * bytes;
  const int64_t tasks = std::max<int64_t>(1, kInt8Work / (chunk * kPanel * count));
  ParallelFor(matrices * chunks * panels, tasks, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t panel = i % panels, part = i / panels % chunks, which = i / panels / chunks;
      const int64_t begin = which * rows + part * chunk, column = panel * kPanel;
      const Int8Tile work = {{},
                             sums + begin,
                             &kFirst,
                             1,
                             matrix.pairs(),
                             packed + (which * panels + panel) * padded * kPanel,
                             0,
                             std::min(kPanel, matrix.columns - column),
                             row_bytes,
                             finish.scales + column,
                             finish.bias + column,
                             &finish,
                             static_cast<char*>(dst) + begin * row_bytes + column * bytes};
      MultiplyRows(work, wide + begin * padded, std::min(chunk, rows - part * chunk));
    }
  });
}

#else

void MultiplyInt8(const Int8Source&, const Int8Matrix&, int64_t, const int8_t*, const Int8Finish&,
                  int16_t*, void*) {}

#endif

}  // namespace tvm::runtime::contrib::dnnl_backend
