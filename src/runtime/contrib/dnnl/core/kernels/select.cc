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
 * \file src/runtime/contrib/dnnl/core/kernels/select.cc
 * \brief Selects between the elements of two rows, by a condition or by their size.
 */
#include "select.h"

#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

template <int kXStep, int kYStep, typename T>
DNNL_INLINE void SelectRow(const uint8_t* condition, const T* x, const T* y, T* dst,
                           int64_t count) {
  DNNL_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    const T one = x[i * kXStep], other = y[i * kYStep];
    dst[i] = condition[i] != 0 ? one : other;
  }
}

/*! \brief Whether the first of two elements is the result. */
template <bool kIsMax>
struct IsFirst {
  DNNL_INLINE bool operator()(float x, float y) const {
    return (kIsMax ? x > y : x < y) | (x != x);
  }
};

/*! \brief The same in 16 bits, whose order is that of integers but for the sign. */
template <bool kIsMax>
struct IsFirstOf16 {
  uint16_t infinity;

  DNNL_INLINE bool operator()(uint16_t x, uint16_t y) const {
    const bool x_is_nan = (x & 0x7fff) > infinity, y_is_nan = (y & 0x7fff) > infinity;
    const bool is_before = kIsMax ? Order(x) > Order(y) : Order(x) < Order(y);
    return x_is_nan | (is_before & !y_is_nan);
  }
  static DNNL_INLINE int16_t Order(uint16_t bits) {
    const auto value = static_cast<int16_t>(bits);
    return static_cast<int16_t>(value ^ ((value >> 15) & 0x7fff));
  }
};

template <int kAStride, int kBStride, typename T, typename Compare>
DNNL_INLINE void ExtremumRow(const Compare& is_first, const T* a, const T* b, T* dst,
                             int64_t count) {
  // The result may be in the place of an operand.
  DNNL_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    const T x = a[i * kAStride], y = b[i * kBStride];
    dst[i] = is_first(x, y) ? x : y;
  }
}

template <typename T, typename Compare>
DNNL_INLINE void ExtremumRow(const Compare& is_first, const T* a, int64_t a_stride, const T* b,
                             int64_t b_stride, T* dst, int64_t count) {
  if (a_stride == 1 && b_stride == 1) return ExtremumRow<1, 1>(is_first, a, b, dst, count);
  if (a_stride == 1 && b_stride == 0) return ExtremumRow<1, 0>(is_first, a, b, dst, count);
  if (a_stride == 0 && b_stride == 1) return ExtremumRow<0, 1>(is_first, a, b, dst, count);
  for (int64_t i = 0; i < count; ++i) {
    const T x = a[i * a_stride], y = b[i * b_stride];
    dst[i] = is_first(x, y) ? x : y;
  }
}

}  // namespace

DNNL_FOR_CPUS void Extremum(bool is_max, const float* a, int64_t a_stride, const float* b,
                            int64_t b_stride, float* dst, int64_t count) {
  if (is_max) return ExtremumRow(IsFirst<true>{}, a, a_stride, b, b_stride, dst, count);
  ExtremumRow(IsFirst<false>{}, a, a_stride, b, b_stride, dst, count);
}

DNNL_FOR_CPUS void Extremum(bool is_max, uint16_t infinity, const uint16_t* a, int64_t a_stride,
                            const uint16_t* b, int64_t b_stride, uint16_t* dst, int64_t count) {
  if (is_max) return ExtremumRow(IsFirstOf16<true>{infinity}, a, a_stride, b, b_stride, dst, count);
  ExtremumRow(IsFirstOf16<false>{infinity}, a, a_stride, b, b_stride, dst, count);
}

#define DNNL_SELECT(TYPE)                                                                \
  DNNL_FOR_CPUS void Select(const uint8_t* condition, const TYPE* x, int64_t x_step,     \
                            const TYPE* y, int64_t y_step, TYPE* dst, int64_t count) {   \
    if (x_step != 0 && y_step != 0) return SelectRow<1, 1>(condition, x, y, dst, count); \
    if (x_step != 0) return SelectRow<1, 0>(condition, x, y, dst, count);                \
    if (y_step != 0) return SelectRow<0, 1>(condition, x, y, dst, count);                \
    SelectRow<0, 0>(condition, x, y, dst, count);                                        \
  }

DNNL_SELECT(uint8_t)
DNNL_SELECT(uint16_t)
DNNL_SELECT(uint32_t)

}  // namespace tvm::runtime::contrib::dnnl_backend
