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
 * \file src/runtime/contrib/dnnl/core/kernels/compare.cc
 * \brief Compares the elements of two rows.
 */
#include "compare.h"

#include "element_pairs.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

template <Comparison kComparison, typename T>
DNNL_INLINE bool Holds(T x, T y) {
  switch (kComparison) {
    case Comparison::kEqual:
      return x == y;
    case Comparison::kNotEqual:
      return x != y;
    case Comparison::kLess:
      return x < y;
    default:
      return x <= y;
  }
}

template <Comparison kComparison>
struct Compared {
  DNNL_INLINE uint8_t operator()(float x, float y) const { return Holds<kComparison>(x, y); }
};

template <Comparison kComparison>
struct Compared16 {
  uint16_t infinity;

  DNNL_INLINE uint8_t operator()(uint16_t x, uint16_t y) const {
    const bool is_unordered = ((x & 0x7fff) > infinity) | ((y & 0x7fff) > infinity);
    const bool holds = Holds<kComparison>(Order(x), Order(y));
    return kComparison == Comparison::kNotEqual ? holds | is_unordered : holds & !is_unordered;
  }
  /*! \brief The order of floating-point numbers is that of these; both zeros are 0. */
  static DNNL_INLINE int16_t Order(uint16_t bits) {
    const auto magnitude = static_cast<int16_t>(bits & 0x7fff);
    return static_cast<int16_t>((bits >> 15) != 0 ? -magnitude : magnitude);
  }
};

template <template <Comparison> class Op, typename T, typename... Words>
DNNL_INLINE void CompareRow(Comparison comparison, const T* a, int64_t a_stride, const T* b,
                            int64_t b_stride, uint8_t* dst, int64_t count, Words... words) {
  switch (comparison) {
    case Comparison::kEqual:
      return ComputePairs(a, a_stride, b, b_stride, dst, count, Op<Comparison::kEqual>{words...});
    case Comparison::kNotEqual:
      return ComputePairs(a, a_stride, b, b_stride, dst, count,
                          Op<Comparison::kNotEqual>{words...});
    case Comparison::kLess:
      return ComputePairs(a, a_stride, b, b_stride, dst, count, Op<Comparison::kLess>{words...});
    default:
      ComputePairs(a, a_stride, b, b_stride, dst, count, Op<Comparison::kLessEqual>{words...});
  }
}

}  // namespace

DNNL_FOR_CPUS void Compare(Comparison comparison, const float* a, int64_t a_stride, const float* b,
                           int64_t b_stride, uint8_t* dst, int64_t count) {
  CompareRow<Compared>(comparison, a, a_stride, b, b_stride, dst, count);
}

DNNL_FOR_CPUS void Compare(Comparison comparison, uint16_t infinity, const uint16_t* a,
                           int64_t a_stride, const uint16_t* b, int64_t b_stride, uint8_t* dst,
                           int64_t count) {
  CompareRow<Compared16>(comparison, a, a_stride, b, b_stride, dst, count, infinity);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
