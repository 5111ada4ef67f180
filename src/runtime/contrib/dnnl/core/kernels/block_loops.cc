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
 * \file src/runtime/contrib/dnnl/core/kernels/block_loops.cc
 * \brief Vector loops over weights of 4 or 8 bits that have a scale for each block of a row.
 */
#include "block_loops.h"

#include <algorithm>
#include <cstring>

#include "isa.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define DNNL_HAS_X86_LOOPS
#include <immintrin.h>
#endif

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Half a unit, the elements of a vector register of AVX-512. */
constexpr int kHalf = kUnit / 2;

/*! \brief The elements of 4 bits in a register of AVX-512. */
constexpr int64_t kGroup = 128;

namespace any_cpu {
#include "block_loops.inc"
}  // namespace any_cpu

// Not by clones of functions (cpu_clones.h): GCC splits vectors before it makes these.
#ifdef DNNL_HAS_X86_LOOPS
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#include "block_loops.inc"
}  // namespace avx2
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
#pragma GCC diagnostic push
// Intrinsics of GCC 12 leave lanes undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
namespace avx512 {
#include "block_loops.inc"
#include "block_loops_avx512.inc"
}  // namespace avx512
#pragma GCC diagnostic pop
#pragma GCC pop_options
#endif

/*! \brief The loops of the best kind of CPU that this one is. */
struct BlockLoops {
  decltype(&any_cpu::MultiplyBlocks) multiply{any_cpu::MultiplyBlocks};
  decltype(&any_cpu::DequantizeBlocks) dequantize{any_cpu::DequantizeBlocks};

  /*! \brief Whether rows of 4 bits are read by groups where they have nothing else. */
  bool has_groups{false};

  BlockLoops() {
#ifdef DNNL_HAS_X86_LOOPS
    if (HasISA(ISA::kAVX512)) {
      has_groups = true;
      multiply = avx512::MultiplyBlocks;
      dequantize = avx512::DequantizeBlocks;
    } else if (HasISA(ISA::kAVX2)) {
      multiply = avx2::MultiplyBlocks;
      dequantize = avx2::DequantizeBlocks;
    }
#endif
  }
  /*! \brief Whether rows are arranged by groups, not by units. */
  bool ReadsGroups(int bits, int64_t block, int64_t blocks) const {
    const bool is_fit = block == 32 || block == 64 || block % kGroup == 0;
    return has_groups && bits == 4 && is_fit && block * blocks % kGroup == 0;
  }
  static const BlockLoops& Get() {
    static const BlockLoops loops;
    return loops;
  }
};

}  // namespace

void ArrangeRow(const float* src, int64_t count, int bits, int64_t block, int64_t blocks,
                float* dst, float* sums) {
  const int64_t padded = block * blocks;
  const bool has_groups = BlockLoops::Get().ReadsGroups(bits, block, blocks);
  for (int64_t k = 0; k < padded; ++k) {
    const int64_t at = k % kUnit, half = bits == 4 ? at % 2 * kHalf + at / 2 : at;
    // A lane of a register has eight elements of a group.
    const int64_t lane = k % kGroup / 8, to = has_groups ? k % 8 * 16 + lane : half;
    dst[(has_groups ? k / kGroup * kGroup : k - at) + to] = k < count ? src[k] : 0.f;
  }
  for (int64_t b = 0; b < blocks; ++b) {
    double sum = 0;
    for (int64_t k = b * block; k < std::min(count, (b + 1) * block); ++k) sum += src[k];
    sums[b] = static_cast<float>(sum);
  }
}

void MultiplyBlocks(const BlockRow& weight, int bits, int64_t block, int64_t blocks,
                    const float* data, const float* sums, int64_t rows, float* dst,
                    int64_t dst_stride) {
#ifdef DNNL_HAS_X86_LOOPS
  if (BlockLoops::Get().ReadsGroups(bits, block, blocks)) {
    avx512::MultiplyGroupsOfRows(weight, block, blocks, data, sums, rows, dst, dst_stride);
    return;
  }
#endif
  BlockLoops::Get().multiply(weight, bits, block, blocks, data, sums, rows, dst, dst_stride);
}

void DequantizeBlocks(const BlockRow& weight, int bits, int64_t block, int64_t blocks, float* dst) {
#ifdef DNNL_HAS_X86_LOOPS
  if (BlockLoops::Get().ReadsGroups(bits, block, blocks)) {
    avx512::DequantizeGroups(weight, block, blocks, dst);
    return;
  }
#endif
  BlockLoops::Get().dequantize(weight, bits, block, blocks, dst);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
