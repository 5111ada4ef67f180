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
 * \file src/runtime/contrib/dnnl/core/kernels/max_pool.cc
 * \brief Max pools of row-major images: over the rows of a window, then over its columns.
 */
#include "max_pool.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "../exec/parallel.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The values of the largest row of windows that is computed at once. */
constexpr int64_t kLine = 2 * kMaxPoolSpan;

/*! \brief The larger one; `b` where `a` is NaN. */
template <typename T>
DNNL_INLINE T Larger(T a, T b) {
  return a > b ? a : b;
}

/*! \brief Rows of one length, in planes; the strides are in elements. */
template <typename T>
struct Rows {
  const T* src;
  int64_t planes, plane_stride, rows, row_stride;
};

/*!
 * \brief Compute the largest values of the columns of rows, in vectors of so many bytes.
 *
 * The last vector overlaps the one before it. `dst` may be one of the rows.
 *
 * \return False where the rows are shorter than a vector; nothing is done then.
 */
template <int kBytes, typename T>
DNNL_INLINE bool JoinVectors(const Rows<T>& rows, int64_t count, T* dst) {
  typedef T Vector __attribute__((vector_size(kBytes)));
  constexpr int64_t kLanes = kBytes / sizeof(T);
  if (count < kLanes) return false;
  for (int64_t next = 0; next < count; next += kLanes) {
    const int64_t i = next < count - kLanes ? next : count - kLanes;
    Vector largest = Vector{} + std::numeric_limits<T>::lowest();
    for (int64_t plane = 0; plane < rows.planes; ++plane) {
      const T* values = rows.src + plane * rows.plane_stride + i;
      for (int64_t row = 0; row < rows.rows; ++row) {
        Vector value;
        std::memcpy(&value, values + row * rows.row_stride, kBytes);
        largest = value > largest ? value : largest;
      }
    }
    std::memcpy(dst + i, &largest, kBytes);
  }
  return true;
}

template <typename T>
DNNL_INLINE void JoinRows(const Rows<T>& rows, int64_t count, T* dst) {
  if (JoinVectors<32>(rows, count, dst) || JoinVectors<16>(rows, count, dst) ||
      JoinVectors<8>(rows, count, dst)) {
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    T largest = std::numeric_limits<T>::lowest();
    for (int64_t plane = 0; plane < rows.planes; ++plane) {
      const T* values = rows.src + plane * rows.plane_stride + i;
      for (int64_t row = 0; row < rows.rows; ++row) {
        largest = Larger(values[row * rows.row_stride], largest);
      }
    }
    dst[i] = largest;
  }
}

/*! \brief The largest of neighboring values, which are overwritten. */
template <typename T>
DNNL_INLINE T LargestOf(T* values, int64_t count) {
  while (count > 1) {
    // The upper half is joined to the lower one.
    const int64_t half = (count + 1) / 2;
    JoinRows<T>({values, 1, 0, 2, count - half}, half, values);
    count = half;
  }
  return values[0];
}

/*! \brief The largest values of neighboring windows of a line, which is overwritten. */
template <typename T>
DNNL_INLINE void PoolLine(T* line, int64_t count, const WindowAxis& axis, T* dst) {
  const int64_t stride = axis.stride;
  if (count == 1 && axis.step == 1) {
    *dst = LargestOf(line, axis.kernel);
  } else if (stride == 1) {
    JoinRows<T>({line, 1, 0, axis.kernel, axis.step}, count, dst);
  } else if (stride == 2) {
    T all[kLine];
    JoinRows<T>({line, 1, 0, axis.kernel, axis.step}, 2 * count - 1, all);
    for (int64_t i = 0; i < count; ++i) dst[i] = all[2 * i];
  } else {
    for (int64_t i = 0; i < count; ++i) {
      T largest = line[i * stride];
      for (int64_t k = 1; k < axis.kernel; ++k) {
        largest = Larger(line[i * stride + k * axis.step], largest);
      }
      dst[i] = largest;
    }
  }
}

/*! \brief Compute rows of results, by their numbers. */
template <typename T>
DNNL_INLINE void PoolRows(const MaxPoolShape& shape, const T* src, T* dst, int64_t first,
                          int64_t last) {
  const auto& [depth, height, width] = shape.axes;
  // As many windows as a line holds.
  const int64_t most = (kLine - width.span()) / width.stride + 1;
  T line[kLine];
  for (int64_t row = first; row < last; ++row) {
    const int64_t slice = row / height.dst;
    const Taps planes = depth.TapsOf(slice % depth.dst), rows = height.TapsOf(row % height.dst);
    const T* image = src + slice / depth.dst * depth.src * height.src * width.src;
    const int64_t top = (planes.begin + planes.first * depth.step) * height.src + rows.begin +
                        rows.first * height.step;
    for (int64_t begin = 0; begin < width.dst; begin += most) {
      const int64_t count = std::min(most, width.dst - begin);
      const int64_t length = (count - 1) * width.stride + width.span();
      const int64_t from = begin * width.stride - width.pad;
      const int64_t low = std::clamp<int64_t>(-from, 0, length);
      const int64_t high = std::max(low, std::min(length, width.src - from));
      std::fill(line, line + low, std::numeric_limits<T>::lowest());
      std::fill(line + high, line + length, std::numeric_limits<T>::lowest());
      JoinRows<T>(
          {image + top * width.src + from + low, planes.last - planes.first,
           depth.step * height.src * width.src, rows.last - rows.first, height.step * width.src},
          high - low, line + low);
      PoolLine(line, count, width, dst + row * width.dst + begin);
    }
  }
}

DNNL_FOR_CPUS void PoolRowsOf(const MaxPoolShape& shape, const float* src, float* dst,
                              int64_t first, int64_t last) {
  PoolRows(shape, src, dst, first, last);
}
DNNL_FOR_CPUS void PoolRowsOf(const MaxPoolShape& shape, const uint8_t* src, uint8_t* dst,
                              int64_t first, int64_t last) {
  PoolRows(shape, src, dst, first, last);
}
DNNL_FOR_CPUS void PoolRowsOf(const MaxPoolShape& shape, const int8_t* src, int8_t* dst,
                              int64_t first, int64_t last) {
  PoolRows(shape, src, dst, first, last);
}

}  // namespace

template <typename T>
void MaxPool(const MaxPoolShape& shape, const T* src, T* dst) {
  // Bytes that are worth a thread.
  constexpr int64_t kBytes = 1 << 16;
  const auto& [depth, height, width] = shape.axes;
  const int64_t rows = depth.kernel * height.kernel;
  const int64_t values = width.dst * (rows * std::min(width.stride, width.kernel) + width.kernel);
  const int64_t grain = std::max<int64_t>(1, kBytes / (values * static_cast<int64_t>(sizeof(T))));
  ParallelFor(shape.planes * depth.dst * height.dst, grain,
              [&](int64_t first, int64_t last) { PoolRowsOf(shape, src, dst, first, last); });
}

template void MaxPool(const MaxPoolShape& shape, const float* src, float* dst);
template void MaxPool(const MaxPoolShape& shape, const uint8_t* src, uint8_t* dst);
template void MaxPool(const MaxPoolShape& shape, const int8_t* src, int8_t* dst);

}  // namespace tvm::runtime::contrib::dnnl_backend
