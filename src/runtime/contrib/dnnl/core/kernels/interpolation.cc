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
 * \file src/runtime/contrib/dnnl/core/kernels/interpolation.cc
 * \brief Interpolates row-major images of float32 to images of another size.
 */
#include "interpolation.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "../exec/parallel.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using Axis = InterpolationKernel::Axis;

/*! \brief Add rows, each multiplied by its weight. */
DNNL_FOR_CPUS void SumRows(const std::vector<std::pair<const float*, float>>& rows, int64_t count,
                           float* __restrict dst) {
  const auto [a, first] = rows[0];
  if (rows.size() == 1) {
    for (int64_t j = 0; j < count; ++j) dst[j] = first * a[j];
    return;
  }
  const auto [b, second] = rows[1];
  for (int64_t j = 0; j < count; ++j) dst[j] = first * a[j] + second * b[j];
  for (size_t k = 2; k < rows.size(); ++k) {
    const auto [row, weight] = rows[k];
    for (int64_t j = 0; j < count; ++j) dst[j] += weight * row[j];
  }
}

/*! \brief Sums of two values of a row, one by one. */
DNNL_INLINE void InterpolatePairs(const float* row, const Axis& axis, int64_t first, int64_t last,
                                  float* dst) {
  const int32_t *low = axis.indices.data(), *high = low + axis.out;
  const float *of_low = axis.weights.data(), *of_high = of_low + axis.out;
  for (int64_t j = first; j < last; ++j) {
    dst[j] = of_low[j] * row[low[j]] + of_high[j] * row[high[j]];
  }
}

/*! \brief Sums of two values with weights that repeat after kFactor of them. */
template <int kFactor>
DNNL_INLINE void InterpolateRepeated(const float* __restrict row, const Axis& axis,
                                     float* __restrict dst) {
  InterpolatePairs(row, axis, 0, kFactor, dst);
  const float *of_low = axis.weights.data() + kFactor, *of_high = of_low + axis.out;
  for (int64_t i = 1; i < axis.size - 1; ++i) {
    DNNL_UNROLL
    for (int k = 0; k < kFactor; ++k) {
      const int64_t low = k < kFactor / 2 ? i - 1 : i;
      dst[i * kFactor + k] = of_low[k] * row[low] + of_high[k] * row[low + 1];
    }
  }
  InterpolatePairs(row, axis, axis.out - kFactor, axis.out, dst);
}

DNNL_FOR_CPUS void InterpolateRow(const float* row, const Axis& axis, int64_t factor, float* dst) {
  if (factor == 2) return InterpolateRepeated<2>(row, axis, dst);
  if (factor == 4) return InterpolateRepeated<4>(row, axis, dst);
  InterpolatePairs(row, axis, 0, axis.out, dst);
  for (int64_t k = 2; k < axis.taps; ++k) {
    const int32_t* const indices = axis.indices.data() + k * axis.out;
    const float* const weights = axis.weights.data() + k * axis.out;
    for (int64_t j = 0; j < axis.out; ++j) dst[j] += weights[j] * row[indices[j]];
  }
}

/*! \brief The factor of an axis whose weights and distances are the same around each value. */
int64_t RepeatedFactor(const Axis& axis) {
  if (axis.taps != 2 || axis.size < 2 || axis.out % axis.size != 0) return 0;
  const int64_t factor = axis.out / axis.size;
  for (int64_t j = factor; j < axis.out - factor; ++j) {
    const int64_t i = j / factor, k = j % factor, low = k < factor / 2 ? i - 1 : i;
    for (int64_t tap : {0, 1}) {
      const int64_t at = tap * axis.out + j;
      if (axis.indices[at] != low + tap) return 0;
      if (axis.weights[at] != axis.weights[tap * axis.out + factor + k]) return 0;
    }
  }
  return factor;
}

}  // namespace

InterpolationKernel::InterpolationKernel(int64_t planes, std::array<Axis, 3> axes)
    : planes_(planes), axes_(std::move(axes)), factor_(RepeatedFactor(axes_[2])) {}

void InterpolationKernel::RunRows(const float* src, float* dst, int64_t first, int64_t last) const {
  const auto& [depth, height, width] = axes_;
  std::vector<float> sum(width.size);
  std::vector<std::pair<const float*, float>> rows(depth.taps * height.taps);
  for (int64_t i = first; i < last; ++i) {
    const int64_t h = i % height.out, slice = i / height.out, d = slice % depth.out;
    const float* const plane = src + slice / depth.out * depth.size * height.size * width.size;
    for (size_t k = 0; k < rows.size(); ++k) {
      const int64_t z = k / height.taps * depth.out + d, y = k % height.taps * height.out + h;
      const int64_t row = depth.indices[z] * height.size + height.indices[y];
      rows[k] = {plane + row * width.size, depth.weights[z] * height.weights[y]};
    }
    float* const to = dst + i * width.out;
    const bool is_copied = depth.IsCopied() && height.IsCopied();
    if (width.IsCopied()) {
      SumRows(rows, width.size, to);
      continue;
    }
    if (!is_copied) SumRows(rows, width.size, sum.data());
    InterpolateRow(is_copied ? rows[0].first : sum.data(), width, factor_, to);
  }
}

void InterpolationKernel::Run(const float* src, float* dst) const {
  // Elements that are worth a thread.
  constexpr int64_t kElements = 1 << 13;
  const auto& [depth, height, width] = axes_;
  const int64_t grain = std::max<int64_t>(1, kElements / width.out);
  ParallelFor(planes_ * depth.out * height.out, grain,
              [&](int64_t first, int64_t last) { RunRows(src, dst, first, last); });
}

}  // namespace tvm::runtime::contrib::dnnl_backend
