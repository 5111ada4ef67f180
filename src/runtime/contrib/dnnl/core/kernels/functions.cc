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
 * \file src/runtime/contrib/dnnl/core/kernels/functions.cc
 * \brief Functions that oneDNN lacks, computes wrongly of NaN, or not accurately enough.
 */
#include "functions.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu_clones.h"
#include "exp.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*!
 * \brief So many results are in a buffer, which no source overlaps: their loop becomes vectors. GCC
 * unrolls loops of up to 16 iterations before that, with branches.
 */
constexpr int64_t kFunctionBlock = 128;

DNNL_INLINE float LogOf(float x) {
  // x = m * 2^e with m from sqrt(1/2) to sqrt(2); subnormal numbers are scaled first.
  constexpr uint32_t kSqrtHalf = 0x3f3504f3;
  const bool is_subnormal = x < std::numeric_limits<float>::min();
  const uint32_t bits = BitsOf(is_subnormal ? x * 0x1p23f : x) - kSqrtHalf;
  const float e =
      static_cast<float>(static_cast<int32_t>(bits) >> 23) - (is_subnormal ? 23.f : 0.f);
  const float f = FloatOf((bits & 0x7fffff) + kSqrtHalf) - 1.f;
  // log(1 + f) = f - f^2 / 2 + f^3 * q(f), for f from -0.29 to 0.41.
  const float z = f * f;
  float q = -0.0771759073f;
  q = q * f + 0.127616956f;
  q = q * f - 0.131261708f;
  q = q * f + 0.141994798f;
  q = q * f - 0.166269919f;
  q = q * f + 0.20001466f;
  q = q * f - 0.250007073f;
  q = q * f + 0.333333268f;
  const float result = e * kLn2High + (f + (e * kLn2Low + (f * z * q - 0.5f * z)));
  const float limit =
      x == 0.f ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  // Infinity and NaN are their own logarithms.
  return x > 0.f ? (x <= std::numeric_limits<float>::max() ? result : x) : x == x ? limit : x;
}

DNNL_INLINE float SoftplusOf(float x) {
  // max(x, 0) + log(1 + t) with t = exp(-|x|); log(1 + t) = 2 * atanh(t / (2 + t)).
  const float t = ExpOf(x > 0.f ? -x : x);
  const float s = t / (2.f + t);
  const float z = s * s;
  float p = 1.f / 17;
  p = p * z + 1.f / 15;
  p = p * z + 1.f / 13;
  p = p * z + 1.f / 11;
  p = p * z + 1.f / 9;
  p = p * z + 1.f / 7;
  p = p * z + 1.f / 5;
  p = p * z + 1.f / 3;
  return (x > 0.f ? x : 0.f) + 2.f * (s + s * z * p);
}

/*! \brief The nearest integer; halves become even. Zeros keep their sign. */
DNNL_INLINE float RoundOf(float x) {
  // A float that large has no fraction.
  constexpr float kInteger = 0x1p23f;
  const uint32_t sign = BitsOf(x) & 0x80000000;
  const float magnitude = FloatOf(BitsOf(x) ^ sign);
  const float rounded = (magnitude + kInteger) - kInteger;
  // Infinity and NaN stay.
  return FloatOf(BitsOf(magnitude < kInteger ? rounded : magnitude) | sign);
}

/*! \brief A number with the sign of another one, which has the same sign or is near zero. */
DNNL_INLINE float WithSignOf(float x, float number) {
  return FloatOf((BitsOf(number) & 0x7fffffff) | (BitsOf(x) & 0x80000000));
}

DNNL_INLINE float FloorOf(float x) {
  const float near = RoundOf(x);
  return WithSignOf(x, near > x ? near - 1.f : near);
}

DNNL_INLINE float CeilOf(float x) {
  const float near = RoundOf(x);
  return WithSignOf(x, near < x ? near + 1.f : near);
}

DNNL_INLINE float TruncOf(float x) {
  const float magnitude = FloatOf(BitsOf(x) & 0x7fffffff);
  const float near = RoundOf(magnitude);
  return WithSignOf(x, near > magnitude ? near - 1.f : near);
}

