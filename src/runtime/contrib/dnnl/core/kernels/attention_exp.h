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
 * \file src/runtime/contrib/dnnl/core/kernels/attention_exp.h
 * \brief The exponentials of scores. To be included after attention_pairs.h.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_EXP_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_EXP_H_

#include "attention_pairs.h"
#include "vectors.h"

namespace tvm::runtime::contrib::dnnl_backend {

#if DNNL_HAS_PAIRS
/*! \brief 2^x within 3e-7 by a polynomial of degree 5, or 5e-6 by one of degree 4; 1 for 0. */
template <int W, int kDegree>
DNNL_INLINE Floats<W> Exp2OfAVX512(const Floats<W>& x) {
  Floats<W> r, result;
  // What rounding down leaves: 2^x is 2^r, scaled by 2^floor(x).
  asm("vreduceps $9, %1, %0" : "=v"(r) : "v"(x));
  Floats<W> p;
  if constexpr (kDegree == 5) {
    p = r * 0x1.eb646cp-10f + 0x1.26f02cp-7f;
    p = p * r + 0x1.c93584p-5f;
    p = p * r + 0x1.ebd9cep-3f;
    p = p * r + 0x1.62e4bcp-1f;
  } else {
    p = r * 0x1.b7f196p-7f + 0x1.abfb3p-5f;
    p = p * r + 0x1.ee23e2p-3f;
    p = p * r + 0x1.62d6ccp-1f;
  }
  p = p * r + 1.f;
  asm("vscalefps %2, %1, %0" : "=v"(result) : "v"(p), "v"(x));
  return result;
}
#endif

/*!
 * \brief exp(x) of x <= 0 within 4e-7, relatively, as ExpOfNegative; 1 for 0. With AVX2, which has
 *        FMA, in a shorter chain of steps: a polynomial of degree 5 in independent parts.
 */
template <int W, int kDegree>
DNNL_INLINE Floats<W> ExpOfScore(const Floats<W>& x) {
#if DNNL_HAS_PAIRS
  if constexpr (W == 16) {
    const Floats<W> result = Exp2OfAVX512<W, kDegree>(x * 0x1.715476p0f);
    return x < -87.f ? Filled<W>(0.f) : result;
  }
#endif
  if constexpr (W == 8) {
    constexpr float kInteger = 0x1.8p23f;
    const Floats<W> shifted = x * 0x1.715476p0f + kInteger;
    const Floats<W> r = x - (shifted - kInteger) * 0x1.62e43p-1f, square = r * r;
    const Floats<W> high = r * 0x1.10627cp-7f + 0x1.572a08p-5f;
    const Floats<W> middle = r * 0x1.5557aep-3f + 0x1.fffdfcp-2f;
    const Floats<W> factor = (high * square + middle) * square + (r + 1.f);
    const Floats<W> result = factor * FloatsOf<W>((BitsOf<W>(shifted) + 127) << 23);
    return x < -87.f ? Filled<W>(0.f) : result;
  } else {
    return ExpOfNegative<W>(x);
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_EXP_H_
