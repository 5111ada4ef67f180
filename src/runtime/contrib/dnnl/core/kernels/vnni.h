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
 * \file src/runtime/contrib/dnnl/core/kernels/vnni.h
 * \brief Compiles functions for CPUs with VNNI, the dot products of 8 bits. To be included last.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_VNNI_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_VNNI_H_

#include <cstdint>

#include "isa.h"

#if defined(__GNUC__) && defined(__x86_64__)
#define DNNL_HAS_VNNI 1
#define DNNL_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#include <immintrin.h>
#else
#define DNNL_HAS_VNNI 0
#define DNNL_VNNI
#endif

#include "cpu_clones.h"

#define DNNL_VNNI_INLINE DNNL_VNNI DNNL_INLINE

#if defined(__GNUC__) && !defined(__clang__)
// Intrinsics of GCC 12 leave lanes undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Whether this CPU has VNNI for AVX-512, and ONEDNN_MAX_CPU_ISA allows it. */
inline bool HasVNNI() { return DNNL_HAS_VNNI != 0 && HasISA(ISA::kAVX512VNNI); }

/*! \brief A mask of as many of the lowest bits as elements are left. */
template <typename Mask>
DNNL_INLINE Mask MaskOf(int64_t left) {
  constexpr int kBits = 8 * sizeof(Mask);
  if (left >= kBits) return static_cast<Mask>(~Mask{0});
  return left <= 0 ? Mask{0} : static_cast<Mask>((Mask{1} << left) - 1);
}

#if DNNL_HAS_VNNI

/*! \brief Elements of 4 bits in the lower halves of bytes. */
DNNL_VNNI_INLINE __m512i LowerHalves(__m512i bytes) {
  return _mm512_and_si512(bytes, _mm512_set1_epi8(15));
}
/*! \brief Elements of 4 bits in the upper halves of bytes. */
DNNL_VNNI_INLINE __m512i UpperHalves(__m512i bytes) {
  return LowerHalves(_mm512_srli_epi16(bytes, 4));
}

#endif

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_VNNI_H_