/*! \brief sin(x + kQuarters * pi / 2), where |x| is at most kLargestAngle. */
template <uint32_t kQuarters>
DNNL_INLINE float SineOf(float x) {
  constexpr float kInteger = 0x1.8p23f;
  // pi / 2 as the sum of two numbers of 11 bits, of which multiples up to 2^13 are exact, and the
  // rest.
  constexpr float kHigh = 0x1.92p0f, kMiddle = 0x1.fb4p-12f, kLow = 0x1.4442d2p-24f;
  const float shifted = x * 0.636619772f + kInteger;
  const float n = shifted - kInteger;
  const float r = ((x - n * kHigh) - n * kMiddle) - n * kLow;
  const uint32_t quadrant = BitsOf(shifted) + kQuarters;
  // sin(r) = r * (1 + z * p(z)) and cos(r) = 1 - z / 2 + z * z * q(z) with z = r * r.
  const float z = r * r;
  float p = 2.72493526e-06f;
  p = p * z - 0.000198400827f;
  p = p * z + 0.00833333191f;
  p = p * z - 0.166666672f;
  float q = 2.45474857e-05f;
  q = q * z - 0.00138883013f;
  q = q * z + 0.0416666642f;
  const float sine = r * (1.f + z * p);
  const float cosine = (1.f - 0.5f * z) + z * z * q;
  return FloatOf(BitsOf((quadrant & 1) != 0 ? cosine : sine) ^ (quadrant & 2) << 30);
}
constexpr float kLargestAngle = 12800.f;

DNNL_INLINE float SinOf(float x) { return SineOf<0>(x); }
DNNL_INLINE float CosOf(float x) { return SineOf<1>(x); }

/*! \brief For angles so large that float32 is not enough to reduce them; NaN for infinities. */
float SinOfLarge(float x) { return static_cast<float>(std::sin(static_cast<double>(x))); }
float CosOfLarge(float x) { return static_cast<float>(std::cos(static_cast<double>(x))); }
/*! \brief Also of NaN. */
DNNL_INLINE bool IsLarge(float x) { return !(FloatOf(BitsOf(x) & 0x7fffffff) <= kLargestAngle); }

DNNL_INLINE float TanhOf(float x) {
  // Of 8 it is 1 - 2e-7. Comparisons with NaN are false: it stays.
  x = x > 8.f ? 8.f : x;
  x = x < -8.f ? -8.f : x;
  // x * p(x^2) / q(x^2), a minimax quotient.
  const float z = x * x;
  float p = 2.35098954e-11f;
  p = p * z - 1.47048551e-08f;
  p = p * z + 9.87890871e-06f;
  p = p * z + 0.00298589165f;
  p = p * z + 0.129792526f;
  float q = 0.000237207205f;
  q = q * z + 0.0240280498f;
  q = q * z + 0.463125676f;
  return x * (p * z + 1.f) / (q * z + 1.f);
}

DNNL_INLINE float ErfOf(float x) {
  // Of 4 it is 1 - 2e-8.
  x = x > 4.f ? 4.f : x;
  x = x < -4.f ? -4.f : x;
  // x * p(x^2) / q(x^2), a minimax quotient.
  const float z = x * x;
  float p = 1.9867862e-06f;
  p = p * z + 0.00028456622f;
  p = p * z + 0.0038833446f;
  p = p * z + 0.05310175f;
  p = p * z + 0.19354504f;
  float q = 3.7420232e-05f;
  q = q * z + 0.0011855719f;
  q = q * z + 0.0152072515f;
  q = q * z + 0.11534999f;
  q = q * z + 0.50485736f;
  return x * (p * z + 1.1283791f) / (q * z + 1.f);
}

DNNL_INLINE float GeluTanhOf(float x) {
  // sqrt(2 / pi) * (x + 0.044715 * x^3)
  const float angle = x * (0.797884561f + 0.0356774081f * x * x);
  const float result = 0.5f * x * (1.f + TanhOf(angle));
  // As for all others, -inf gives NaN.
  return x < -5.2f ? x * 0.f : result;
}

