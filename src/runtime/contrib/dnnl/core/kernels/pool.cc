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
#include <type_traits>
#include <utility>

#include "../exec/parallel.h"
#include "pool_lines.h"
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

/*! \brief Leaves joined values as they are. */
struct NoFinish {
  DNNL_INLINE void Begin(const WindowAxis&, int64_t, int64_t) const {}
  template <typename V>
  DNNL_INLINE void Finish(int64_t, int64_t, V*) const {}
};

/*! \brief Compute a row of results; one value after the line may be read. */
template <typename Op, typename Finish, typename Value>
DNNL_INLINE void PoolLine(const Line<Value>& line, int64_t count, const Finish& finish,
                          Value* dst) {
  if (line.stride == 1) {
    if (PoolVectors<32, 1, Op>(line, count, finish, dst) ||
        PoolVectors<16, 1, Op>(line, count, finish, dst) ||
        PoolVectors<8, 1, Op>(line, count, finish, dst)) {
      return;
    }
  } else if (line.stride == 2) {
    if constexpr (sizeof(Value) == sizeof(int32_t)) {
      if (PoolVectors<32, 2, Op>(line, count, finish, dst) ||
          PoolVectors<16, 2, Op>(line, count, finish, dst) ||
          PoolVectors<8, 2, Op>(line, count, finish, dst)) {
        return;
      }
    } else {
      static_assert(std::is_same_v<Finish, NoFinish>, "bytes are not divided");
      Value all[kLine];
      JoinRows<Op>({line.values, 1, 0, line.taps, line.step}, 2 * count - 1, all);
      for (int64_t i = 0; i < count; ++i) dst[i] = all[2 * i];
      return;
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    Value joined;
    line.template JoinAt<Op>(i * line.stride, &joined);
    finish.Finish(i, line.rows, &joined);
    dst[i] = joined;
  }
}

/*! \brief Where rows of results lie in images, one after the other. */
class RowCursor {
 public:
  RowCursor(const PoolShape& shape, int64_t row) : shape_(&shape) {
    const auto& [depth, height, width] = shape.axes;
    row_ = row % height.dst;
    slice_ = row / height.dst % depth.dst;
    image_ = row / height.dst / depth.dst * depth.src * height.src * width.src;
    planes_ = depth.TapsOf(slice_);
  }
  /*! \brief The taps of the row's windows in rows of the source, from the first column. */
  template <typename Value>
  DNNL_INLINE Rows<Value> Taps(const Value* src) const {
    const auto& [depth, height, width] = shape_->axes;
    const auto rows = height.TapsOf(row_);
    const int64_t top = (planes_.begin + planes_.first * depth.step) * height.src + rows.begin +
                        rows.first * height.step;
    return {src + image_ + top * width.src, planes_.last - planes_.first,
            depth.step * height.src * width.src, rows.last - rows.first, height.step * width.src};
  }
  DNNL_INLINE void Next() {
    const auto& [depth, height, width] = shape_->axes;
    if (++row_ < height.dst) return;
    row_ = 0;
    if (++slice_ == depth.dst) {
      slice_ = 0;
      image_ += depth.src * height.src * width.src;
    }
    planes_ = depth.TapsOf(slice_);
  }

 private:
  const PoolShape* shape_;
  int64_t row_, slice_, image_;
  tvm::runtime::contrib::dnnl_backend::Taps planes_;
};

/*!
 * \brief Compute rows of results, by their numbers.
 *
 * Several rows that fit are computed at once: first those of the source are joined, so that what
 * joins their columns does not wait for vectors that were just stored.
 * \param finish Turns joined values into results.
 */
template <typename Op, typename Finish, typename Value = typename Op::Value>
DNNL_INLINE void PoolRows(const PoolShape& shape, const Value* src, Value* dst, int64_t first,
                          int64_t last, Finish&& finish) {
  constexpr int64_t kMostRows = 16;
  const WindowAxis& width = shape.axes[2];
  const int64_t stride = width.stride, span = width.span();
  // As many windows as a line holds, and as many rows of them.
  const int64_t most = std::min(width.dst, (kLine - span) / stride + 1);
  const int64_t line_size = (most - 1) * stride + span;
  const int64_t most_rows =
      most < width.dst ? 1 : std::clamp<int64_t>(kLine / line_size, 1, kMostRows);
  const bool is_whole = most == 1 && width.step == 1;
  Value lines[kLine + 1];
  int64_t joined[kMostRows];
  RowCursor cursor(shape, first);
  for (int64_t row = first; row < last; row += most_rows) {
    const int64_t count_rows = std::min(most_rows, last - row);
    const RowCursor start = cursor;
    for (int64_t begin = 0; begin < width.dst; begin += most) {
      const int64_t count = std::min(most, width.dst - begin);
      const int64_t length = (count - 1) * stride + span, from = begin * stride - width.pad;
      const int64_t low = std::clamp<int64_t>(-from, 0, length);
      const int64_t high = std::max(low, std::min(length, width.src - from));
      // The padding of a line remains from the rows before.
      const bool is_known = most_rows > 1 && !is_whole && row > first;
      if (row == first || most < width.dst) finish.Begin(width, begin, count);
      cursor = start;
      for (int64_t i = 0; i < count_rows; ++i, cursor.Next()) {
        Value* const to = lines + i * line_size;
        if (!is_known) {
          std::fill(to, to + low, Op::kFirst);
          std::fill(to + high, to + length, Op::kFirst);
        }
        Rows<Value> taps = cursor.Taps(src);
        taps.src += from + low;
        joined[i] = taps.planes * taps.rows;
        JoinRows<Op>(taps, high - low, to + low);
      }
      for (int64_t i = 0; i < count_rows; ++i) {
        Line<Value> from = {lines + i * line_size, width.kernel, width.step, stride, joined[i]};
        Value result;
        if (is_whole) {
          result = JoinAll<Op>(lines + i * line_size, width.kernel);
          from.values = &result;
          from.taps = 1;
        }
        PoolLine<Op>(from, count, finish, dst + (row + i) * width.dst + begin);
      }
    }
  }
}

/*! \brief Divides the sums of windows by the number of their values. */
class DivideSums {
 public:
  DivideSums(const PoolShape& shape, bool counts_padding)
      : all_rows_(counts_padding ? shape.axes[0].kernel * shape.axes[1].kernel : 0) {}

  /*! \brief Prepare for results of these columns. */
  DNNL_INLINE void Begin(const WindowAxis& width, int64_t begin, int64_t count) {
    std::fill(columns_, columns_ + count, static_cast<float>(width.kernel));
    if (all_rows_ > 0) return;
    const auto inside = width.Inside();
    for (int64_t i = 0; i < count; ++i) {
      if (begin + i == inside.first) i += inside.last - inside.first;
      if (i >= count) return;
      const Taps taps = width.TapsOf(begin + i);
      columns_[i] = static_cast<float>(taps.last - taps.first);
    }
  }
  template <typename V>
  DNNL_INLINE void Finish(int64_t i, int64_t rows, V* sums) const {
    V columns;
    std::memcpy(&columns, columns_ + i, sizeof(V));
    *sums /= columns * static_cast<float>(all_rows_ > 0 ? all_rows_ : rows);
  }

 private:
  /*! \brief The rows of a window where padding counts, or 0. */
  int64_t all_rows_;
  /*! \brief The values in a row of a window. */
  float columns_[kLine];
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
  PoolRows<Sum>(shape, src, dst, first, last, DivideSums(shape, counts_padding));
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
