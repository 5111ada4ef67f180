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
 * \file src/runtime/contrib/dnnl/core/ops/recurrent_kernel.cc
 * \brief A recurrent layer in float32 as one kernel of ours.
 *
 * Weights are in panels of 16 hidden units, so that the products of a panel stay in registers and
 * its gates are applied at once. A NaN stays one: selections and divisions keep it.
 */
#include "recurrent_kernel.h"

#include <algorithm>
#include <cstring>

#include "../exec/parallel.h"
#include "../onednn.h"
#include "exp.h"
#include "row_panels.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief One direction of a block of sequences. */
struct Work {
  int64_t steps, inputs, hidden, padded, chunk;
  int rows;
  bool is_reverse, is_relu;
  const float* x;
  /*! \brief Strides, in elements, of the data and of the result. */
  int64_t x_step, x_row, y_step, y_row;
  const float *weights, *recurrent_weights, *bias;
  /*! \brief The initial states, or nullptr: (rows, hidden) as the last ones. */
  const float *h, *c;
  float *y, *h_n, *c_n;
  // Scratch: the products of the data (chunk, rows, gates, padded), and of each row (padded) the
  // cell state or update gate, and the state that the reset gate has multiplied.
  float *products, *cells, *reset;
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

/*! \brief Multiply the data of steps [first, first + steps) by the weights, and add the biases. */
template <int kGates, int kWidth>
DNNL_INLINE void MultiplyData(const Work& work, int64_t first, int64_t steps) {
  constexpr int kSome = static_cast<int>(kMaxRows);
  const int64_t panels = work.padded / kLanes, row_stride = kGates * work.padded;
  const int64_t num_rows = steps * work.rows;
  for (int64_t begin = 0; begin < num_rows; begin += kSome) {
    const float* rows[kSome];
    const int count = static_cast<int>(std::min<int64_t>(kSome, num_rows - begin));
    for (int i = 0; i < count; ++i) {
      const int64_t step = first + (begin + i) / work.rows;
      const int64_t t = work.is_reverse ? work.steps - 1 - step : step;
      rows[i] = work.x + t * work.x_step + (begin + i) % work.rows * work.x_row;
    }
    // The products of a panel of all gates lie together.
    float* products = work.products + begin * row_stride;
    for (int64_t j = 0; j < panels; ++j, products += kGates * kLanes) {
      for (int i = 0; i < count; ++i) {
        for (int gate = 0; gate < kGates; ++gate) {
          std::memcpy(products + i * row_stride + gate * kLanes,
                      work.bias + gate * work.padded + j * kLanes, kPanelBytes);
        }
      }
      MultiplyGates<kWidth, kGates>(rows, count, work.weights + j * work.inputs * kLanes,
                                    work.padded * work.inputs, work.inputs, products, row_stride);
    }
  }
}

/*! \brief The states of a step, read and written. */
struct Step {
  const float* h[kMaxRows];
  float* y[kMaxRows];
  const float* products;
};

/*! \brief Write the states of a panel. */
DNNL_INLINE void Store(const Work& work, int64_t begin, const float* h, float* y) {
  const int64_t count = work.hidden - begin;
  if (count >= kLanes) {
    std::memcpy(y + begin, h, kPanelBytes);
  } else {
    std::memcpy(y + begin, h, count * sizeof(float));
  }
}

/*! \brief The previous states of a panel; zeros beside them. */
DNNL_INLINE void Load(const Work& work, int64_t begin, const float* state, float* h) {
  const int64_t count = work.hidden - begin;
  if (count >= kLanes) {
    std::memcpy(h, state + begin, kPanelBytes);
  } else {
    std::memset(h, 0, kPanelBytes);
    std::memcpy(h, state + begin, count * sizeof(float));
  }
}

/*! \brief The sums of P gates of a panel: from the products of the data, plus those of states. */
template <int P, int kGates, int kWidth>
DNNL_INLINE void SumGates(const Work& work, const Step& step, const float* const* states, int first,
                          int64_t j, float (*sums)[4 * kLanes]) {
  const int64_t row_stride = kGates * work.padded;
  for (int r = 0; r < work.rows; ++r) {
    std::memcpy(sums[r], step.products + r * row_stride + (j * kGates + first) * kLanes,
                P * kPanelBytes);
  }
  MultiplyGates<kWidth, P>(
      states, work.rows, work.recurrent_weights + (first * work.padded + j * kLanes) * work.hidden,
      work.padded * work.hidden, work.hidden, sums[0], 4 * kLanes);
}

template <int kWidth>
DNNL_INLINE void StepOfLSTM(const Work& work, const Step& step) {
  alignas(64) float sums[kMaxRows][4 * kLanes];
  alignas(64) float h[kLanes];
  for (int64_t j = 0; j * kLanes < work.padded; ++j) {
    SumGates<4, 4, kWidth>(work, step, step.h, 0, j, sums);
    for (int r = 0; r < work.rows; ++r) {
      float* cells = work.cells + r * work.padded + j * kLanes;
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

template <int kWidth>
DNNL_INLINE void StepOfRNN(const Work& work, const Step& step) {
  alignas(64) float sums[kMaxRows][4 * kLanes];
  alignas(64) float h[kLanes];
  for (int64_t j = 0; j * kLanes < work.padded; ++j) {
    SumGates<1, 1, kWidth>(work, step, step.h, 0, j, sums);
    for (int r = 0; r < work.rows; ++r) {
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

template <int kWidth>
DNNL_INLINE void StepOfLinearGRU(const Work& work, const Step& step) {
  alignas(64) float sums[kMaxRows][4 * kLanes];
  alignas(64) float h[kLanes], before[kLanes];
  for (int64_t j = 0; j * kLanes < work.padded; ++j) {
    // The products of the candidate's data wait in the fourth part.
    const int64_t row_stride = 3 * work.padded;
    for (int r = 0; r < work.rows; ++r) {
      const float* products = step.products + r * row_stride + j * 3 * kLanes;
      std::memcpy(sums[r], products, 2 * kPanelBytes);
      std::memcpy(sums[r] + 2 * kLanes, work.bias + 3 * work.padded + j * kLanes, kPanelBytes);
      std::memcpy(sums[r] + 3 * kLanes, products + 2 * kLanes, kPanelBytes);
    }
    MultiplyGates<kWidth, 3>(step.h, work.rows, work.recurrent_weights + j * kLanes * work.hidden,
                             work.padded * work.hidden, work.hidden, sums[0], 4 * kLanes);
    for (int r = 0; r < work.rows; ++r) {
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

template <int kWidth>
DNNL_INLINE void StepOfGRU(const Work& work, const Step& step) {
  alignas(64) float sums[kMaxRows][4 * kLanes];
  alignas(64) float h[kLanes], before[kLanes];
  for (int64_t j = 0; j * kLanes < work.padded; ++j) {
    SumGates<2, 3, kWidth>(work, step, step.h, 0, j, sums);
    for (int r = 0; r < work.rows; ++r) {
      const int64_t at = r * work.padded + j * kLanes;
      Load(work, j * kLanes, step.h[r], before);
      for (int i = 0; i < kLanes; ++i) {
        work.cells[at + i] = SigmoidOf(sums[r][i]);
        work.reset[at + i] = SigmoidOf(sums[r][kLanes + i]) * before[i];
      }
    }
  }
  const float* states[kMaxRows];
  for (int r = 0; r < work.rows; ++r) states[r] = work.reset + r * work.padded;
  for (int64_t j = 0; j * kLanes < work.padded; ++j) {
    SumGates<1, 3, kWidth>(work, step, states, 2, j, sums);
    for (int r = 0; r < work.rows; ++r) {
      const float* update = work.cells + r * work.padded + j * kLanes;
      Load(work, j * kLanes, step.h[r], before);
      for (int i = 0; i < kLanes; ++i) {
        h[i] = update[i] * before[i] + (1.f - update[i]) * TanhOf(sums[r][i]);
      }
      Store(work, j * kLanes, h, step.y[r]);
    }
  }
}

template <Cell kCell, int kWidth>
DNNL_INLINE void RunWork(const Work& work) {
  constexpr int kGates = kCell == Cell::kLSTM ? 4 : kCell == Cell::kRNN ? 1 : 3;
  const size_t bytes = work.hidden * sizeof(float);
  Step step;
  for (int r = 0; r < work.rows; ++r) {
    float* h_n = work.h_n + r * work.hidden;
    // The last state is written last; until then it may be the zeros before the first step.
    if (work.h == nullptr) std::memset(h_n, 0, bytes);
    step.h[r] = work.h == nullptr ? h_n : work.h + r * work.hidden;
    if (kCell == Cell::kLSTM) {
      std::memset(work.cells + r * work.padded, 0, work.padded * sizeof(float));
      if (work.c != nullptr) {
        std::memcpy(work.cells + r * work.padded, work.c + r * work.hidden, bytes);
      }
    }
  }
  for (int64_t i = 0; i < work.steps; ++i) {
    const int64_t of_chunk = i % work.chunk;
    if (of_chunk == 0) {
      MultiplyData<kGates, kWidth>(work, i, std::min(work.chunk, work.steps - i));
    }
    step.products = work.products + of_chunk * work.rows * kGates * work.padded;
    const int64_t t = work.is_reverse ? work.steps - 1 - i : i;
    for (int r = 0; r < work.rows; ++r) step.y[r] = work.y + t * work.y_step + r * work.y_row;
    if (kCell == Cell::kLSTM) StepOfLSTM<kWidth>(work, step);
    if (kCell == Cell::kGRU) StepOfGRU<kWidth>(work, step);
    if (kCell == Cell::kLinearGRU) StepOfLinearGRU<kWidth>(work, step);
    if (kCell == Cell::kRNN) StepOfRNN<kWidth>(work, step);
    for (int r = 0; r < work.rows; ++r) step.h[r] = step.y[r];
  }
  for (int r = 0; r < work.rows; ++r) {
    std::memcpy(work.h_n + r * work.hidden, step.h[r], bytes);
    if (kCell != Cell::kLSTM) continue;
    std::memcpy(work.c_n + r * work.hidden, work.cells + r * work.padded, bytes);
  }
}

using WorkFunction = void (*)(const Work& work);

template <Cell kCell>
void RunOnAny(const Work& work) {
  RunWork<kCell, 4>(work);
}

// One variant suffices for sanitizers, which take a minute to compile all.
#if defined(__GNUC__) && defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
template <Cell kCell>
__attribute__((target("avx2,fma"))) void RunOnAVX2(const Work& work) {
  RunWork<kCell, 8>(work);
}

template <Cell kCell>
__attribute__((target("avx512f"))) void RunOnAVX512(const Work& work) {
  RunWork<kCell, 16>(work);
}

/*! \brief The code for this CPU, or for the one that ONEDNN_MAX_CPU_ISA says. */
template <Cell kCell>
WorkFunction FunctionOf() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto has = [isa](dnnl::cpu_isa wanted) {
    return (isa & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
  };
  if (has(dnnl::cpu_isa::avx512_core)) return RunOnAVX512<kCell>;
  if (has(dnnl::cpu_isa::avx2) && __builtin_cpu_supports("fma")) return RunOnAVX2<kCell>;
  return RunOnAny<kCell>;
}
#else
template <Cell kCell>
WorkFunction FunctionOf() {
  return RunOnAny<kCell>;
}
#endif

WorkFunction FunctionOf(Cell cell) {
  switch (cell) {
    case Cell::kLSTM:
      return FunctionOf<Cell::kLSTM>();
    case Cell::kGRU:
      return FunctionOf<Cell::kGRU>();
    case Cell::kLinearGRU:
      return FunctionOf<Cell::kLinearGRU>();
    default:
      return FunctionOf<Cell::kRNN>();
  }
}

Work WorkOf(const RecurrentBlocks& b, const RecurrentTensors& tensors, int64_t unit,
            float* scratch) {
  const RecurrentLayer& layer = b.layer;
  const int64_t direction = unit / b.blocks, begin = unit % b.blocks * b.rows;
  const int64_t columns = layer.directions * layer.hidden, padded = b.padded();
  const int64_t state = (direction * layer.batch + begin) * layer.hidden;
  Work work{};
  work.steps = layer.steps;
  work.inputs = layer.inputs;
  work.hidden = layer.hidden;
  work.padded = padded;
  work.chunk = b.chunk();
  work.rows = static_cast<int>(std::min(b.rows, layer.batch - begin));
  work.is_reverse = layer.is_reverse || direction == 1;
  work.is_relu = layer.is_relu;
  work.x_step = layer.is_batch_first ? layer.inputs : layer.batch * layer.inputs;
  work.x_row = layer.is_batch_first ? layer.steps * layer.inputs : layer.inputs;
  work.y_step = layer.is_batch_first ? columns : layer.batch * columns;
  work.y_row = layer.is_batch_first ? layer.steps * columns : columns;
  work.x = tensors.data + begin * work.x_row;
  work.y = tensors.y + begin * work.y_row + direction * layer.hidden;
  work.weights = tensors.weights + direction * layer.gates() * padded * layer.inputs;
  work.recurrent_weights =
      tensors.recurrent_weights + direction * layer.gates() * padded * layer.hidden;
  work.bias = tensors.bias + direction * layer.bias_gates() * padded;
  work.h = tensors.h == nullptr ? nullptr : tensors.h + state;
  work.c = tensors.c == nullptr ? nullptr : tensors.c + state;
  work.h_n = tensors.h_n + state;
  work.c_n = tensors.c_n == nullptr ? nullptr : tensors.c_n + state;
  work.products = scratch;
  work.cells = work.products + work.chunk * b.rows * layer.gates() * padded;
  work.reset = work.cells + b.rows * padded;
  return work;
}

}  // namespace

RecurrentBlocks::RecurrentBlocks(const RecurrentLayer& layer, int num_threads) : layer(layer) {
  const int64_t threads = std::max<int64_t>(1, num_threads / layer.directions);
  blocks = std::max((layer.batch + kMaxRows - 1) / kMaxRows, std::min(layer.batch, threads));
  rows = (layer.batch + blocks - 1) / blocks;
  blocks = (layer.batch + rows - 1) / rows;
  workers = std::min<int64_t>(layer.directions * blocks, std::max(1, num_threads));
}

int64_t RecurrentBlocks::chunk() const {
  // As many rows as MultiplyData multiplies by a panel while that is in the cache.
  return std::min(layer.steps, kMaxRows / rows);
}

int64_t RecurrentBlocks::scratch() const { return rows * (chunk() * layer.gates() + 2) * padded(); }

void RunRecurrent(const RecurrentBlocks& blocks, const RecurrentTensors& tensors) {
  const WorkFunction run = FunctionOf(blocks.layer.cell);
  const int64_t units = blocks.layer.directions * blocks.blocks;
  ParallelFor(blocks.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t worker = first; worker < last; ++worker) {
      for (int64_t unit = worker; unit < units; unit += blocks.workers) {
        run(WorkOf(blocks, tensors, unit, tensors.scratch + worker * blocks.scratch()));
      }
    }
  });
}

}  // namespace tvm::runtime::contrib::dnnl_backend