DNNL_INLINE void CorrectNone(const float*, int, float*) {}
/*! \brief Replace the results of arguments that are larger than kLargestAngle. */
template <float (*F)(float)>
DNNL_INLINE void CorrectLarge(const float* src, int size, float* results) {
  uint32_t has_large = 0;
  for (int i = 0; i < size; ++i) has_large |= IsLarge(src[i]);
  for (int i = 0; has_large != 0 && i < size; ++i) {
    if (IsLarge(src[i])) results[i] = F(src[i]);
  }
}

DNNL_INLINE float SignOf(float x) { return x > 0.f ? 1.f : x < 0.f ? -1.f : 0.f; }

}  // namespace

#define DNNL_BLOCKWISE(NAME, CORRECT)                                                          \
  DNNL_FOR_CPUS void NAME(const float* src, float* dst, int64_t count) {                       \
    for (; count > 0; count -= kFunctionBlock, src += kFunctionBlock, dst += kFunctionBlock) { \
      const int size = static_cast<int>(std::min(count, kFunctionBlock));                      \
      float block[kFunctionBlock];                                                             \
      for (int i = 0; i < size; ++i) block[i] = NAME##Of(src[i]);                              \
      CORRECT(src, size, block);                                                               \
      std::memcpy(dst, block, size * sizeof(float));                                           \
    }                                                                                          \
  }
#define DNNL_FUNCTION(NAME) DNNL_BLOCKWISE(NAME, CorrectNone)
#define DNNL_PERIODIC_FUNCTION(NAME) DNNL_BLOCKWISE(NAME, CorrectLarge<NAME##OfLarge>)

/*! \brief alpha * x^(quarters / 4), by roots and products; quarters is at most kMostQuarters. */
DNNL_FOR_CPUS void PowOfQuarters(float alpha, int quarters, const float* src, float* dst,
                                 int64_t count) {
  // The builtin is one instruction; std::sqrt is a call, as it is compiled for any CPU.
  const int powers = std::abs(quarters);
  for (; count > 0; count -= kFunctionBlock, src += kFunctionBlock, dst += kFunctionBlock) {
    const int size = static_cast<int>(std::min(count, kFunctionBlock));
    float block[kFunctionBlock];
    std::fill_n(block, size, 1.f);
    if ((powers & 1) != 0) {
      for (int i = 0; i < size; ++i) block[i] = __builtin_sqrtf(__builtin_sqrtf(src[i]));
    }
    if ((powers & 2) != 0) {
      for (int i = 0; i < size; ++i) block[i] *= __builtin_sqrtf(src[i]);
    }
    for (int k = 4; k <= powers; k += 4) {
      for (int i = 0; i < size; ++i) block[i] *= src[i];
    }
    if (quarters < 0) {
      for (int i = 0; i < size; ++i) block[i] = 1.f / block[i];
    }
    for (int i = 0; i < size; ++i) dst[i] = alpha * block[i];
  }
}

void Pow(float alpha, float beta, const float* src, float* dst, int64_t count) {
  constexpr float kMostQuarters = 16;
  const float quarters = 4 * beta;
  if (std::abs(quarters) <= kMostQuarters && quarters == std::trunc(quarters)) {
    return PowOfQuarters(alpha, static_cast<int>(quarters), src, dst, count);
  }
  for (int64_t i = 0; i < count; ++i) dst[i] = alpha * std::pow(src[i], beta);
}

DNNL_FUNCTION(Ceil)
DNNL_PERIODIC_FUNCTION(Cos)
DNNL_FUNCTION(Erf)
DNNL_FUNCTION(Floor)
DNNL_FUNCTION(GeluTanh)
DNNL_FUNCTION(Log)
DNNL_FUNCTION(Round)
DNNL_FUNCTION(Sign)
DNNL_PERIODIC_FUNCTION(Sin)
DNNL_FUNCTION(Softplus)
DNNL_FUNCTION(Tanh)
DNNL_FUNCTION(Trunc)

}  // namespace tvm::runtime::contrib::dnnl_backend
