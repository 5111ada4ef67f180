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
 * \file src/runtime/contrib/dnnl/core/kernels/isa.h
 * \brief The instruction sets that kernels are chosen by.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ISA_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ISA_H_

namespace tvm::runtime::contrib::dnnl_backend {

// Compile a function, and what is inlined into it, for a CPU with these instructions.
#if defined(__GNUC__) && defined(__x86_64__)
#define DNNL_AVX2 __attribute__((target("avx2,fma")))
#define DNNL_AVX512 __attribute__((target("avx512f,avx2,fma")))
#else
#define DNNL_AVX2
#define DNNL_AVX512
#endif

/*! \brief AVX2 is that with FMA; AVX-512 is that of servers, with BW, DQ and VL. */
enum class ISA { kAVX2, kAVX512, kAVX512VNNI, kAVX512BF16, kAMX };

/*! \brief Whether this CPU has the instructions, and ONEDNN_MAX_CPU_ISA allows them. */
bool HasISA(ISA wanted);

/*!
 * \brief Choose among variants of code.
 * \param any, avx2, avx512 Those for any CPU, and those compiled for DNNL_AVX2 and DNNL_AVX512.
 */
template <typename Code>
Code CodeForCPU(Code any, Code avx2, Code avx512) {
  return HasISA(ISA::kAVX512) ? avx512 : HasISA(ISA::kAVX2) ? avx2 : any;
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ISA_H_
