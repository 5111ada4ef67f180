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
 * \file src/runtime/contrib/dnnl/core/kernels/pool.cc
 * \brief Max and average pools of row-major images: over the rows of a window, then its columns.
 */
#include "pool.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "../exec/parallel.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The values of the largest row of windows that is computed at once. */
constexpr int64_t kLine = 2 * kMaxPoolSpan;

/*! \brief Joins values to the largest; NaN is dropped. `V` is a number or a vector. */
template <typename T>
struct Largest {
  using Value = T;
  static constexpr T kFirst = std::numeric_limits<T>::lowest();
  template <typename V>
  static DNNL_INLINE void Join(const V& value, V* joined) {
    *joined = value > *joined ? value : *joined;
  }
};

/*! \brief Adds up values. */
struct Sum {
  using Value = float;
  static constexpr float kFirst = 0;
  template <typename V>
  static DNNL_INLINE void Join(const V& value, V* joined) {
    *joined += value;
  }
};

/*! \brief Rows of one length, in planes; the strides are in elements. */
template <typename T>
struct Rows {
  const T* src;
  int64_t planes, plane_stride, rows, row_stride;
};

/*!
 * \brief Join the values of the columns of rows, in vectors of so many bytes.
 *
 * The last vector overlaps the one before it.
 *
 * \return False where the rows are shorter than a vector; nothing is done then.
 */
template <int kBytes, typename Op, typename Value>
DNNL_INLINE bool JoinVectors(const Rows<Value>& rows, int64_t count, Value* dst) {
  constexpr int64_t kLanes = kBytes / sizeof(Value);
  typedef Value Vector __attribute__((vector_size(kBytes)));
  if (count < kLanes) return false;
  for (int64_t next = 0; next < count; next += kLanes) {
    const int64_t i = next < count - kLanes ? next : count - kLanes;
    Vector joined = Vector{} + Op::kFirst;
    for (int64_t plane = 0; plane < rows.planes; ++plane) {
      const Value* values = rows.src + plane * rows.plane_stride + i;
      for (int64_t row = 0; row < rows.rows; ++row) {
        Vector value;
        std::memcpy(&value, values + row * rows.row_stride, kBytes);
        Op::Join(value, &joined);
      }
    }
    std::memcpy(dst + i, &joined, kBytes);
  }
  return true;
}

template <typename Op, typename Value = typename Op::Value>
DNNL_INLINE void JoinRows(const Rows<Value>& rows, int64_t count, Value* dst) {
  if (JoinVectors<32, Op>(rows, count, dst) || JoinVectors<16, Op>(rows, count, dst) ||
      JoinVectors<8, Op>(rows, count, dst)) {
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    Value joined = Op::kFirst;
    for (int64_t plane = 0; plane < rows.planes; ++plane) {
      const Value* values = rows.src + plane * rows.plane_stride + i;
      for (int64_t row = 0; row < rows.rows; ++row) {
        Op::Join(values[row * rows.row_stride], &joined);
      }
    }
    dst[i] = joined;
  }
}

/*! \brief Join neighboring values, up to kMaxPoolSpan of them, which are overwritten. */
template <typename Op, typename Value>
DNNL_INLINE Value JoinAll(Value* values, int64_t count) {
  Value other[kMaxPoolSpan / 2 + 1];
  Value* to = other;
  while (count > 1) {
    // The upper half is joined to the lower one; of an odd count the middle one stays.
    const int64_t half = count / 2;
    JoinRows<Op>({values, 1, 0, 2, count - half}, half, to);
    to[half] = values[half];
    count -= half;
    std::swap(values, to);
  }
  return values[0];
}

/*! \brief Join the values of neighboring windows of a line, which is overwritten. */
template <typename Op, typename Value>
DNNL_INLINE void PoolLine(Value* line, int64_t count, const WindowAxis& axis, Value* dst) {
  const int64_t stride = axis.stride;
  const Rows<Value> taps = {line, 1, 0, axis.kernel, axis.step};
  if (count == 1 && axis.step == 1) {
    *dst = JoinAll<Op>(line, axis.kernel);
  } else if (stride == 1) {
    JoinRows<Op>(taps, count, dst);
  } else if (stride == 2) {
    Value all[kLine];
    JoinRows<Op>(taps, 2 * count - 1, all);
    for (int64_t i = 0; i < count; ++i) dst[i] = all[2 * i];
  } else {
    for (int64_t i = 0; i < count; ++i) {
      Value joined = line[i * stride];
      for (int64_t k = 1; k < axis.kernel; ++k) Op::Join(line[i * stride + k * axis.step], &joined);
      dst[i] = joined;
    }
  }
}

/*!
 * \brief Compute rows of results, by their numbers.
 * \param finish Called with a row of results, and how many rows of values its windows contain.
 */
