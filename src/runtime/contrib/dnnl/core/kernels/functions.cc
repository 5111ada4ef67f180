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
 * \brief Functions that oneDNN lacks, computes wrongly of NaN, or not accurately or fast enough.
 */
#include "functions.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "isa.h"
#include "rounded_vectors.h"
#include "vectors.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

template <int W>
DNNL_INLINE Floats<W> Clipped(const Floats<W>& x, float limit) {
  // Comparisons with NaN are false: it stays.
  const Floats<W> below = x > limit ? Filled<W>(limit) : x;
  return below < -limit ? Filled<W>(-limit) : below;
}

// Functions of vectors. `Correct` replaces results of arguments that a function is not made for.
struct OfAllArguments {
  template <int W>
  static DNNL_INLINE void Correct(const float*, int, Floats<W>*) {}
};

struct ExpFunction : OfAllArguments {
  template <int W>
  static DNNL_INLINE Floats<W> Of(const Floats<W>& x) {
    return dnnl_backend::Exp<W>(x);
  }
};

struct SigmoidFunction : OfAllArguments {
  template <int W>
  static DNNL_INLINE Floats<W> Of(const Floats<W>& x) {
    // exp(-|x|) / (1 + exp(-|x|)) of negative numbers.
    const Floats<W> t = ExpOfNegative<W>(x > 0.f ? -x : x);
    return (x < 0.f ? t : Filled<W>(1.f)) / (1.f + t);
  }
};

struct LogFunction : OfAllArguments {
  template <int W>
  static DNNL_INLINE Floats<W> Of(const Floats<W>& x) {
    // x = m * 2^e with m from sqrt(1/2) to sqrt(2); subnormal numbers are scaled first.
    constexpr uint32_t kSqrtHalf = 0x3f3504f3;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const Ints<W> is_subnormal = x < std::numeric_limits<float>::min();
    const Bits<W> bits = BitsOf<W>(is_subnormal ? x * 0x1p23f : x) - kSqrtHalf;
    const Floats<W> exponent =
        __builtin_convertvector(__builtin_convertvector(bits, Ints<W>) >> 23, Floats<W>);
    const Floats<W> e = exponent - (is_subnormal ? Filled<W>(23.f) : Filled<W>(0.f));
    const Floats<W> f = FloatsOf<W>((bits & 0x7fffff) + kSqrtHalf) - 1.f;
    // log(1 + f) = f - f^2 / 2 + f^3 * q(f), for f from -0.29 to 0.41.
    const Floats<W> z = f * f;
    Floats<W> q = -0.0771759073f * f + 0.127616956f;
    q = q * f - 0.131261708f;
    q = q * f + 0.141994798f;
    q = q * f - 0.166269919f;
    q = q * f + 0.20001466f;
    q = q * f - 0.250007073f;
    q = q * f + 0.333333268f;
    const Floats<W> result = e * kLn2High + (f + (e * kLn2Low + (f * z * q - 0.5f * z)));
    const Floats<W> limit = x == 0.f ? Filled<W>(-kInfinity) : 0.f * Filled<W>(kInfinity);
    // Infinity and NaN are their own logarithms.
    const Floats<W> of_negative = x <= 0.f ? limit : x;
    return x > 0.f && x < kInfinity ? result : of_negative;
  }
};

struct SoftplusFunction : OfAllArguments {
  template <int W>
  static DNNL_INLINE Floats<W> Of(const Floats<W>& x) {
    // max(x, 0) + log(1 + t) with t = exp(-|x|); log(1 + t) = 2 * atanh(t / (2 + t)).
    const Floats<W> t = ExpOfNegative<W>(x > 0.f ? -x : x);
    const Floats<W> s = t / (2.f + t);
    const Floats<W> z = s * s;
    Floats<W> p = z / 17 + 1.f / 15;
    p = p * z + 1.f / 13;
    p = p * z + 1.f / 11;
    p = p * z + 1.f / 9;
    p = p * z + 1.f / 7;
    p = p * z + 1.f / 5;
    p = p * z + 1.f / 3;
    return (x > 0.f ? x : Filled<W>(0.f)) + 2.f * (s + s * z * p);
  }
};

