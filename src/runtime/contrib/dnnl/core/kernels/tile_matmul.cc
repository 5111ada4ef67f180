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
 * \file src/runtime/contrib/dnnl/core/kernels/tile_matmul.cc
 * \brief Some hundred rows in bfloat16 by a packed matrix, in the tile registers of AMX.
 */
#include "tile_matmul.h"

#include <algorithm>

#include "../exec/parallel.h"
#include "cpu_clones.h"
#include "functions.h"
#include "isa.h"
#include "rounded_vectors.h"
#include "tiles.h"
#include "vectors.h"

namespace tvm::runtime::contrib::dnnl_backend {

bool HasTileMatMul() {
#if DNNL_HAS_TILES
  return HasISA(ISA::kAMX);
#else
  return false;
#endif
}

#if DNNL_HAS_TILES

namespace {

constexpr int64_t kBlock = TileMatMul::kBlock, kPanel = TileMatMul::kPanel;
constexpr int kLanes = 16;
/*! \brief Numbers of a block of 32 rows and 32 columns of weights. */
constexpr int64_t kTiles = kBlock * kPanel;
/*! \brief Numbers of a cache line. */
constexpr int64_t kLine = 32;
/*! \brief Products that are worth a thread. */
constexpr int64_t kWork = 1 << 22;

/*! \brief The next panel of weights, a few lines of which are prefetched at a time. */
struct Ahead {
  const uint16_t *at, *end;
  int64_t lines;