template <typename Op, typename Finish, typename Value = typename Op::Value>
DNNL_INLINE void PoolRows(const PoolShape& shape, const Value* src, Value* dst, int64_t first,
                          int64_t last, const Finish& finish) {
  const auto& [depth, height, width] = shape.axes;
  // As many windows as a line holds.
  const int64_t most = (kLine - width.span()) / width.stride + 1;
  Value line[kLine];
  for (int64_t row = first; row < last; ++row) {
    const int64_t slice = row / height.dst;
    const Taps planes = depth.TapsOf(slice % depth.dst), rows = height.TapsOf(row % height.dst);
    const Value* image = src + slice / depth.dst * depth.src * height.src * width.src;
    const int64_t top = (planes.begin + planes.first * depth.step) * height.src + rows.begin +
                        rows.first * height.step;
    for (int64_t begin = 0; begin < width.dst; begin += most) {
      const int64_t count = std::min(most, width.dst - begin);
      const int64_t length = (count - 1) * width.stride + width.span();
      const int64_t from = begin * width.stride - width.pad;
      const int64_t low = std::clamp<int64_t>(-from, 0, length);
      const int64_t high = std::max(low, std::min(length, width.src - from));
      std::fill(line, line + low, Op::kFirst);
      std::fill(line + high, line + length, Op::kFirst);
      JoinRows<Op>(
          {image + top * width.src + from + low, planes.last - planes.first,
           depth.step * height.src * width.src, rows.last - rows.first, height.step * width.src},
          high - low, line + low);
      PoolLine<Op>(line, count, width, dst + row * width.dst + begin);
    }
    finish(dst + row * width.dst, (planes.last - planes.first) * (rows.last - rows.first));
  }
}

/*! \brief Leaves joined values as they are. */
struct NoFinish {
  template <typename T>
  DNNL_INLINE void operator()(T*, int64_t) const {}
};

/*! \brief Divides the sums of windows by the number of their values. */
struct DivideSums {
  const PoolShape& shape;
  bool counts_padding;

  DNNL_INLINE void operator()(float* sums, int64_t rows) const {
    const auto& [depth, height, width] = shape.axes;
    const WindowAxis::Range inside =
        counts_padding ? WindowAxis::Range{0, width.dst} : width.Inside();
    const int64_t all = (counts_padding ? depth.kernel * height.kernel : rows) * width.kernel;
    const auto count = static_cast<float>(all);
    for (int64_t i = inside.first; i < inside.last; ++i) sums[i] /= count;
    for (int64_t i = 0; i < inside.first; ++i) Divide(sums, rows, i);
    for (int64_t i = inside.last; i < width.dst; ++i) Divide(sums, rows, i);
  }

 private:
  DNNL_INLINE void Divide(float* sums, int64_t rows, int64_t i) const {
    const Taps taps = shape.axes[2].TapsOf(i);
    sums[i] /= static_cast<float>(rows * (taps.last - taps.first));
  }
};

/*! \brief Call a function for ranges of the rows of results. */
template <typename T, typename Body>
void ForRows(const PoolShape& shape, const Body& body) {
  // Bytes that are worth a thread.
  constexpr int64_t kBytes = 1 << 16;
  const auto& [depth, height, width] = shape.axes;
  const int64_t rows = depth.kernel * height.kernel;
  const int64_t values = width.dst * (rows * std::min(width.stride, width.kernel) + width.kernel);
  const int64_t grain = std::max<int64_t>(1, kBytes / (values * static_cast<int64_t>(sizeof(T))));
  ParallelFor(shape.planes * depth.dst * height.dst, grain, body);
}

DNNL_FOR_CPUS void LargestOfRows(const PoolShape& shape, const float* src, float* dst,
                                 int64_t first, int64_t last) {
  PoolRows<Largest<float>>(shape, src, dst, first, last, NoFinish());
}
DNNL_FOR_CPUS void LargestOfRows(const PoolShape& shape, const uint8_t* src, uint8_t* dst,
                                 int64_t first, int64_t last) {
  PoolRows<Largest<uint8_t>>(shape, src, dst, first, last, NoFinish());
}
DNNL_FOR_CPUS void LargestOfRows(const PoolShape& shape, const int8_t* src, int8_t* dst,
                                 int64_t first, int64_t last) {
  PoolRows<Largest<int8_t>>(shape, src, dst, first, last, NoFinish());
}
DNNL_FOR_CPUS void MeansOfRows(const PoolShape& shape, bool counts_padding, const float* src,
                               float* dst, int64_t first, int64_t last) {
  PoolRows<Sum>(shape, src, dst, first, last, DivideSums{shape, counts_padding});
}

}  // namespace

template <typename T>
void MaxPool(const PoolShape& shape, const T* src, T* dst) {
  ForRows<T>(shape,
             [&](int64_t first, int64_t last) { LargestOfRows(shape, src, dst, first, last); });
}

void AveragePool(const PoolShape& shape, bool counts_padding, const float* src, float* dst) {
  ForRows<float>(shape, [&](int64_t first, int64_t last) {
    MeansOfRows(shape, counts_padding, src, dst, first, last);
  });
}

template void MaxPool(const PoolShape& shape, const float* src, float* dst);
template void MaxPool(const PoolShape& shape, const uint8_t* src, uint8_t* dst);
template void MaxPool(const PoolShape& shape, const int8_t* src, int8_t* dst);

}  // namespace tvm::runtime::contrib::dnnl_backend
