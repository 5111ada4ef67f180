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
 * \file src/runtime/contrib/dnnl/core/kernels/nearest.cc
 * \brief Copies the nearest values of row-major images to images of another size.
 */
#include "nearest.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "../exec/parallel.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

template <int kFactor, typename T>
DNNL_INLINE void Repeat(const T* __restrict src, int64_t count, T* __restrict dst) {
  for (int64_t i = 0; i < count; ++i) {
    DNNL_UNROLL
    for (int k = 0; k < kFactor; ++k) dst[i * kFactor + k] = src[i];
  }
}

/*! \brief Copy a row, each value of which follows itself a few times. */
template <typename T>
DNNL_INLINE bool RepeatedRow(const T* src, int64_t count, int64_t factor, T* dst) {
  switch (factor) {
    case 2:
      return Repeat<2>(src, count, dst), true;
    case 3:
      return Repeat<3>(src, count, dst), true;
    case 4:
      return Repeat<4>(src, count, dst), true;
    default:
      return false;
  }
}

DNNL_FOR_CPUS bool Repeated(const uint32_t* src, int64_t count, int64_t factor, uint32_t* dst) {
  return RepeatedRow(src, count, factor, dst);
}

DNNL_FOR_CPUS bool Repeated(const uint16_t* src, int64_t count, int64_t factor, uint16_t* dst) {
  return RepeatedRow(src, count, factor, dst);
}

}  // namespace

NearestKernel::NearestKernel(int64_t planes, std::array<Axis, 3> axes, int bytes)
    : planes_(planes), axes_(std::move(axes)), bytes_(bytes) {
  const auto& [size, indices] = axes_[2];
  const auto count = static_cast<int64_t>(indices.size());
  factor_ = count % size == 0 ? count / size : 0;
  for (int64_t i = 0; i < count && factor_ > 0; ++i) {
    if (indices[i] != i / factor_) factor_ = 0;
  }
}

template <typename T>
void NearestKernel::RunRows(const T* src, T* dst, int64_t first, int64_t last) const {
  const auto& [depth, height, width] = axes_;
  const auto rows = static_cast<int64_t>(height.indices.size());
  const auto columns = static_cast<int64_t>(width.indices.size());
  const auto slices = static_cast<int64_t>(depth.indices.size());
  int64_t copied = -1;
  for (int64_t i = first; i < last; ++i) {
    const int64_t slice = i / rows, plane = slice / slices;
    const int64_t row = (plane * depth.size + depth.indices[slice % slices]) * height.size +
                        height.indices[i % rows];
    T* const to = dst + i * columns;
    if (row == copied) {
      std::memcpy(to, to - columns, columns * sizeof(T));
      continue;
    }
    copied = row;
    const T* const from = src + row * width.size;
    if (Repeated(from, width.size, factor_, to)) continue;
    for (int64_t j = 0; j < columns; ++j) to[j] = from[width.indices[j]];
  }
}

void NearestKernel::Run(const void* src, void* dst) const {
  // Elements that are worth a thread.
  constexpr int64_t kElements = 1 << 15;
  const auto rows = static_cast<int64_t>(axes_[0].indices.size() * axes_[1].indices.size());
  const auto columns = static_cast<int64_t>(axes_[2].indices.size());
  const int64_t grain = std::max<int64_t>(1, kElements / columns);
  ParallelFor(planes_ * rows, grain, [&](int64_t first, int64_t last) {
    if (bytes_ == 4) {
      RunRows(static_cast<const uint32_t*>(src), static_cast<uint32_t*>(dst), first, last);
    } else {
      RunRows(static_cast<const uint16_t*>(src), static_cast<uint16_t*>(dst), first, last);
    }
  });
}

}  // namespace tvm::runtime::contrib::dnnl_backend