/*! \brief sin(x + kQuarters * pi / 2). */
template <uint32_t kQuarters>
struct SineFunction {
  static constexpr float kLargestAngle = 12800.f;

  template <int W>
  static DNNL_INLINE Floats<W> Of(const Floats<W>& x) {
    constexpr float kInteger = 0x1.8p23f;
    // pi / 2 as the sum of two numbers of 11 bits, of which multiples up to 2^13 are exact, and the
    // rest.
    constexpr float kHigh = 0x1.92p0f, kMiddle = 0x1.fb4p-12f, kLow = 0x1.4442d2p-24f;
    const Floats<W> shifted = x * 0.636619772f + kInteger;
    const Floats<W> n = shifted - kInteger;
    const Floats<W> r = ((x - n * kHigh) - n * kMiddle) - n * kLow;
    const Bits<W> quadrant = BitsOf<W>(shifted) + kQuarters;
    // sin(r) = r * (1 + z * p(z)) and cos(r) = 1 - z / 2 + z * z * q(z) with z = r * r.
    const Floats<W> z = r * r;
    Floats<W> p = 2.72493526e-06f * z - 0.000198400827f;
    p = p * z + 0.00833333191f;
    p = p * z - 0.166666672f;
    Floats<W> q = 2.45474857e-05f * z - 0.00138883013f;
    q = q * z + 0.0416666642f;
    const Floats<W> sine = r * (1.f + z * p);
    const Floats<W> cosine = (1.f - 0.5f * z) + z * z * q;
    const Floats<W> magnitude = (quadrant & 1) != 0 ? cosine : sine;
    return FloatsOf<W>(BitsOf<W>(magnitude) ^ (quadrant & 2) << 30);
  }

  /*! \brief Replace those of infinities, NaN, and angles that float32 is not enough to reduce. */
  template <int W>
  static DNNL_INLINE void Correct(const float* src, int count, Floats<W>* results) {
    Ints<W> is_small = Ints<W>{} - 1;
    for (int i = 0; i < count; i += W) {
      const Floats<W> x = Load<W>(src + i);
      is_small &= x <= kLargestAngle && x >= -kLargestAngle;
    }
    uint64_t words[W / 2];
    std::memcpy(words, &is_small, sizeof(words));
    if (std::all_of(words, words + W / 2, [](uint64_t word) { return word == ~uint64_t{0}; })) {
      return;
    }
    for (int i = 0; i < count; ++i) {
      const double x = src[i];
      if (std::abs(x) <= kLargestAngle) continue;
      results[i / W][i % W] = static_cast<float>(kQuarters == 0 ? std::sin(x) : std::cos(x));
    }
  }
};

struct TanhFunction : OfAllArguments {
  template <int W>
  static DNNL_INLINE Floats<W> Of(const Floats<W>& argument) {
    // Of 8 it is 1 - 2e-7.
    const Floats<W> x = Clipped<W>(argument, 8.f);
    // x * p(x^2) / q(x^2), a minimax quotient.
    const Floats<W> z = x * x;
    Floats<W> p = 2.35098954e-11f * z - 1.47048551e-08f;
    p = p * z + 9.87890871e-06f;
    p = p * z + 0.00298589165f;
    p = p * z + 0.129792526f;
    Floats<W> q = 0.000237207205f * z + 0.0240280498f;
    q = q * z + 0.463125676f;
    return x * (p * z + 1.f) / (q * z + 1.f);
  }
};

struct ErfFunction : OfAllArguments {
  template <int W>
  static DNNL_INLINE Floats<W> Of(const Floats<W>& argument) {
    // Of 4 it is 1 - 2e-8.
    const Floats<W> x = Clipped<W>(argument, 4.f);
    // x * p(x^2) / q(x^2), a minimax quotient.
    const Floats<W> z = x * x;
    Floats<W> p = 1.9867862e-06f * z + 0.00028456622f;
    p = p * z + 0.0038833446f;
    p = p * z + 0.05310175f;
    p = p * z + 0.19354504f;
    Floats<W> q = 3.7420232e-05f * z + 0.0011855719f;
    q = q * z + 0.0152072515f;
    q = q * z + 0.11534999f;
    q = q * z + 0.50485736f;
    return x * (p * z + 1.1283791f) / (q * z + 1.f);
  }
};

