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
 * \file src/runtime/contrib/dnnl/core/kernels/vectors.h
 * \brief Vectors of a number of floats, for functions that are compiled for several CPUs.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_VECTORS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_VECTORS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__GNUC__) && !defined(__clang__)
// All functions with vectors as parameters are inlined: they have no ABI.
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#include "exp.h"

namespace tvm::runtime::contrib::dnnl_backend {

template <int W>
struct VectorTypes {
  typedef float Floats __attribute__((vector_size(4 * W)));
  typedef int32_t Ints __attribute__((vector_size(4 * W)));
  typedef uint32_t Bits __attribute__((vector_size(4 * W)));
  typedef uint16_t Halves __attribute__((vector_size(2 * W)));
};
template <int W>
using Floats = typename VectorTypes<W>::Floats;
template <int W>
using Ints = typename VectorTypes<W>::Ints;
template <int W>
using Bits = typename VectorTypes<W>::Bits;

template <int W>
DNNL_INLINE Bits<W> BitsOf(const Floats<W>& values) {
  Bits<W> bits;
  std::memcpy(&bits, &values, sizeof(bits));
  return bits;
}

template <int W>
DNNL_INLINE Floats<W> FloatsOf(const Bits<W>& bits) {
  Floats<W> values;
  std::memcpy(&values, &bits, sizeof(values));
  return values;
}

template <int W>
DNNL_INLINE Floats<W> Filled(float value) {
  return Floats<W>{} + value;
}

/*! \brief Load contiguous floats. */
template <int W>
DNNL_INLINE Floats<W> Load(const float* src) {
  Floats<W> result;
  std::memcpy(&result, src, sizeof(result));
  return result;
}

/*! \brief Load contiguous numbers in bfloat16. */
template <int W>
DNNL_INLINE Floats<W> Load(const uint16_t* src) {
  using Types = VectorTypes<W>;
  typename Types::Halves halves;
  std::memcpy(&halves, src, sizeof(halves));
  return FloatsOf<W>(__builtin_convertvector(halves, Bits<W>) << 16);
}

/*! \brief Load fewer numbers than a vector has; the others become zero. */
template <int W, typename T>
DNNL_INLINE Floats<W> LoadSome(const T* src, int64_t count) {
  T block[W] = {};
  for (int64_t i = 0; i < count; ++i) block[i] = src[i];
  return Load<W>(block);
}

template <int W>
DNNL_INLINE void Store(Floats<W> vector, float* dst) {
  std::memcpy(dst, &vector, sizeof(vector));
}

/*! \brief The nearest bfloat16, of two the even one; NaN stays NaN. */
DNNL_INLINE uint16_t ToBFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 64);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/*! \brief Store a vector as numbers in bfloat16, rounded as by ToBFloat16. */
template <int W>
DNNL_INLINE void Store(Floats<W> vector, uint16_t* dst) {
  using Types = VectorTypes<W>;
  const Bits<W> bits = BitsOf<W>(vector), nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const Bits<W> rounded = vector == vector ? nearest : bits >> 16 | 64;
  const auto halves = __builtin_convertvector(rounded, typename Types::Halves);
  std::memcpy(dst, &halves, sizeof(halves));
}

/*! \brief Lanes of two vectors by number: those of `b` come after those of `a`. */
template <int W, int... kLanes>
DNNL_INLINE Floats<W> Lanes(Floats<W> a, Floats<W> b, std::integer_sequence<int, kLanes...>) {
#ifdef __clang__
  return __builtin_shufflevector(a, b, kLanes...);
#else
  return __builtin_shuffle(a, b, typename VectorTypes<W>::Ints{kLanes...});
#endif
}

/*! \brief The lanes that a constexpr function `At::Lane(i)` chooses. */
template <int W, typename At, int... kIndices>
DNNL_INLINE Floats<W> LanesAt(Floats<W> a, Floats<W> b, std::integer_sequence<int, kIndices...>) {
  return Lanes<W>(a, b, std::integer_sequence<int, At::Lane(kIndices)...>());
}
template <int W, typename At>
DNNL_INLINE Floats<W> LanesAt(Floats<W> a, Floats<W> b) {
  return LanesAt<W, At>(a, b, std::make_integer_sequence<int, W>());
}

/*! \brief From two vectors, groups of lanes of which each is to be summed: their halves. */
template <int W, int kGroup, bool kUpper>
struct HalfOfGroups {
  static constexpr int Lane(int i) {
    const int half = kGroup / 2, groups = W / kGroup, group = i / half;
    return group / groups * W + group % groups * kGroup + i % half + (kUpper ? half : 0);
  }
};

/*! \brief Reduce the lanes of each of W vectors by a function of two; the results as one vector. */
template <int W, typename Function, int kGroup = W>
DNNL_INLINE Floats<W> ReduceLanes(Floats<W>* vectors) {
  if constexpr (kGroup == 1) {
    return vectors[0];
  } else {
    for (int i = 0; i < kGroup / 2; ++i) {
      const Floats<W> a = vectors[2 * i], b = vectors[2 * i + 1];
      vectors[i] = Function::template Of<W>(LanesAt<W, HalfOfGroups<W, kGroup, false>>(a, b),
                                            LanesAt<W, HalfOfGroups<W, kGroup, true>>(a, b));
    }
    return ReduceLanes<W, Function, kGroup / 2>(vectors);
  }
}

