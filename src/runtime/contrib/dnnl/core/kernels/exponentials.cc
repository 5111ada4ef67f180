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
 * \file src/runtime/contrib/dnnl/core/kernels/exponentials.cc
 * \brief The exponential function and the sigmoid, in vectors.
 */
#include "functions.h"
#include "isa.h"
#include "vectors.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

struct ExpFunction {
  template <int W>
  static DNNL_INLINE Floats<W> Of(const Floats<W>& x) {
    return Exp<W>(x);
  }
};

struct SigmoidFunction {
  template <int W>
  static DNNL_INLINE Floats<W> Of(const Floats<W>& x) {
    return 1.f / (1.f + Exp<W>(-x));
  }
};

template <int W, typename Function>
DNNL_INLINE void Compute(const float* src, float* dst, int64_t count) {
  // Independent vectors hide the latency of the polynomial.
  constexpr int kVectors = 4;
  int64_t i = 0;
  for (; i + kVectors * W <= count; i += kVectors * W) {
    Floats<W> results[kVectors];
    DNNL_UNROLL
    for (int k = 0; k < kVectors; ++k) {
      results[k] = Function::template Of<W>(Load<W>(src + i + k * W));
    }
    DNNL_UNROLL
    for (int k = 0; k < kVectors; ++k) Store<W>(results[k], dst + i + k * W);
  }
  for (; i < count; i += W) {
    const int64_t rest = count - i < W ? count - i : W;
    float block[W];
    Store<W>(Function::template Of<W>(LoadSome<W>(src + i, rest)), block);
    std::memcpy(dst + i, block, rest * sizeof(float));
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

}  // namespace

void Exp(const float* src, float* dst, int64_t count) {
  static const FloatFunction code = OwnCode<ExpFunction>();
  code(src, dst, count);
}

void Sigmoid(const float* src, float* dst, int64_t count) {
  static const FloatFunction code = OwnCode<SigmoidFunction>();
  code(src, dst, count);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
