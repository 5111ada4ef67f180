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
 * \file src/runtime/contrib/dnnl/core/kernels/cpu_clones.h
 * \brief Compiles the loops of a file to vector code, for several CPUs.
 *
 * Each source that needs it includes it itself, and last: unity builds leave such sources out.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_CPU_CLONES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_CPU_CLONES_H_

#if defined(DNNL_UNITY_BUILD) && defined(__OPTIMIZE__)
#error "the files after this one would have its optimizations: include cpu_clones.h in the source"
#elif defined(__GNUC__) && !defined(__clang__) && !defined(DNNL_UNITY_BUILD)
// Without them selections are branches, and no vectors.
#pragma GCC optimize("O3", "no-trapping-math")
#endif

// Into functions for several CPUs; lambdas would not be.
#if defined(__GNUC__)
#define DNNL_INLINE __attribute__((always_inline)) inline
#else
#define DNNL_INLINE inline
#endif

// Before the arrays of a loop can become registers.
#if defined(__clang__)
#define DNNL_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define DNNL_UNROLL _Pragma("GCC unroll 16")
#else
#define DNNL_UNROLL
#endif

// For a loop whose iterations read nothing that others write.
#if defined(__clang__)
#define DNNL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define DNNL_INDEPENDENT _Pragma("GCC ivdep")
#else
#define DNNL_INDEPENDENT
#endif

// Compiled for several CPUs, of which the loader picks one: the rest of the library is for any.
// Sanitizers' functions cannot be called while it does.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DNNL_FOR_CPUS __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define DNNL_FOR_CPUS
#endif

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_CPU_CLONES_H_
