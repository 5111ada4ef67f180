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
 * \file src/runtime/contrib/dnnl/core/kernels/tiles.h
 * \brief The tile registers of AMX, and products of bfloat16 in them.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_TILES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_TILES_H_

#include <cstdint>

#include "rounded_vectors.h"

// Assemblers know the instructions where compilers have their intrinsics: since GCC 11.
#if DNNL_HAS_PAIRS && __has_include(<amxtileintrin.h>)
#define DNNL_HAS_TILES 1
#else
#define DNNL_HAS_TILES 0
#endif

namespace tvm::runtime::contrib::dnnl_backend {

#if DNNL_HAS_TILES

/*! \brief Rows of a tile, which are 64 bytes each: 16 floats or pairs. */
constexpr int64_t kTileRows = 16;

/*! \brief Tile registers of 16 rows each, while this exists. */
class TileRegisters {
 public:
  DNNL_INLINE TileRegisters() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t columns[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  DNNL_INLINE ~TileRegisters() { asm volatile("tilerelease" ::); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

/*! \brief Load a register; rows are so many elements apart. */
template <int kTile, typename T>
DNNL_INLINE void LoadTile(const T* rows, int64_t stride) {
  const auto bytes = static_cast<int64_t>(stride * sizeof(T));
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(bytes), "i"(kTile) : "memory");
}

template <int kTile>
DNNL_INLINE void StoreTile(float* rows, int64_t stride) {
  const auto bytes = static_cast<int64_t>(stride * sizeof(float));
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(bytes), "i"(kTile) : "memory");
}

/*! \brief Add to a register the product of two others: rows of pairs, and columns of pairs. */
template <int kSum, int kLeft, int kRight>
DNNL_INLINE void AddTileProduct() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kLeft), "i"(kRight));
}

#endif  // DNNL_HAS_TILES

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_TILES_H_
