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
 * \file src/runtime/contrib/dnnl/core/kernels/float_rows.cc
 * \brief Softmax and elementwise functions of rows of float32, of any sizes.
 */
#include "float_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "element_pairs.h"
#include "exp.h"
#include "functions.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

DNNL_FOR_CPUS float LargestOf(const float* row, int64_t count) {
  constexpr int kLanes = 16;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] = row[i + k] > lanes[k] ? row[i + k] : lanes[k];
  }
  float largest = *std::max_element(lanes, lanes + kLanes);
  for (; i < count; ++i) largest = row[i] > largest ? row[i] : largest;
  return largest;
}

DNNL_FOR_CPUS void Shift(const float* src, float shift, float* dst, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] = src[i] - shift;
}

DNNL_FOR_CPUS float SumOf(const float* row, int64_t count) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] += row[i + k];
  }
  float sum = 0;
  for (float lane : lanes) sum += lane;
  for (; i < count; ++i) sum += row[i];
  return sum;
}

DNNL_FOR_CPUS void Scale(float factor, float* row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) row[i] *= factor;
}

/*! \brief Compute `op` of elements that are a stride apart. */
template <typename Op>
DNNL_INLINE void Compute(const float* src, int64_t stride, float* dst, int64_t count,
                         const Op& op) {
  if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) dst[i] = op(src[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) dst[i] = op(src[i * stride]);
  }
}

/*! \brief Not a lambda, which might not become a part of a function for several CPUs. */
struct SwishOf {
  float alpha;
  DNNL_INLINE float operator()(float x) const { return x / (1.f + ExpOf(-alpha * x)); }
};

}  // namespace

void SoftmaxOfRow(const float* src, float* dst, int64_t count, ZeroRows zeros) {
  const float largest = LargestOf(src, count);
  // Comparisons with NaN are false: a row of NaN alone looks like one of -inf alone.
  const bool is_masked =
      largest == -std::numeric_limits<float>::infinity() && std::isinf(SumOf(src, count));
  Shift(src, largest, dst, count);
  Exp(dst, dst, count);
  const float sum = SumOf(dst, count);
  if (!std::isnan(sum)) return Scale(1.f / sum, dst, count);
  const bool is_zero = zeros == ZeroRows::kAll || (zeros == ZeroRows::kMasked && is_masked);
  std::fill(dst, dst + count, is_zero ? 0.f : std::numeric_limits<float>::quiet_NaN());
}

DNNL_FOR_CPUS void ComputeElements(Arithmetic op, const float* a, int64_t a_stride, const float* b,
                                   int64_t b_stride, float* dst, int64_t count) {
  switch (op) {
    case Arithmetic::kAdd:
      return ComputePairs(a, a_stride, b, b_stride, dst, count,
                          [](float x, float y) { return x + y; });
    case Arithmetic::kSubtract:
      return ComputePairs(a, a_stride, b, b_stride, dst, count,
                          [](float x, float y) { return x - y; });
    case Arithmetic::kMultiply:
      return ComputePairs(a, a_stride, b, b_stride, dst, count,
                          [](float x, float y) { return x * y; });
    default:
      return ComputePairs(a, a_stride, b, b_stride, dst, count,
                          [](float x, float y) { return x / y; });
  }
}

DNNL_FOR_CPUS void Linear(const float* src, int64_t stride, float alpha, float beta, float* dst,
                          int64_t count) {
  Compute(src, stride, dst, count, [=](float x) { return alpha * x + beta; });
}

DNNL_FOR_CPUS void Swish(const float* src, int64_t stride, float alpha, float* dst, int64_t count) {
  Compute(src, stride, dst, count, SwishOf{alpha});
}

}  // namespace tvm::runtime::contrib::dnnl_backend