  DNNL_INLINE void Fetch() {
    const uint16_t* const to = std::min(end, at + lines * kLine);
    // To the second-level cache: the first one has the present panel.
    for (; at < to; at += kLine) __builtin_prefetch(at, 0, 2);
  }
};

/*! \brief sums[16 * R, 32] = src[16 * R, inner] * panel[inner, 32]. */
template <int R>
DNNL_INLINE void MultiplyBlock(const TileMatMul& product, const uint16_t* src,
                               const uint16_t* panel, Ahead* ahead, float* sums) {
  const int64_t stride = product.inner;
  asm volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" ::);
  for (int64_t k = 0; k < product.inner; k += kPanel, panel += kTiles) {
    LoadTile<6>(panel, 2 * kPanel);
    LoadTile<4>(src + k, stride);
    AddTileProduct<0, 4, 6>();
    if constexpr (R > 1) LoadTile<5>(src + kTileRows * stride + k, stride);
    if constexpr (R > 1) AddTileProduct<1, 5, 6>();
    LoadTile<7>(panel + kPanel, 2 * kPanel);
    AddTileProduct<2, 4, 7>();
    if constexpr (R > 1) AddTileProduct<3, 5, 7>();
    ahead->Fetch();
  }
  StoreTile<0>(sums, kPanel);
  StoreTile<2>(sums + kTileRows, kPanel);
  if constexpr (R > 1) StoreTile<1>(sums + kTileRows * kPanel, kPanel);
  if constexpr (R > 1) StoreTile<3>(sums + kTileRows * kPanel + kTileRows, kPanel);
}

/*! \brief A block of the result: some rows by the columns of a panel. */
struct TileBlock {
  int64_t row, column, rows;
  float* sums;
};

struct Product {
  template <int W>
  static DNNL_INLINE Floats<W> Of(Floats<W> a, Floats<W> b) {
    return a * b;
  }
};

/*! \brief Combine sums with an operand: a row, or a block that lies as the result's does. */
template <typename Function, typename T>
DNNL_INLINE void Combine(const TileBlock& block, const T* operand, int64_t stride) {
  for (int64_t r = 0; r < block.rows; ++r, operand += stride) {
    float* const sums = block.sums + r * kPanel;
    DNNL_UNROLL
    for (int64_t i = 0; i < kPanel; i += kLanes) {
      const Floats<kLanes> other = Load<kLanes>(operand + i);
      Store<kLanes>(Function::template Of<kLanes>(Load<kLanes>(sums + i), other), sums + i);
    }
  }
}

template <typename Function>
DNNL_INLINE void CombineWith(const TileMatMul& product, const TilePostOp& op,
                             const TileBlock& block, void* const* addresses) {
  const void* const operand = addresses[op.operand];
  const int64_t at = block.row * product.columns + block.column;
  if (op.is_row) {
    Combine<Function>(block, static_cast<const float*>(operand) + block.column, 0);
  } else if (op.is_bfloat16) {
    Combine<Function>(block, static_cast<const uint16_t*>(operand) + at, product.columns);
  } else {
    Combine<Function>(block, static_cast<const float*>(operand) + at, product.columns);
  }
}

/*! \brief x > 0 ? x : 0; NaN stays. */
DNNL_INLINE void Rectify(float* values, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Floats<kLanes> x = Load<kLanes>(values + i);
    Store<kLanes>(x < 0.f ? Filled<kLanes>(0.f) : x, values + i);
  }
}

/*! \brief x * (1 + erf(x / sqrt(2))) / 2 */
DNNL_INLINE void GeluErf(float* values, int64_t count) {
  alignas(64) float factors[kTiles];
  for (int64_t i = 0; i < count; i += kLanes) {
    Store<kLanes>(Load<kLanes>(values + i) * 0.707106781f, factors + i);
  }
  Erf(factors, factors, count);
  for (int64_t i = 0; i < count; i += kLanes) {
    const Floats<kLanes> x = Load<kLanes>(values + i);
    const Floats<kLanes> factor = Load<kLanes>(factors + i) * 0.5f + 0.5f;
    // The last bit of erf, times a large number, is not small.
    Store<kLanes>(x * (x < -5.6f ? Filled<kLanes>(0.f) : factor), values + i);
  }
}

/*! \brief x / (1 + exp(-x)) */
DNNL_INLINE void Swish(float* values, int64_t count) {
  alignas(64) float factors[kTiles];
  Sigmoid(values, factors, count);
  for (int64_t i = 0; i < count; i += kLanes) {
    Store<kLanes>(Load<kLanes>(values + i) * Load<kLanes>(factors + i), values + i);
  }
}

DNNL_INLINE void Apply(const TileMatMul& product, const TilePostOp& op, const TileBlock& block,
                       void* const* addresses) {
  const int64_t count = block.rows * kPanel;
  switch (op.kind) {
    case TilePostOp::kAdd:
      return CombineWith<Sum>(product, op, block, addresses);
    case TilePostOp::kMultiply:
      return CombineWith<Product>(product, op, block, addresses);
    case TilePostOp::kRelu:
      return Rectify(block.sums, count);
    case TilePostOp::kGeluErf:
      return GeluErf(block.sums, count);
    case TilePostOp::kGeluTanh:
      return GeluTanh(block.sums, block.sums, count);
    case TilePostOp::kSwish:
      return Swish(block.sums, count);
  }
}

DNNL_INLINE void StoreBlock(const TileMatMul& product, const TileBlock& block, void* dst) {
  const int64_t at = block.row * product.columns + block.column;
  for (int64_t r = 0; r < block.rows; ++r) {
    DNNL_UNROLL
    for (int64_t i = 0; i < kPanel; i += kLanes) {
      const Floats<kLanes> value = Load<kLanes>(block.sums + r * kPanel + i);
      const int64_t to = at + r * product.columns + i;
      if (product.writes_bfloat16) {
        StoreRounded<kLanes>(value, static_cast<uint16_t*>(dst) + to);
      } else {
        Store<kLanes>(value, static_cast<float*>(dst) + to);
      }
    }
  }
}

/*! \brief Multiply all rows by a panel. */
DNNL_AVX512 void MultiplyPanel(const TileMatMul& product, const uint16_t* src,
                               const uint16_t* panel, int64_t column, Ahead ahead,
                               void* const* addresses, void* dst) {
  alignas(64) float sums[kTiles];
  for (int64_t row = 0; row < product.rows; row += kBlock) {
    // The last block begins at rows that the one before it has multiplied, too.
    const int64_t left = product.rows - row, size = left > kTileRows ? kBlock : kTileRows;
    const int64_t first = std::min(row, product.rows - size);
    const uint16_t* const from = src + first * product.inner;
    if (size == kBlock) {
      MultiplyBlock<2>(product, from, panel, &ahead, sums);
    } else {
      MultiplyBlock<1>(product, from, panel, &ahead, sums);
    }
    const TileBlock block = {row, column, std::min(left, size), sums + (row - first) * kPanel};
    for (const TilePostOp& op : product.post_ops) Apply(product, op, block, addresses);
    StoreBlock(product, block, dst);
  }
}

}  // namespace

void MultiplyByPanels(const TileMatMul& product, const uint16_t* src, const uint16_t* weights,
                      void* const* addresses, void* dst) {
  const int64_t size = product.inner * kPanel;
  const int64_t blocks = (product.rows + kBlock - 1) / kBlock, steps = product.inner / kPanel;
  const int64_t lines = (size / kLine + blocks * steps - 1) / (blocks * steps);
  const int64_t grain = std::max<int64_t>(1, kWork / (product.rows * size));
  ParallelFor(product.columns / kPanel, grain, [&](int64_t first, int64_t last) {
    const TileRegisters registers;
    for (int64_t i = first; i < last; ++i) {
      const uint16_t *const panel = weights + i * size, *const next = panel + size;
      const Ahead ahead = {next, i + 1 < last ? next + size : next, lines};
      MultiplyPanel(product, src, panel, i * kPanel, ahead, addresses, dst);
    }
  });
}

#else

void MultiplyByPanels(const TileMatMul&, const uint16_t*, const uint16_t*, void* const*, void*) {}

#endif

}  // namespace tvm::runtime::contrib::dnnl_backend
