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
 * \file src/runtime/contrib/dnnl/core/kernels/int8_conv.cc
 * \brief Exact convolutions of 8-bit integers: matmuls of windows, which are not copied.
 */
#include "int8_conv.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "../exec/parallel.h"
#include "int8_tiles.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

#ifdef DNNL_HAS_INT8_MATRICES

namespace {

template <typename T>
DNNL_INLINE void Widen(const T* src, int64_t count, int32_t zero_point, int16_t* dst) {
  for (int64_t i = 0; i < count; ++i) dst[i] = static_cast<int16_t>(src[i] - zero_point);
}
DNNL_FOR_CPUS void WidenValues(const uint8_t* src, int64_t count, int32_t zero_point,
                               int16_t* dst) {
  Widen(src, count, zero_point, dst);
}
DNNL_FOR_CPUS void WidenValues(const int8_t* src, int64_t count, int32_t zero_point, int16_t* dst) {
  Widen(src, count, zero_point, dst);
}

/*! \brief Widen 8 values of each of 8 channels, and put the channels last. */
template <typename T>
DNNL_AVX2 DNNL_INLINE void WidenBlock(const T* src, int64_t plane, int64_t channels,
                                      int32_t zero_point, int16_t* dst) {
  __m128i rows[8], pairs[8];
  const auto load = [&](int c) DNNL_AVX2 {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(src + c * plane));
  };
  DNNL_UNROLL
  for (int c = 0; c < 4; ++c) pairs[c] = _mm_unpacklo_epi8(load(2 * c), load(2 * c + 1));
  DNNL_UNROLL
  for (int c = 0; c < 2; ++c) {
    rows[c] = _mm_unpacklo_epi16(pairs[2 * c], pairs[2 * c + 1]);
    rows[c + 2] = _mm_unpackhi_epi16(pairs[2 * c], pairs[2 * c + 1]);
  }
  const __m128i zero = _mm_set1_epi16(static_cast<int16_t>(zero_point));
  const auto store = [&](__m128i bytes, int64_t i) DNNL_AVX2 {
    const __m128i wide = std::is_signed_v<T> ? _mm_cvtepi8_epi16(bytes) : _mm_cvtepu8_epi16(bytes);
    auto* const to = reinterpret_cast<__m128i*>(dst + i * channels);
    _mm_storeu_si128(to, _mm_sub_epi16(wide, zero));
  };
  DNNL_UNROLL
  for (int i = 0; i < 2; ++i) {
    const __m128i low = _mm_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
    const __m128i high = _mm_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    store(low, 4 * i);
    store(_mm_unpackhi_epi64(low, low), 4 * i + 1);
    store(high, 4 * i + 2);
    store(_mm_unpackhi_epi64(high, high), 4 * i + 3);
  }
}

/*! \brief Widen a row of each channel, and put the channels last. */
template <typename T>
DNNL_AVX2 void WidenPlanes(const T* src, int64_t plane, int64_t width, int64_t channels,
                           int32_t zero_point, int16_t* dst) {
  if (width < 8 || channels < 8) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t i = 0; i < width; ++i) {
        dst[i * channels + c] = static_cast<int16_t>(src[c * plane + i] - zero_point);
      }
    }
    return;
  }
  // The last blocks overlap the ones before them.
  for (int64_t next = 0; next < width; next += 8) {
    const int64_t i = std::min(next, width - 8);
    for (int64_t block = 0; block < channels; block += 8) {
      const int64_t c = std::min(block, channels - 8);
      WidenBlock(src + c * plane + i, plane, channels, zero_point, dst + i * channels + c);
    }
  }
}

/*! \brief Where the windows of consecutive results begin in the padded source. */
class Windows {
 public:
  Windows(const Int8ConvShape& shape, int64_t position) : axes_(shape.axes) {
    steps_[2] = shape.channels;
    for (int i = 1; i >= 0; --i) steps_[i] = steps_[i + 1] * shape.Padded(i + 1);
    image_ = steps_[0] * shape.Padded(0);
    for (int i = 2; i >= 0; --i) {
      at_[i] = position % axes_[i].dst;
      position /= axes_[i].dst;
      steps_[i] *= axes_[i].stride;
    }
    begin_ = position * image_;
    for (int i = 0; i < 3; ++i) begin_ += at_[i] * steps_[i];
  }

  int64_t Next() {
    const int64_t result = begin_;
    int axis = 2;
    for (; axis >= 0; --axis) {
      begin_ += steps_[axis];
      if (++at_[axis] < axes_[axis].dst) return result;
      begin_ -= axes_[axis].dst * steps_[axis];
      at_[axis] = 0;
    }
    begin_ += image_;
    return result;
  }

 private:
  const std::array<WindowAxis, 3>& axes_;
  std::array<int64_t, 3> at_, steps_;
  int64_t image_, begin_;
};

