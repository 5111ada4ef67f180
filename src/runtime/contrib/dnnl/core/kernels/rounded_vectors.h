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
 * \file src/runtime/contrib/dnnl/core/kernels/rounded_vectors.h
 * \brief Vectors that are rounded to bfloat16 by AVX512_BF16.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ROUNDED_VECTORS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ROUNDED_VECTORS_H_

#include <cstdint>
#include <cstring>

#include "vectors.h"

// Clang compiles no instruction of a CPU in a function that is inlined into another one for it.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define DNNL_HAS_PAIRS 1
#else
#define DNNL_HAS_PAIRS 0
#endif

namespace tvm::runtime::contrib::dnnl_backend {

#if DNNL_HAS_PAIRS

/*! \brief Round a vector. */
template <int W>
DNNL_INLINE void StoreRounded(Floats<W> value, uint16_t* dst) {
  typename VectorTypes<W>::Halves halves;
  asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(value));
  std::memcpy(dst, &halves, sizeof(halves));
}

#endif  // DNNL_HAS_PAIRS

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ROUNDED_VECTORS_H_
