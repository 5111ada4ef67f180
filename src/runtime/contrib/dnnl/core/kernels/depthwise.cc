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
 * \file src/runtime/contrib/dnnl/core/kernels/depthwise.cc
 * \brief Depthwise convolutions over three dimensions, in float32 and blocks of channels.
 */
#include "depthwise.h"

#include <algorithm>

#include "../exec/parallel.h"
#include "isa.h"
#include "vectors.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The results of a row that are computed at once: their sums are in registers. */
constexpr int kResults = 8;

/*! \brief The rows of windows whose results are one row, for a block of channels. */
struct RowWork {
  const DepthwiseShape* shape;
  /*! \brief The first value of the block in its image, its weights, and the row of results. */
  const float *src, *weights;
  float* dst;
  Taps depth, height;
};

/*! \brief Compute neighboring results, the windows of which read the same taps of a row. */
template <int W, int kCount>
DNNL_INLINE void ComputeResults(const RowWork& work, int64_t first, const Taps& width) {
  const auto& [depth_axis, height_axis, width_axis] = work.shape->axes;
  const int64_t position = work.shape->src.position;
  const int64_t stride = width_axis.stride * position, step = width_axis.step * position;
  Floats<W> sums[kCount];
  DNNL_UNROLL
  for (int i = 0; i < kCount; ++i) sums[i] = Filled<W>(0.f);
  for (int64_t d = work.depth.first; d < work.depth.last; ++d) {
    const int64_t plane = (work.depth.begin + d * depth_axis.step) * height_axis.src;
    for (int64_t h = work.height.first; h < work.height.last; ++h) {
      const int64_t row = (plane + work.height.begin + h * height_axis.step) * width_axis.src;
      const float* src = work.src + (row + width.begin) * position;
      const float* weights = work.weights + (d * height_axis.kernel + h) * width_axis.kernel * W;
      for (int64_t w = width.first; w < width.last; ++w) {
        const Floats<W> weight = Load<W>(weights + w * W);
        const float* value = src + w * step;
        DNNL_UNROLL
        for (int i = 0; i < kCount; ++i) sums[i] += weight * Load<W>(value + i * stride);
      }
    }
  }
  float* dst = work.dst + first * work.shape->dst.position;
  DNNL_UNROLL
  for (int i = 0; i < kCount; ++i) Store<W>(sums[i], dst + i * work.shape->dst.position);
}

template <int W>
DNNL_INLINE void ComputeRow(const RowWork& work) {
  const WindowAxis& axis = work.shape->axes[2];
  const auto [inside, outside] = axis.Inside();
  for (int64_t i = 0; i < axis.dst;) {
    if (i < inside || i >= outside || outside - inside < kResults) {
      ComputeResults<W, 1>(work, i, axis.TapsOf(i));
      ++i;
    } else {
      // The last ones overlap those before them.
      const int64_t first = std::min(i, outside - kResults);
      ComputeResults<W, kResults>(work, first, axis.TapsOf(first));
      i = first + kResults;
    }
  }
}

void ComputeOnAny(const RowWork& work) { ComputeRow<8>(work); }
DNNL_AVX2 void ComputeOnAVX2(const RowWork& work) { ComputeRow<8>(work); }
DNNL_AVX512 void ComputeOnAVX512(const RowWork& work) { ComputeRow<16>(work); }

/*! \brief The code for a CPU, and the channels of a block. */
struct Code {
  void (*compute)(const RowWork& work);
  int lanes;
};

Code OwnCode() {
  return CodeForCPU<Code>({ComputeOnAny, 8}, {ComputeOnAVX2, 8}, {ComputeOnAVX512, 16});
}

}  // namespace

int DepthwiseLanes() { return OwnCode().lanes; }

void DepthwiseConv(const DepthwiseShape& shape, const float* src, const float* weights,
                   float* dst) {
  // Products of vectors that are worth a thread.
  constexpr int64_t kWork = 1 << 15;
  const Code code = OwnCode();
  const auto& [depth, height, width] = shape.axes;
  const int64_t taps = depth.kernel * height.kernel * width.kernel;
  const int64_t rows = depth.dst * height.dst;
  const int64_t grain = std::max<int64_t>(1, kWork / (taps * width.dst));
  ParallelFor(shape.batch * shape.blocks * rows, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t image = i / rows / shape.blocks, block = i / rows % shape.blocks;
      const int64_t row = i % rows;
      code.compute({&shape, src + image * shape.src.image + block * shape.src.block,
                    weights + block * taps * code.lanes,
                    dst + image * shape.dst.image + block * shape.dst.block +
                        row * width.dst * shape.dst.position,
                    depth.TapsOf(row / height.dst), height.TapsOf(row % height.dst)});
    }
  });
}

}  // namespace tvm::runtime::contrib::dnnl_backend