struct GeluTanhFunction : OfAllArguments {
  template <int W>
  static DNNL_INLINE Floats<W> Of(const Floats<W>& x) {
    // sqrt(2 / pi) * (x + 0.044715 * x^3)
    const Floats<W> angle = x * (0.797884561f + 0.0356774081f * x * x);
    const Floats<W> result = 0.5f * x * (1.f + TanhFunction::Of<W>(angle));
    // As for all others, -inf gives NaN.
    return x < -5.2f ? x * 0.f : result;
  }
};

template <int W, typename Function>
DNNL_INLINE void Compute(const float* src, float* dst, int64_t count) {
  // Independent vectors hide the latency of a polynomial.
  constexpr int kVectors = 4, kBlock = kVectors * W;
  for (; count >= kBlock; count -= kBlock, src += kBlock, dst += kBlock) {
    Floats<W> results[kVectors];
    DNNL_UNROLL
    for (int k = 0; k < kVectors; ++k) {
      results[k] = Function::template Of<W>(Load<W>(src + k * W));
    }
    Function::template Correct<W>(src, kBlock, results);
    DNNL_UNROLL
    for (int k = 0; k < kVectors; ++k) Store<W>(results[k], dst + k * W);
  }
  for (; count > 0; count -= W, src += W, dst += W) {
    const int64_t size = std::min<int64_t>(count, W);
    float block[W] = {};
    std::memcpy(block, src, size * sizeof(float));
    Floats<W> result = Function::template Of<W>(Load<W>(block));
    Function::template Correct<W>(block, W, &result);
    Store<W>(result, block);
    std::memcpy(dst, block, size * sizeof(float));
  }
}

template <typename Function>
void ComputeOnAny(const float* src, float* dst, int64_t count) {
  Compute<4, Function>(src, dst, count);
}
template <typename Function>
DNNL_AVX2 void ComputeOnAVX2(const float* src, float* dst, int64_t count) {
  Compute<8, Function>(src, dst, count);
}
template <typename Function>
DNNL_AVX512 void ComputeOnAVX512(const float* src, float* dst, int64_t count) {
  Compute<16, Function>(src, dst, count);
}

template <typename Function>
FloatFunction OwnCode() {
  return CodeForCPU<FloatFunction>(ComputeOnAny<Function>, ComputeOnAVX2<Function>,
                                   ComputeOnAVX512<Function>);
}

DNNL_INLINE void ConvertOne(const uint16_t* src, float* dst) {
  *dst = FloatOf(static_cast<uint32_t>(*src) << 16);
}
DNNL_INLINE void ConvertOne(const float* src, uint16_t* dst) { *dst = ToBFloat16(*src); }

template <int W, typename From, typename To>
DNNL_INLINE void Convert(const From* src, To* dst, int64_t count) {
  for (; count >= W; count -= W, src += W, dst += W) Store<W>(Load<W>(src), dst);
  for (int64_t i = 0; i < count; ++i) ConvertOne(src + i, dst + i);
}

template <typename From, typename To>
void ConvertOnAny(const From* src, To* dst, int64_t count) {
  Convert<4>(src, dst, count);
}
template <typename From, typename To>
DNNL_AVX2 void ConvertOnAVX2(const From* src, To* dst, int64_t count) {
  Convert<8>(src, dst, count);
}
template <typename From, typename To>
DNNL_AVX512 void ConvertOnAVX512(const From* src, To* dst, int64_t count) {
  Convert<16>(src, dst, count);
}