struct Sum {
  template <int W>
  static DNNL_INLINE Floats<W> Of(Floats<W> a, Floats<W> b) {
    return a + b;
  }
};

/*! \brief The larger lanes; those of `b` where one is NaN. */
struct Largest {
  template <int W>
  static DNNL_INLINE Floats<W> Of(Floats<W> a, Floats<W> b) {
    return a > b ? a : b;
  }
};

/*! \brief Exchange blocks of lanes between two vectors. */
template <int W, int kStep, bool kUpper>
struct ExchangedLanes {
  static constexpr int Lane(int i) {
    const bool from_second = (i & kStep) != 0;
    if (kUpper) return from_second ? W + i : i + kStep;
    return from_second ? W + i - kStep : i;
  }
};

/*! \brief Transpose W vectors. */
template <int W, int kStep = W / 2>
DNNL_INLINE void Transpose(Floats<W>* rows) {
  if constexpr (kStep > 0) {
    for (int i = 0; i < W; ++i) {
      if (i & kStep) continue;
      const Floats<W> a = rows[i], b = rows[i + kStep];
      rows[i] = LanesAt<W, ExchangedLanes<W, kStep, false>>(a, b);
      rows[i + kStep] = LanesAt<W, ExchangedLanes<W, kStep, true>>(a, b);
    }
    Transpose<W, kStep / 2>(rows);
  }
}

/*! \brief Lanes in a cycle. */
template <int W, int kStep>
struct RotatedLanes {
  static constexpr int Lane(int i) { return (i + kStep) % W; }
};

template <int W, int kStep = W / 2>
DNNL_INLINE float SumOf(Floats<W> vector) {
  if constexpr (kStep > 0) {
    return SumOf<W, kStep / 2>(vector + LanesAt<W, RotatedLanes<W, kStep>>(vector, vector));
  } else {
    return vector[0];
  }
}

/*! \brief The largest lane; there must be no NaN. */
template <int W, int kStep = W / 2>
DNNL_INLINE float LargestOf(Floats<W> vector) {
  if constexpr (kStep > 0) {
    const Floats<W> rotated = LanesAt<W, RotatedLanes<W, kStep>>(vector, vector);
    return LargestOf<W, kStep / 2>(Largest::Of<W>(vector, rotated));
  } else {
    return vector[0];
  }
}

/*! \brief exp(x) as factor * 2^n; n is in the lowest bits of the others, which are any of a NaN. */
template <int W>
struct SplitExponential {
  Floats<W> factor;
  typename VectorTypes<W>::Ints bits;
};

/*! \brief exp(x) of -150 < x / log(2) <= 128, within 4e-7, relatively. */
template <int W>
DNNL_INLINE SplitExponential<W> SplitExp(const Floats<W>& x) {
  // To subtract this leaves the nearest integer in the lowest bits of a sum.
  constexpr float kInteger = 0x1.8p23f;
  const Floats<W> shifted = x * 0x1.715476p0f + kInteger;
  const Floats<W> n = shifted - kInteger;
  const Floats<W> r = (x - n * kLn2High) - n * kLn2Low;
  SplitExponential<W> split{(ExpPolynomial(r) * r + 1.f) * r + 1.f, {}};
  std::memcpy(&split.bits, &shifted, sizeof(split.bits));
  return split;
}

/*! \brief exp(x) within 4e-7, relatively; 0 below -104; NaN stays. */
template <int W>
DNNL_INLINE Floats<W> Exp(const Floats<W>& argument) {
  Floats<W> x = argument;
  using Ints = typename VectorTypes<W>::Ints;
  x = x > 89.f ? Filled<W>(89.f) : x;
  x = x < -104.f ? Filled<W>(-104.f) : x;
  const auto [factor, bits] = SplitExp<W>(x);
  // 2^n in two factors: n is from -150 to 128, and a result may be subnormal.
  const Ints exponent = bits - 0x4b400000, half = exponent >> 1;
  const Ints first = (half + 127) << 23, second = (exponent - half + 127) << 23;
  Floats<W> factors[2];
  std::memcpy(&factors[0], &first, sizeof(first));
  std::memcpy(&factors[1], &second, sizeof(second));
  return factor * factors[0] * factors[1];
}

/*! \brief exp(x) of x <= 0 within 4e-7, relatively; 0 below -87, where it is less than normal
 * numbers are; NaN stays. */
template <int W>
DNNL_INLINE Floats<W> ExpOfNegative(const Floats<W>& x) {
  const auto [factor, bits] = SplitExp<W>(x);
  // Without a sign, as the bits of a NaN may be the largest integer.
  const Bits<W> exponent = (__builtin_convertvector(bits, Bits<W>) + 127) << 23;
  const Floats<W> result = factor * FloatsOf<W>(exponent);
  return x < -87.f ? Filled<W>(0.f) : result;
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_VECTORS_H_
