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

#include "element_pairs.h"
// The last one.
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

template <bool kIsMax>
struct ExtremumOf {
  DNNL_INLINE float operator()(float x, float y) const {
    return ((kIsMax ? x > y : x < y) | (x != x)) ? x : y;
  }
};

/*! \brief The same in 16 bits, whose order is that of integers but for the sign. */
template <bool kIsMax>
struct ExtremumOf16 {
  uint16_t infinity;

  DNNL_INLINE uint16_t operator()(uint16_t x, uint16_t y) const {
    const bool x_is_nan = (x & 0x7fff) > infinity, y_is_nan = (y & 0x7fff) > infinity;
    const bool is_before = kIsMax ? Order(x) > Order(y) : Order(x) < Order(y);
    return (x_is_nan | (is_before & !y_is_nan)) ? x : y;
  }
  static DNNL_INLINE int16_t Order(uint16_t bits) {
    const auto value = static_cast<int16_t>(bits);
    return static_cast<int16_t>(value ^ ((value >> 15) & 0x7fff));
  }
};

}  // namespace

DNNL_FOR_CPUS void Extremum(bool is_max, const float* a, int64_t a_stride, const float* b,
                            int64_t b_stride, float* dst, int64_t count) {
  if (is_max) return ComputePairs(a, a_stride, b, b_stride, dst, count, ExtremumOf<true>{});
  ComputePairs(a, a_stride, b, b_stride, dst, count, ExtremumOf<false>{});
}

DNNL_FOR_CPUS void Extremum(bool is_max, uint16_t infinity, const uint16_t* a, int64_t a_stride,
                            const uint16_t* b, int64_t b_stride, uint16_t* dst, int64_t count) {
  if (is_max) {
    return ComputePairs(a, a_stride, b, b_stride, dst, count, ExtremumOf16<true>{infinity});
  }
  ComputePairs(a, a_stride, b, b_stride, dst, count, ExtremumOf16<false>{infinity});
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