/*! \brief The source in 16 bits without its zero point, with zeros around it. */
void PadSource(const Int8Source& src, const Int8ConvShape& shape, int16_t* dst) {
  const auto& [depth, height, width] = shape.axes;
  const int64_t rows = shape.Padded(1), planes = shape.Padded(0);
  const int64_t length = shape.Padded(2), channels = shape.channels;
  const int64_t low = std::clamp<int64_t>(width.pad, 0, length);
  const int64_t high = std::clamp<int64_t>(width.pad + width.src, low, length);
  const auto pad = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i % rows - height.pad, plane = i / rows % planes - depth.pad;
      int16_t* const to = dst + i * length * channels;
      if (row < 0 || row >= height.src || plane < 0 || plane >= depth.src) {
        std::fill(to, to + length * channels, 0);
        continue;
      }
      const int64_t image = i / rows / planes, volume = depth.src * height.src * width.src;
      const int64_t from = (plane * height.src + row) * width.src + low - width.pad;
      const auto widen = [&](const auto* values) {
        values += image * volume * channels;
        int16_t* const inside = to + low * channels;
        if (shape.is_channels_first) {
          WidenPlanes(values + from, volume, high - low, channels, src.zero_point, inside);
        } else {
          WidenValues(values + from * channels, (high - low) * channels, src.zero_point, inside);
        }
      };
      std::fill(to, to + low * channels, 0);
      src.is_signed ? widen(static_cast<const int8_t*>(src.values))
                    : widen(static_cast<const uint8_t*>(src.values));
      std::fill(to + high * channels, to + length * channels, 0);
    }
  };
  ParallelFor(shape.images * planes * rows,
              std::max<int64_t>(1, kInt8Elements / (length * channels)), pad);
  dst[shape.workspace() - 1] = 0;
}

/*! \brief Where the runs of a window begin. */
std::vector<int64_t> RunsOf(const Int8ConvShape& shape) {
  const auto& [depth, height, width] = shape.axes;
  std::vector<int64_t> runs;
  for (int64_t d = 0; d < depth.kernel; ++d) {
    for (int64_t h = 0; h < height.kernel; ++h) {
      for (int64_t w = 0; w < (width.step == 1 ? 1 : width.kernel); ++w) {
        const int64_t row = d * depth.step * shape.Padded(1) + h * height.step;
        runs.push_back((row * shape.Padded(2) + w * width.step) * shape.channels);
      }
    }
  }
  return runs;
}

}  // namespace

void ConvInt8(const Int8Source& src, const Int8ConvShape& shape, const int8_t* packed,
              const Int8Finish& finish, int16_t* workspace, void* dst) {
  constexpr int64_t kPanel = Int8Matrix::kPanel;
  static constexpr int32_t kNoSums[kInt8Tile] = {};
  PadSource(src, shape, workspace);
  const std::vector<int64_t> runs = RunsOf(shape);
  const Int8Matrix matrix = shape.matrix();
  const int64_t num_runs = shape.runs(), positions = shape.positions(), panels = matrix.panels();
  const int64_t panel_bytes = 2 * matrix.pairs() * kPanel;
  // Neighboring windows share most of their values.
  const int64_t values =
      shape.channels * shape.axes[0].stride * shape.axes[1].stride * shape.axes[2].stride;
  const int64_t tiles = std::max<int64_t>(1, kInt8Cached / (values * kInt8Tile));
  const int64_t chunk = std::min(positions, tiles * kInt8Tile);
  const int64_t chunks = (positions + chunk - 1) / chunk;
  const int64_t bytes = finish.is_rounded ? 1 : sizeof(float), row_bytes = matrix.columns * bytes;
  const int64_t grain =
      std::max<int64_t>(1, kInt8Work / (chunk * kPanel * num_runs * matrix.inner));
  ParallelFor(chunks * panels, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t column = i % panels * kPanel, begin = i / panels * chunk;
      const int64_t end = std::min(begin + chunk, positions);
      Int8Tile work = {{},
                       kNoSums,
                       runs.data(),
                       num_runs,
                       matrix.pairs(),
                       packed + i % panels * panel_bytes,
                       panels * panel_bytes,
                       std::min(kPanel, matrix.columns - column),
                       row_bytes,
                       finish.scales + column,
                       finish.bias + column,
                       &finish,
                       static_cast<char*>(dst) + begin * row_bytes + column * bytes};
      Windows windows(shape, begin);
      for (int64_t m = begin; m < end; m += kInt8Tile) {
        const int64_t some = std::min<int64_t>(kInt8Tile, end - m);
        for (int64_t row = 0; row < some; ++row) work.rows[row] = workspace + windows.Next();
        MultiplyTile(work, some);
        work.dst += some * row_bytes;
      }
    }
  });
}

#else

void ConvInt8(const Int8Source&, const Int8ConvShape&, const int8_t*, const Int8Finish&, int16_t*,
              void*) {}

#endif

}  // namespace tvm::runtime::contrib::dnnl_backend
