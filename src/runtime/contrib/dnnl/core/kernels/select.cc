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
 * \brief Selects between the elements of two rows.
 */
#include "select.h"

#include <cstring>

#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief A loop of so many iterations is compiled to vectors, without branches. */
constexpr int kSelectBlock = 32;

template <int kXStep, int kYStep, typename T>
DNNL_INLINE void SelectRow(const uint8_t* condition, const T* x, const T* y, T* dst,
                           int64_t count) {
  int64_t i = 0;
  for (; i + kSelectBlock <= count; i += kSelectBlock) {
    T block[kSelectBlock];
    for (int k = 0; k < kSelectBlock; ++k) {
      const T one = x[(i + k) * kXStep], other = y[(i + k) * kYStep];
      block[k] = condition[i + k] != 0 ? one : other;
    }
    std::memcpy(dst + i, block, sizeof(block));
  }
  for (; i < count; ++i) dst[i] = condition[i] != 0 ? x[i * kXStep] : y[i * kYStep];
}

}  // namespace

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
