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
 * \file src/runtime/contrib/dnnl/core/kernels/quantize.cc
 * \brief Vector loops that quantize float32 numbers as the model runs.
 */
#include "quantize.h"

#include <algorithm>
#include <cstring>

#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief A loop of so many iterations is compiled to vectors. */
constexpr int kBlock = 64;

/*! \brief An element in uint8, in 32 bits. `low` and `high` are 0 and 255 less the zero point. */
DNNL_INLINE int32_t Quantized(float value, float scale, float low, float high, int32_t shift) {
  // A float32 of this size has no fraction: adding it rounds halves to even.
  constexpr float kRound = 12582912.f;
  float steps = value / scale;
  steps = steps > low ? steps : low;
  steps = steps < high ? steps : high;
  const float rounded = steps + kRound;
  int32_t bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  return bits + shift;
}

}  // namespace

DNNL_FOR_CPUS void ExtendRange(const float* src, int64_t count, float* low, float* high) {
  float lows[kBlock], highs[kBlock];
  for (int k = 0; k < kBlock; ++k) {
    lows[k] = *low;
    highs[k] = *high;
  }
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    for (int k = 0; k < kBlock; ++k) {
      lows[k] = src[i + k] < lows[k] ? src[i + k] : lows[k];
      highs[k] = src[i + k] > highs[k] ? src[i + k] : highs[k];
    }
  }
  for (; i < count; ++i) {
    lows[0] = std::min(lows[0], src[i]);
    highs[0] = std::max(highs[0], src[i]);
  }
  // Several at a time, down to a vector.
  constexpr int kFew = 16;
  for (int part = kFew; part < kBlock; part += kFew) {
    for (int k = 0; k < kFew; ++k) {
      lows[k] = lows[part + k] < lows[k] ? lows[part + k] : lows[k];
      highs[k] = highs[part + k] > highs[k] ? highs[part + k] : highs[k];
    }
  }
  for (int k = 0; k < kFew; ++k) {
    *low = lows[k] < *low ? lows[k] : *low;
    *high = highs[k] > *high ? highs[k] : *high;
  }
}

DNNL_FOR_CPUS void QuantizeToUint8(const float* src, int64_t count, float scale, int32_t zero_point,
                                   uint8_t* dst) {
  const auto low = static_cast<float>(-zero_point), high = static_cast<float>(255 - zero_point);
  constexpr int32_t kBitsOfRound = 0x4b400000;
  const int32_t shift = zero_point - kBitsOfRound;
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    uint8_t block[kBlock];
    for (int k = 0; k < kBlock; ++k) {
      block[k] = static_cast<uint8_t>(Quantized(src[i + k], scale, low, high, shift));
    }
    std::memcpy(dst + i, block, sizeof(block));
  }
  for (; i < count; ++i) {
    dst[i] = static_cast<uint8_t>(Quantized(src[i], scale, low, high, shift));
  }
}

DNNL_FOR_CPUS void FakeQuantizeToUint8(const float* src, int64_t count, float scale,
                                       int32_t zero_point, float* dst) {
  const auto low = static_cast<float>(-zero_point), high = static_cast<float>(255 - zero_point);
  constexpr int32_t kBitsOfRound = 0x4b400000;
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    float block[kBlock];
    for (int k = 0; k < kBlock; ++k) {
      block[k] = scale * static_cast<float>(Quantized(src[i + k], scale, low, high, -kBitsOfRound));
    }
    std::memcpy(dst + i, block, sizeof(block));
  }
  for (; i < count; ++i) {
    dst[i] = scale * static_cast<float>(Quantized(src[i], scale, low, high, -kBitsOfRound));
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend
