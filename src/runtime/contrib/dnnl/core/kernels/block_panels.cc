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
 * \file src/runtime/contrib/dnnl/core/kernels/block_panels.cc
 * \brief Products of many rows of data and rows of dequantized weights, in registers.
 */
#include "block_panels.h"

#include <algorithm>

#include "isa.h"
// The last one.
#include "cpu_clones.h"
#include "row_panels.h"

#if defined(__GNUC__) && defined(__x86_64__)
#define DNNL_HAS_PANEL_PRODUCTS
#endif

namespace tvm::runtime::contrib::dnnl_backend {

#ifdef DNNL_HAS_PANEL_PRODUCTS

namespace {

static_assert(kPanelRows == kLanes);

/*! \brief The channels that are multiplied at once. */
constexpr int64_t kChannels = 8;

/*! \brief Some channels by P panels of data. */
template <int P>
DNNL_INLINE void MultiplyTile(const float* weights, int channels, int64_t count,
                              const float* panels, int64_t rows, float* dst, int64_t dst_stride) {
  const float* channel[kChannels];
  const float* panel[P];
  float sums[kChannels][P * kLanes] = {};
  for (int n = 0; n < channels; ++n) channel[n] = weights + n * count;
  for (int p = 0; p < P; ++p) panel[p] = panels + p * count * kLanes;
  MultiplyPanels<kLanes, P>(channel, channels, panel, count, sums[0], P * kLanes);
  for (int64_t m = 0; m < rows; ++m) {
    for (int n = 0; n < channels; ++n) dst[m * dst_stride + n] = sums[n][m];
  }
}

DNNL_AVX512 void MultiplyOnAVX512(const float* weights, int64_t channels, int64_t count,
                                  const float* panels, int64_t rows, float* dst,
                                  int64_t dst_stride) {
  // Two panels stay in the caches while all channels are multiplied by them.
  for (int64_t m = 0; m < rows; m += 2 * kLanes) {
    const int64_t some = std::min<int64_t>(2 * kLanes, rows - m);
    for (int64_t n = 0; n < channels; n += kChannels) {
      const auto width = static_cast<int>(std::min(kChannels, channels - n));
      float* to = dst + m * dst_stride + n;
      if (some > kLanes) {
        MultiplyTile<2>(weights + n * count, width, count, panels + m * count, some, to,
                        dst_stride);
      } else {
        MultiplyTile<1>(weights + n * count, width, count, panels + m * count, some, to,
                        dst_stride);
      }
    }
  }
}

}  // namespace

bool HasPanelProducts() { return HasISA(ISA::kAVX512); }

void MultiplyDataPanels(const float* weights, int64_t channels, int64_t count, const float* panels,
                        int64_t rows, float* dst, int64_t dst_stride) {
  MultiplyOnAVX512(weights, channels, count, panels, rows, dst, dst_stride);
}

#else

bool HasPanelProducts() { return false; }

void MultiplyDataPanels(const float*, int64_t, int64_t, const float*, int64_t, float*, int64_t) {}

#endif

void PackPanel(const float* data, int64_t rows, int64_t stride, const int32_t* order, int64_t count,
               float* panel) {
  for (int64_t k = 0; k < count; ++k) {
    float* to = panel + k * kPanelRows;
    if (order[k] < 0 || rows < kPanelRows) std::fill(to, to + kPanelRows, 0.f);
    if (order[k] < 0) continue;
    const float* from = data + order[k];
    if (rows == kPanelRows) {
      for (int64_t m = 0; m < kPanelRows; ++m) to[m] = from[m * stride];
    } else {
      for (int64_t m = 0; m < rows; ++m) to[m] = from[m * stride];
    }
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend
