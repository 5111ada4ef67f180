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
 * \file src/runtime/contrib/dnnl/core/kernels/exp.h
 * \brief The exponential function, to be compiled to vectors. To be included last.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_EXP_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_EXP_H_

#include <cstdint>
#include <cstring>

#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

DNNL_INLINE uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

DNNL_INLINE float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// ln 2 as the sum of a number of 12 bits, of which multiples by exponents are exact, and the rest.
constexpr float kLn2High = 0x1.62ep-1f, kLn2Low = 0x1.0bfbe8p-15f;

/*! \brief (exp(r) - 1 - r) / r^2 of numbers or vectors, |r| <= ln 2 / 2: a minimax polynomial. */
template <typename Float>
DNNL_INLINE Float ExpPolynomial(const Float& r) {
  Float p = 0.00139261847f * r + 0.0083572313f;
  p = p * r + 0.0416665546f;
  p = p * r + 0.166666306f;
  return p * r + 0.5f;
}

/*! \brief exp(x); zero below -104, as float32 has no such number. */
DNNL_INLINE float ExpOf(float x) {
  // To subtract this leaves the nearest integer in the lowest bits of a sum.
  constexpr float kInteger = 0x1.8p23f;
  // A comparison with NaN is false: it stays.
  x = x > 89.f ? 89.f : x;
  x = x < -104.f ? -104.f : x;
  const float shifted = x * 0x1.715476p0f + kInteger;
  const float n = shifted - kInteger;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  const float p = (ExpPolynomial(r) * r + 1.f) * r + 1.f;
  // 2^n in two factors: n is from -150 to 128, and a result may be subnormal.
  const uint32_t exponent = BitsOf(shifted) - BitsOf(kInteger);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(exponent) >> 1);
  return p * FloatOf((half + 127) << 23) * FloatOf((exponent - half + 127) << 23);
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_EXP_H_
