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
 * \file src/runtime/contrib/dnnl/core/kernels/recurrent_cells.h
 * \brief The steps of recurrent layers, to be compiled for several CPUs. To be included last.
 *
 * Weights are in panels of 16 hidden units, so that the products of a panel stay in registers and
 * its gates are applied at once. A NaN stays one: selections and divisions keep it.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_RECURRENT_CELLS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_RECURRENT_CELLS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../exec/parallel.h"
#include "exp.h"
#include "recurrent.h"
#include "recurrent_int8.h"
#include "row_panels.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief One direction of a block of sequences, or a thread's panels of it. */
struct RecurrentWork {
  int64_t steps, inputs, hidden, padded, chunk;
  int rows;
  bool is_reverse, is_relu;
  /*! \brief Whether other threads compute other panels. */
  bool is_shared;
  int64_t first_panel, end_panel;
  const float* x;
  /*! \brief Strides, in elements, of the data and of the result. */
  int64_t x_step, x_row, y_step, y_row;
  RecurrentWeights weights, recurrent_weights;
  const float* bias;
  /*! \brief The initial states, or nullptr: (rows, hidden) as the last ones. */
  const float *h, *c;
  /*! \brief How many steps each sequence has, or nullptr. */
  const int32_t* lengths;
  float *y, *h_n, *c_n;
  // Scratch: the products of the data (chunk, rows, gates, padded), and of each row (padded) the
  // cell state or update gate, and the state that the reset gate has multiplied.
  float *products, *cells, *reset;
  /*! \brief Rows of this thread in 8 bits. */
  uint8_t* quantized;

  /*! \brief The hidden units of the panels of this thread. */
  int64_t begin() const { return first_panel * kLanes; }
  int64_t size() const { return std::min(end_panel * kLanes, hidden) - begin(); }
};

DNNL_INLINE float SigmoidOf(float x) { return 1.f / (1.f + ExpOf(-x)); }

DNNL_INLINE float TanhOf(float x) {
  // t / (t + 2) with t = exp(2 * x) - 1 = 2^n * (exp(r) - 1) + (2^n - 1), exact near zero, too.
  constexpr float kInteger = 0x1.8p23f;
  float y = 2.f * x;
  // tanh is 1 from 9.01 on. A comparison with NaN is false: it stays.
  y = y > 20.f ? 20.f : y;
  y = y < -20.f ? -20.f : y;
  const float shifted = y * 0x1.715476p0f + kInteger;
  const float n = shifted - kInteger;
  const float r = (y - n * kLn2High) - n * kLn2Low;
  const float p = (ExpPolynomial(r) * r) * r + r;
  const float power = FloatOf((BitsOf(shifted) - BitsOf(kInteger) + 127) << 23);
  const float t = power * p + (power - 1.f);
  return t / (t + 2.f);
}

/*! \brief Rows to multiply by weights: quantized for those of int8. */
template <typename Weight>
struct MultipliedRows {
  MultipliedRows(const RecurrentWork&, const float* const* rows, int, int64_t) : rows(rows) {}
  const float* const* rows;
};

template <>
struct MultipliedRows<int8_t> {
  MultipliedRows(const RecurrentWork& work, const float* const* rows, int count, int64_t size) {
    for (int r = 0; r < count; ++r) {
      QuantizeRow(rows[r], size, work.quantized + r * PaddedToQuads(size), &quantized[r]);
    }
  }
  QuantizedRow quantized[kMaxRows];
};

/*! \brief Add rows times the panels of P gates to sums, which are row_stride apart. */
template <int P, int kWidth, typename Weight>
DNNL_INLINE void AddProducts(const RecurrentWork& work, const MultipliedRows<Weight>& rows,
                             int count, const RecurrentWeights& weights, int gate, int64_t panel,
                             int64_t size, float* sums, int64_t row_stride) {
  const int64_t column = gate * work.padded + panel * kLanes;
  if constexpr (std::is_same_v<Weight, int8_t>) {
    AddInt8Products(rows.quantized, count, weights, column, P, work.padded, size, sums, row_stride);
  } else {
    MultiplyGates<kWidth, P>(rows.rows, count,
                             static_cast<const Weight*>(weights.panels) + column * size,
                             work.padded * size, size, sums, row_stride);
  }
}

