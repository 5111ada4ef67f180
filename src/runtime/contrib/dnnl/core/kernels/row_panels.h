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
 * \file src/runtime/contrib/dnnl/core/kernels/row_panels.h
 * \brief Products of a few rows and panels of weights, in registers. To be included last.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ROW_PANELS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ROW_PANELS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Outputs of a panel of weights, in float32 or bfloat16: a panel is (inputs, kLanes). */
constexpr int kLanes = 16;
constexpr size_t kPanelBytes = kLanes * sizeof(float);

/*! \brief So many floats as a register of the CPU has: compilers split wider ones badly. */
template <int kWidth>
struct Vector {
#ifdef __GNUC__
  // An attribute cannot depend on kWidth.
  typedef float V4 __attribute__((vector_size(16)));
  typedef float V8 __attribute__((vector_size(32)));
  typedef float V16 __attribute__((vector_size(64)));
  std::conditional_t<kWidth == 16, V16, std::conditional_t<kWidth == 8, V8, V4>> values;
  DNNL_INLINE void AddProduct(float x, const Vector& other) { values += x * other.values; }
  DNNL_INLINE void Add(const Vector& other) { values += other.values; }
#else
  float values[kWidth];
  void AddProduct(float x, const Vector& other) {
    for (int i = 0; i < kWidth; ++i) values[i] += x * other.values[i];
  }
  void Add(const Vector& other) { AddProduct(1.f, other); }
#endif
  DNNL_INLINE void Load(const float* from) { std::memcpy(&values, from, sizeof(values)); }
  /*! \brief Load bfloat16, the upper halves of float32. */
  DNNL_INLINE void Load(const uint16_t* from) {
    uint32_t wide[kWidth];
    for (int i = 0; i < kWidth; ++i) wide[i] = static_cast<uint32_t>(from[i]) << 16;
    std::memcpy(&values, wide, sizeof(values));
  }
  DNNL_INLINE void Store(float* to) const { std::memcpy(to, &values, sizeof(values)); }
};

/*!
 * \brief Add R rows times P panels to sums, [R][P][kLanes].
 *
 * kUnroll partial sums of each hide the latency of additions where there are few.
 */
template <int kWidth, int R, int P, int kUnroll, typename Weight>
DNNL_INLINE void Multiply(const float* const* rows, const Weight* const* panels, int64_t count,
                          float* sums, int64_t row_stride) {
  constexpr int kParts = kLanes / kWidth, kVectors = P * kParts;
  Vector<kWidth> partial[kUnroll][R][kVectors];
  const float* row[R];
  const Weight* part[kVectors];
  DNNL_UNROLL
  for (int v = 0; v < kVectors; ++v) part[v] = panels[v / kParts] + v % kParts * kWidth;
  DNNL_UNROLL
  for (int r = 0; r < R; ++r) {
    row[r] = rows[r];
    DNNL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      partial[0][r][v].Load(sums + r * row_stride + v * kWidth);
      DNNL_UNROLL
      for (int u = 1; u < kUnroll; ++u) partial[u][r][v] = Vector<kWidth>{};
    }
  }
  int64_t k = 0;
  for (; k + kUnroll <= count; k += kUnroll) {
    DNNL_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      DNNL_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        Vector<kWidth> weights;
        weights.Load(part[v] + (k + u) * kLanes);
        DNNL_UNROLL
        for (int r = 0; r < R; ++r) partial[u][r][v].AddProduct(row[r][k + u], weights);
      }
    }
  }
  for (; kUnroll > 1 && k < count; ++k) {
    DNNL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      Vector<kWidth> weights;
      weights.Load(part[v] + k * kLanes);
      DNNL_UNROLL
      for (int r = 0; r < R; ++r) partial[0][r][v].AddProduct(row[r][k], weights);
    }
  }
  DNNL_UNROLL
  for (int r = 0; r < R; ++r) {
    DNNL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      DNNL_UNROLL
      for (int u = 1; u < kUnroll; ++u) partial[0][r][v].Add(partial[u][r][v]);
      partial[0][r][v].Store(sums + r * row_stride + v * kWidth);
    }
  }
}

/*! \brief Multiply R rows at a time, as long as there are as many. */
template <int kWidth, int R, int P, int kUnroll, typename Weight>
DNNL_INLINE void MultiplySome(const float* const** rows, int* num_rows, const Weight* const* panels,
                              int64_t count, float** sums, int64_t row_stride) {
  for (; *num_rows >= R; *num_rows -= R, *rows += R, *sums += R * row_stride) {
    Multiply<kWidth, R, P, kUnroll>(*rows, panels, count, *sums, row_stride);
  }
}

/*!
 * \brief Add rows times P panels to sums, which are row_stride apart.
 *
 * Eight vectors of sums or more hide the latency of additions, two of which take four cycles.
 * There are registers for 32 with AVX-512 and for 16 else, also for values of the rows.
 */
template <int kWidth, int P, typename Weight>
DNNL_INLINE void MultiplyPanels(const float* const* rows, int num_rows, const Weight* const* panels,
                                int64_t count, float* sums, int64_t row_stride) {
  if (kWidth == 16) {
    MultiplySome<kWidth, 8, P, 1>(&rows, &num_rows, panels, count, &sums, row_stride);
    MultiplySome<kWidth, 4, P, 2 / P>(&rows, &num_rows, panels, count, &sums, row_stride);
    MultiplySome<kWidth, 2, P, 4 / P>(&rows, &num_rows, panels, count, &sums, row_stride);
    MultiplySome<kWidth, 1, P, 4 / P>(&rows, &num_rows, panels, count, &sums, row_stride);
  } else if (kWidth == 8) {
    MultiplySome<kWidth, 4, P, 1>(&rows, &num_rows, panels, count, &sums, row_stride);
    MultiplySome<kWidth, 2, P, 2>(&rows, &num_rows, panels, count, &sums, row_stride);
    MultiplySome<kWidth, 1, P, 4>(&rows, &num_rows, panels, count, &sums, row_stride);
  } else {
    MultiplySome<kWidth, 3, P, 1>(&rows, &num_rows, panels, count, &sums, row_stride);
    MultiplySome<kWidth, 1, P, 2>(&rows, &num_rows, panels, count, &sums, row_stride);
  }
}

/*! \brief Add rows times the panels of P gates, which are `apart` elements apart. */
template <int kWidth, int P, typename Weight>
DNNL_INLINE void MultiplyGates(const float* const* rows, int num_rows, const Weight* panel,
                               int64_t apart, int64_t count, float* sums, int64_t row_stride) {
  const Weight* panels[P];
  for (int p = 0; p < P; ++p) panels[p] = panel + p * apart;
  if (num_rows == 1 && P > 1 && kWidth > 4) {
    // Six panels fit into the registers of AVX2.
    Multiply<kWidth, 1, P, kWidth == 8 && P == 4 ? 1 : 2>(rows, panels, count, sums, row_stride);
    return;
  }
  constexpr int kPanels = kWidth == 16 && P > 1 ? 2 : 1;
  int p = 0;
  for (; p + kPanels <= P; p += kPanels) {
    MultiplyPanels<kWidth, kPanels>(rows, num_rows, panels + p, count, sums + p * kLanes,
                                    row_stride);
  }
  if (P % kPanels != 0) {
    MultiplyPanels<kWidth, 1>(rows, num_rows, panels + p, count, sums + p * kLanes, row_stride);
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ROW_PANELS_H_
