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
 * \file src/runtime/contrib/dnnl/core/kernels/grid_sample.cc
 * \brief Samples row-major images at computed coordinates, with linear interpolation.
 */
#include "grid_sample.h"

#include <algorithm>
#include <cmath>

#include "../exec/parallel.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief An axis at a coordinate: two elements, -1 for one that is outside, and their weights. */
struct Place {
  int64_t before, after;
  float of_before, of_after;
};

/*! \brief Return the place of a coordinate from -1 to 1. NaN is outside. */
Place PlaceOf(float coordinate, int64_t size, const GridSampleKernel& k) {
  const auto count = static_cast<float>(size);
  float position = k.align_corners ? (coordinate + 1.f) * (count - 1.f) / 2.f
                                   : ((coordinate + 1.f) * count - 1.f) / 2.f;
  if (k.is_border) position = std::min(std::max(position, 0.f), count - 1.f);
  if (!(position > -1.f && position < count)) return {-1, -1, 0.f, 0.f};
  const float before = std::floor(position), share = position - before;
  const auto first = static_cast<int64_t>(before);
  // Of a size that float32 rounds up, the last coordinates are outside.
  return {first < size ? first : -1, first + 1 < size ? first + 1 : -1, 1.f - share, share};
}

}  // namespace

void GridSampleKernel::Run(const float* data, const float* grid, float* dst) const {
  // A coordinate is computed once for a few channels; a thread is worth some 10 us.
  constexpr int64_t kSamples = 64;
  const int64_t blocks = (samples + kSamples - 1) / kSamples;
  const int64_t plane = height * width;
  const int64_t grain = std::max<int64_t>(1, 16384 / (kSamples * std::max<int64_t>(1, channels)));
  ParallelFor(batch * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / blocks, first = i % blocks * kSamples;
      const int64_t count = std::min(kSamples, samples - first);
      const float* columns = grid + image * 2 * samples + first;
      const float* rows = columns + samples;
      int64_t offsets[4][kSamples];
      float weights[4][kSamples];
      for (int64_t s = 0; s < count; ++s) {
        const Place x = PlaceOf(columns[s], width, *this), y = PlaceOf(rows[s], height, *this);
        const int64_t lines[] = {y.before, y.after}, items[] = {x.before, x.after};
        const float of_lines[] = {y.of_before, y.of_after}, of_items[] = {x.of_before, x.of_after};
        for (int corner = 0; corner < 4; ++corner) {
          const int64_t line = lines[corner / 2], item = items[corner % 2];
          offsets[corner][s] = std::min(line, item) < 0 ? -1 : line * width + item;
          weights[corner][s] = of_lines[corner / 2] * of_items[corner % 2];
        }
      }
      for (int64_t c = 0; c < channels; ++c) {
        const float* from = data + (image * channels + c) * plane;
        float* to = dst + (image * channels + c) * samples + first;
        for (int64_t s = 0; s < count; ++s) {
          float sum = 0.f;
          for (int corner = 0; corner < 4; ++corner) {
            const int64_t offset = offsets[corner][s];
            sum += offset < 0 ? 0.f : weights[corner][s] * from[offset];
          }
          to[s] = sum;
        }
      }
    }
  });
}

}  // namespace tvm::runtime::contrib::dnnl_backend