/*! \brief Multiply the data of steps [first, first + steps) by the weights, and add the biases. */
template <int kGates, int kWidth, typename Weight>
DNNL_INLINE void MultiplyData(const RecurrentWork& work, int64_t first, int64_t steps) {
  constexpr int kSome = static_cast<int>(kMaxRows);
  const int64_t row_stride = kGates * work.padded;
  const int64_t num_rows = steps * work.rows;
  for (int64_t begin = 0; begin < num_rows; begin += kSome) {
    const float* rows[kSome];
    const int count = static_cast<int>(std::min<int64_t>(kSome, num_rows - begin));
    for (int i = 0; i < count; ++i) {
      const int64_t step = first + (begin + i) / work.rows;
      const int64_t t = work.is_reverse ? work.steps - 1 - step : step;
      rows[i] = work.x + t * work.x_step + (begin + i) % work.rows * work.x_row;
    }
    const MultipliedRows<Weight> multiplied(work, rows, count, work.inputs);
    for (int64_t j = work.first_panel; j < work.end_panel; ++j) {
      // The products of a panel of all gates lie together.
      float* products = work.products + begin * row_stride + j * kGates * kLanes;
      for (int i = 0; i < count; ++i) {
        for (int gate = 0; gate < kGates; ++gate) {
          std::memcpy(products + i * row_stride + gate * kLanes,
                      work.bias + gate * work.padded + j * kLanes, kPanelBytes);
        }
      }
      AddProducts<kGates, kWidth>(work, multiplied, count, work.weights, 0, j, work.inputs,
                                  products, row_stride);
    }
  }
}

/*! \brief The states of a step, read and written, of the sequences that have it. */
struct RecurrentStep {
  int rows;
  /*! \brief Which row of the block each is. */
  int64_t index[kMaxRows];
  const float* h[kMaxRows];
  float* y[kMaxRows];
  const float* products;
};

/*! \brief Write the states of a panel. */
DNNL_INLINE void Store(const RecurrentWork& work, int64_t begin, const float* h, float* y) {
  const int64_t count = work.hidden - begin;
  if (count >= kLanes) {
    std::memcpy(y + begin, h, kPanelBytes);
  } else {
    std::memcpy(y + begin, h, count * sizeof(float));
  }
}

/*! \brief The previous states of a panel; zeros beside them. */
DNNL_INLINE void Load(const RecurrentWork& work, int64_t begin, const float* state, float* h) {
  const int64_t count = work.hidden - begin;
  if (count >= kLanes) {
    std::memcpy(h, state + begin, kPanelBytes);
  } else {
    std::memset(h, 0, kPanelBytes);
    std::memcpy(h, state + begin, count * sizeof(float));
  }
}

/*! \brief The sums of P gates of a panel: from the products of the data, plus those of states. */
template <int P, int kGates, int kWidth, typename Weight>
DNNL_INLINE void SumGates(const RecurrentWork& work, const RecurrentStep& step,
                          const MultipliedRows<Weight>& states, int first, int64_t j,
                          float (*sums)[4 * kLanes]) {
  const int64_t row_stride = kGates * work.padded;
  for (int r = 0; r < step.rows; ++r) {
    const float* products = step.products + step.index[r] * row_stride;
    std::memcpy(sums[r], products + (j * kGates + first) * kLanes, P * kPanelBytes);
  }
  AddProducts<P, kWidth>(work, states, step.rows, work.recurrent_weights, first, j, work.hidden,
                         sums[0], 4 * kLanes);
}