#if DNNL_HAS_PAIRS
__attribute__((target("avx512f,avx512bf16,avx2,fma"))) void RoundOnAVX512BF16(const float* src,
                                                                              uint16_t* dst,
                                                                              int64_t count) {
  constexpr int kLanes = 16;
  for (; count >= kLanes; count -= kLanes, src += kLanes, dst += kLanes) {
    StoreRounded<kLanes>(Load<kLanes>(src), dst);
  }
  for (int64_t i = 0; i < count; ++i) dst[i] = ToBFloat16(src[i]);
}
#endif

/*! \brief The code of RoundToBFloats. */
auto RoundingCode() {
#if DNNL_HAS_PAIRS
  if (HasISA(ISA::kAVX512BF16)) return RoundOnAVX512BF16;
#endif
  return CodeForCPU(ConvertOnAny<float, uint16_t>, ConvertOnAVX2<float, uint16_t>,
                    ConvertOnAVX512<float, uint16_t>);
}

DNNL_INLINE float SignOf(float x) { return x > 0.f ? 1.f : x < 0.f ? -1.f : 0.f; }

}  // namespace

/*! \brief alpha * x^(quarters / 4), by roots and products; quarters is at most kMostQuarters. */
DNNL_FOR_CPUS void PowOfQuarters(float alpha, int quarters, const float* src, float* dst,
                                 int64_t count) {
  // The builtin is one instruction; std::sqrt is a call, as it is compiled for any CPU.
  constexpr int64_t kBlock = 128;
  const int powers = std::abs(quarters);
  for (; count > 0; count -= kBlock, src += kBlock, dst += kBlock) {
    const int size = static_cast<int>(std::min(count, kBlock));
    float block[kBlock];
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

#define DNNL_FUNCTION(NAME, FUNCTION)                      \
  void NAME(const float* src, float* dst, int64_t count) { \
    static const FloatFunction code = OwnCode<FUNCTION>(); \
    code(src, dst, count);                                 \
  }

DNNL_FUNCTION(Cos, SineFunction<1>)
DNNL_FUNCTION(Erf, ErfFunction)
DNNL_FUNCTION(Exp, ExpFunction)
DNNL_FUNCTION(GeluTanh, GeluTanhFunction)
DNNL_FUNCTION(Log, LogFunction)
DNNL_FUNCTION(Sigmoid, SigmoidFunction)
DNNL_FUNCTION(Sin, SineFunction<0>)
DNNL_FUNCTION(Softplus, SoftplusFunction)
DNNL_FUNCTION(Tanh, TanhFunction)

// One instruction each from SSE4.1 on; the builtins are calls on older CPUs.
#define DNNL_SIMPLE_FUNCTION(NAME, OF)                                   \
  DNNL_FOR_CPUS void NAME(const float* src, float* dst, int64_t count) { \
    DNNL_INDEPENDENT                                                     \
    for (int64_t i = 0; i < count; ++i) dst[i] = OF(src[i]);             \
  }

DNNL_SIMPLE_FUNCTION(Ceil, __builtin_ceilf)
DNNL_SIMPLE_FUNCTION(Floor, __builtin_floorf)
DNNL_SIMPLE_FUNCTION(Round, __builtin_rintf)
DNNL_SIMPLE_FUNCTION(Sign, SignOf)
DNNL_SIMPLE_FUNCTION(Trunc, __builtin_truncf)

DNNL_FOR_CPUS void NormalizeChannel(const ChannelFactors& factors, const float* src, float* dst,
                                    int64_t count) {
  const auto [mean, scale, shift, lowest] = factors;
  DNNL_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    const float result = (src[i] - mean) * scale + shift;
    dst[i] = result < lowest ? lowest : result;
  }
}

void WidenBFloats(const uint16_t* src, float* dst, int64_t count) {
  static const auto code = CodeForCPU(ConvertOnAny<uint16_t, float>, ConvertOnAVX2<uint16_t, float>,
                                      ConvertOnAVX512<uint16_t, float>);
  code(src, dst, count);
}

void RoundToBFloats(const float* src, uint16_t* dst, int64_t count) {
  static const auto code = RoundingCode();
  code(src, dst, count);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
