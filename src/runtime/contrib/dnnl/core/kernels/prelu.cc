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
 * \file src/runtime/contrib/dnnl/core/kernels/prelu.cc
 * \brief The rectifier with a slope per channel.
 */
#include "prelu.h"

#include <algorithm>

#include "vectors.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

constexpr int kLanes = 8;
/*! \brief Fewer slopes are repeated, so that the loop over them is long. */
constexpr int64_t kSlopes = 64;

template <int W, typename T>
DNNL_INLINE void RectifyVector(const T* src, const Floats<W>& slopes, T* dst) {
  const Floats<W> x = Load<W>(src);
  Store<W>(x > 0.f ? x : slopes * x, dst);
}

/*! \brief Each element with a slope of its own, or all with the first. */
template <bool kIsOne, typename T>
DNNL_INLINE void RectifyRow(const T* src, const float* slopes, T* dst, int64_t count) {
  const float one = *slopes;
  int64_t i = 0;
  DNNL_INDEPENDENT
  for (; i + kLanes <= count; i += kLanes) {
    RectifyVector<kLanes>(src + i, kIsOne ? Filled<kLanes>(one) : Load<kLanes>(slopes + i),
                          dst + i);
  }
  for (; i < count; ++i) RectifyVector<1>(src + i, Filled<1>(kIsOne ? one : slopes[i]), dst + i);
}

template <typename T>
DNNL_INLINE void Rectify(const T* src, const float* slopes, int64_t period, T* dst, int64_t count) {
  if (period == 1) return RectifyRow<true>(src, slopes, dst, count);
  float repeated[2 * kSlopes];
  if (period < kSlopes) {
    const int64_t size = (kSlopes + period - 1) / period * period;
    for (int64_t i = 0; i < size; ++i) repeated[i] = i < period ? slopes[i] : repeated[i - period];
    slopes = repeated;
    period = size;
  }
  for (int64_t i = 0; i < count; i += period) {
    RectifyRow<false>(src + i, slopes, dst + i, std::min(period, count - i));
  }
}

}  // namespace

DNNL_FOR_CPUS void PReLU(const float* src, const float* slopes, int64_t period, float* dst,
                         int64_t count) {
  Rectify(src, slopes, period, dst, count);
}

DNNL_FOR_CPUS void PReLU(const uint16_t* src, const float* slopes, int64_t period, uint16_t* dst,
                         int64_t count) {
  Rectify(src, slopes, period, dst, count);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