template <int kWidth, typename Weight>
DNNL_INLINE void StepOfLSTM(const RecurrentWork& work, const RecurrentStep& step) {
  const MultipliedRows<Weight> states(work, step.h, step.rows, work.hidden);
  alignas(64) float sums[kMaxRows][4 * kLanes];
  alignas(64) float h[kLanes];
  for (int64_t j = work.first_panel; j < work.end_panel; ++j) {
    SumGates<4, 4, kWidth>(work, step, states, 0, j, sums);
    for (int r = 0; r < step.rows; ++r) {
      float* cells = work.cells + step.index[r] * work.padded + j * kLanes;
      const float* s = sums[r];
      for (int i = 0; i < kLanes; ++i) {
        const float c =
            SigmoidOf(s[kLanes + i]) * cells[i] + SigmoidOf(s[i]) * TanhOf(s[2 * kLanes + i]);
        cells[i] = c;
        h[i] = SigmoidOf(s[3 * kLanes + i]) * TanhOf(c);
      }
      Store(work, j * kLanes, h, step.y[r]);
    }
  }
}

template <int kWidth, typename Weight>
DNNL_INLINE void StepOfRNN(const RecurrentWork& work, const RecurrentStep& step) {
  const MultipliedRows<Weight> states(work, step.h, step.rows, work.hidden);
  alignas(64) float sums[kMaxRows][4 * kLanes];
  alignas(64) float h[kLanes];
  for (int64_t j = work.first_panel; j < work.end_panel; ++j) {
    SumGates<1, 1, kWidth>(work, step, states, 0, j, sums);
    for (int r = 0; r < step.rows; ++r) {
      const float* s = sums[r];
      if (work.is_relu) {
        for (int i = 0; i < kLanes; ++i) h[i] = s[i] < 0.f ? 0.f : s[i];
      } else {
        for (int i = 0; i < kLanes; ++i) h[i] = TanhOf(s[i]);
      }
      Store(work, j * kLanes, h, step.y[r]);
    }
  }
}

template <int kWidth, typename Weight>
DNNL_INLINE void StepOfLinearGRU(const RecurrentWork& work, const RecurrentStep& step) {
  const MultipliedRows<Weight> states(work, step.h, step.rows, work.hidden);
  alignas(64) float sums[kMaxRows][4 * kLanes];
  alignas(64) float h[kLanes], before[kLanes];
  for (int64_t j = work.first_panel; j < work.end_panel; ++j) {
    // The products of the candidate's data wait in the fourth part.
    const int64_t row_stride = 3 * work.padded;
    for (int r = 0; r < step.rows; ++r) {
      const float* products = step.products + step.index[r] * row_stride + j * 3 * kLanes;
      std::memcpy(sums[r], products, 2 * kPanelBytes);
      std::memcpy(sums[r] + 2 * kLanes, work.bias + 3 * work.padded + j * kLanes, kPanelBytes);
      std::memcpy(sums[r] + 3 * kLanes, products + 2 * kLanes, kPanelBytes);
    }
    AddProducts<3, kWidth>(work, states, step.rows, work.recurrent_weights, 0, j, work.hidden,
                           sums[0], 4 * kLanes);
    for (int r = 0; r < step.rows; ++r) {
      const float* s = sums[r];
      Load(work, j * kLanes, step.h[r], before);
      for (int i = 0; i < kLanes; ++i) {
        const float u = SigmoidOf(s[i]), reset = SigmoidOf(s[kLanes + i]);
        const float candidate = TanhOf(s[3 * kLanes + i] + reset * s[2 * kLanes + i]);
        h[i] = u * before[i] + (1.f - u) * candidate;
      }
      Store(work, j * kLanes, h, step.y[r]);
    }
  }
}

template <int kWidth, typename Weight>
DNNL_INLINE void StepOfGRU(const RecurrentWork& work, const RecurrentStep& step) {
  const MultipliedRows<Weight> states(work, step.h, step.rows, work.hidden);
  alignas(64) float sums[kMaxRows][4 * kLanes];
  alignas(64) float h[kLanes], before[kLanes];
  for (int64_t j = work.first_panel; j < work.end_panel; ++j) {
    SumGates<2, 3, kWidth>(work, step, states, 0, j, sums);
    for (int r = 0; r < step.rows; ++r) {
      const int64_t at = r * work.padded + j * kLanes;
      Load(work, j * kLanes, step.h[r], before);
      for (int i = 0; i < kLanes; ++i) {
        work.cells[at + i] = SigmoidOf(sums[r][i]);
        work.reset[at + i] = SigmoidOf(sums[r][kLanes + i]) * before[i];
      }
    }
  }
  if (work.is_shared) ParallelBarrier();
  const float* rows[kMaxRows];
  for (int r = 0; r < step.rows; ++r) rows[r] = work.reset + r * work.padded;
  const MultipliedRows<Weight> reset(work, rows, step.rows, work.hidden);
  for (int64_t j = work.first_panel; j < work.end_panel; ++j) {
    SumGates<1, 3, kWidth>(work, step, reset, 2, j, sums);
    for (int r = 0; r < step.rows; ++r) {
      const float* update = work.cells + r * work.padded + j * kLanes;
      Load(work, j * kLanes, step.h[r], before);
      for (int i = 0; i < kLanes; ++i) {
        h[i] = update[i] * before[i] + (1.f - update[i]) * TanhOf(sums[r][i]);
      }
      Store(work, j * kLanes, h, step.y[r]);
    }
  }
}

/*! \brief The sequences that have a step; zeros in the result of the others. */
DNNL_INLINE void SelectRows(const RecurrentWork& work, int64_t t, const float* const* states,
                            RecurrentStep* step) {
  step->rows = 0;
  for (int r = 0; r < work.rows; ++r) {
    float* y = work.y + t * work.y_step + r * work.y_row;
    if (work.lengths != nullptr && t >= work.lengths[r]) {
      std::memset(y + work.begin(), 0, work.size() * sizeof(float));
      continue;
    }
    step->index[step->rows] = r;
    step->h[step->rows] = states[r];
    step->y[step->rows++] = y;
  }
}

template <Cell kCell, int kWidth, typename Weight>
DNNL_INLINE void RunWork(const RecurrentWork& work) {
  constexpr int kGates = kCell == Cell::kLSTM ? 4 : kCell == Cell::kRNN ? 1 : 3;
  const size_t bytes = work.size() * sizeof(float);
  const float* states[kMaxRows];
  for (int r = 0; r < work.rows; ++r) {
    float* h_n = work.h_n + r * work.hidden;
    // The last state is written last; until then it may be the zeros before the first step.
    if (work.h == nullptr) std::memset(h_n + work.begin(), 0, bytes);
    states[r] = work.h == nullptr ? h_n : work.h + r * work.hidden;
    if (kCell == Cell::kLSTM) {
      float* cells = work.cells + r * work.padded + work.begin();
      std::memset(cells, 0, (work.end_panel - work.first_panel) * kPanelBytes);
      if (work.c != nullptr) std::memcpy(cells, work.c + r * work.hidden + work.begin(), bytes);
    }
  }
  if (work.is_shared) ParallelBarrier();
  RecurrentStep step;
  for (int64_t i = 0; i < work.steps; ++i) {
    const int64_t of_chunk = i % work.chunk;
    if (of_chunk == 0) {
      MultiplyData<kGates, kWidth, Weight>(work, i, std::min(work.chunk, work.steps - i));
    }
    step.products = work.products + of_chunk * work.rows * kGates * work.padded;
    SelectRows(work, work.is_reverse ? work.steps - 1 - i : i, states, &step);
    if (kCell == Cell::kLSTM) StepOfLSTM<kWidth, Weight>(work, step);
    if (kCell == Cell::kGRU) StepOfGRU<kWidth, Weight>(work, step);
    if (kCell == Cell::kLinearGRU) StepOfLinearGRU<kWidth, Weight>(work, step);
    if (kCell == Cell::kRNN) StepOfRNN<kWidth, Weight>(work, step);
    for (int r = 0; r < step.rows; ++r) states[step.index[r]] = step.y[r];
    if (work.is_shared) ParallelBarrier();
  }
  for (int r = 0; r < work.rows; ++r) {
    const int64_t at = r * work.hidden + work.begin();
    // Of a sequence of no step it may be the initial one.
    std::memmove(work.h_n + at, states[r] + work.begin(), bytes);
    if (kCell != Cell::kLSTM) continue;
    std::memcpy(work.c_n + at, work.cells + r * work.padded + work.begin(), bytes);
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_RECURRENT_CELLS_H_
