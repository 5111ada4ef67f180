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
 * \file src/runtime/contrib/dnnl/core/kernels/recurrent.cc
 * \brief A recurrent layer of float32 data as one kernel of ours.
 */
#include "recurrent.h"

#include <algorithm>

#include "cpu_clones.h"
#include "isa.h"
#include "recurrent_cells.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief A thread multiplies its state by so many bytes of weights at least in each step. */
constexpr int64_t kShareBytes = 65536;
/*! \brief The recurrent weights that a thread's cache holds besides those of the data. */
constexpr int64_t kCacheBytes = 1 << 20;

using WorkFunction = void (*)(const RecurrentWork& work);

template <Cell kCell, typename Weight>
void RunOnAny(const RecurrentWork& work) {
  RunWork<kCell, 4, Weight>(work);
}

// One variant suffices for sanitizers, which take a minute to compile all.
#ifndef __SANITIZE_ADDRESS__
template <Cell kCell, typename Weight>
DNNL_AVX2 void RunOnAVX2(const RecurrentWork& work) {
  RunWork<kCell, 8, Weight>(work);
}

template <Cell kCell, typename Weight>
DNNL_AVX512 void RunOnAVX512(const RecurrentWork& work) {
  RunWork<kCell, 16, Weight>(work);
}

template <Cell kCell, typename Weight>
WorkFunction FunctionOf() {
  return CodeForCPU<WorkFunction>(RunOnAny<kCell, Weight>, RunOnAVX2<kCell, Weight>,
                                  RunOnAVX512<kCell, Weight>);
}
#else
template <Cell kCell, typename Weight>
WorkFunction FunctionOf() {
  return RunOnAny<kCell, Weight>;
}
#endif

template <typename Weight>
WorkFunction FunctionOf(Cell cell) {
  switch (cell) {
    case Cell::kLSTM:
      return FunctionOf<Cell::kLSTM, Weight>();
    case Cell::kGRU:
      return FunctionOf<Cell::kGRU, Weight>();
    case Cell::kLinearGRU:
      return FunctionOf<Cell::kLinearGRU, Weight>();
    default:
      return FunctionOf<Cell::kRNN, Weight>();
  }
}

WorkFunction FunctionOf(const RecurrentBlocks& blocks) {
  switch (blocks.type) {
    case WeightType::kInt8:
      // The only cell of it.
      return FunctionOf<Cell::kLSTM, int8_t>();
    case WeightType::kBFloat16:
      return FunctionOf<uint16_t>(blocks.layer.cell);
    default:
      return FunctionOf<float>(blocks.layer.cell);
  }
}

size_t BytesOf(WeightType type) {
  return type == WeightType::kFloat32 ? 4 : type == WeightType::kBFloat16 ? 2 : 1;
}

/*! \brief The weights of a direction, each of which has so many columns. */
RecurrentWeights OfDirection(const RecurrentBlocks& b, const void* packed, int64_t direction,
                             int64_t columns, int64_t size) {
  if (b.type != WeightType::kInt8) {
    const auto bytes = direction * columns * size * static_cast<int64_t>(BytesOf(b.type));
    return {static_cast<const char*>(packed) + bytes, nullptr, nullptr, nullptr};
  }
  const RecurrentWeights all = Int8Weights(packed, b.layer.directions * columns, size);
  const int64_t first = direction * columns;
  return {static_cast<const char*>(packed) + first * PaddedToQuads(size), all.scales + first,
          all.shifts + first, all.sums + first};
}

/*! \brief A share of a block of a direction, computed in the scratch memory of the block. */
RecurrentWork WorkOf(const RecurrentBlocks& b, const RecurrentTensors& tensors, int64_t unit,
                     int64_t share, int64_t shares, float* scratch, uint8_t* quantized) {
  const RecurrentLayer& layer = b.layer;
  const int64_t direction = unit / b.blocks, begin = unit % b.blocks * b.rows;
  const int64_t columns = layer.directions * layer.hidden, padded = b.padded();
  const int64_t state = (direction * layer.batch + begin) * layer.hidden;
  RecurrentWork work{};
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
  const int64_t weight_columns = layer.gates() * padded, panels = padded / kLanes;
  work.weights = OfDirection(b, tensors.weights, direction, weight_columns, layer.inputs);
  work.recurrent_weights =
      OfDirection(b, tensors.recurrent_weights, direction, weight_columns, layer.hidden);
  work.is_shared = shares > 1;
  work.first_panel = panels * share / shares;
  work.end_panel = panels * (share + 1) / shares;
  work.bias = tensors.bias + direction * layer.bias_gates() * padded;
  work.h = tensors.h == nullptr ? nullptr : tensors.h + state;
  work.c = tensors.c == nullptr ? nullptr : tensors.c + state;
  work.lengths = tensors.lengths == nullptr ? nullptr : tensors.lengths + begin;
  work.h_n = tensors.h_n + state;
  work.c_n = tensors.c_n == nullptr ? nullptr : tensors.c_n + state;
  work.products = scratch;
  work.cells = work.products + work.chunk * b.rows * layer.gates() * padded;
  work.reset = work.cells + b.rows * padded;
  work.quantized = quantized;
  return work;
}

}  // namespace

RecurrentBlocks::RecurrentBlocks(const RecurrentLayer& layer, WeightType type, int num_threads)
    : layer(layer), type(type) {
  const int64_t threads = std::max<int64_t>(1, num_threads / layer.directions);
  blocks = std::max((layer.batch + kMaxRows - 1) / kMaxRows, std::min(layer.batch, threads));
  rows = (layer.batch + blocks - 1) / blocks;
  blocks = (layer.batch + rows - 1) / rows;
  const int64_t bytes =
      layer.gates() * layer.hidden * layer.hidden * static_cast<int64_t>(BytesOf(type));
  const int64_t units = layer.directions * blocks, panels = padded() / kLanes;
  // One direction after the other, if each fits into the caches of all threads only.
  groups =
      blocks == 1 && bytes > kCacheBytes ? 1 : std::min<int64_t>(units, std::max(1, num_threads));
  shares = std::min({num_threads / groups, panels, bytes * rows / kShareBytes});
  shares = std::max<int64_t>(1, shares);
  if (shares == 1) groups = std::min<int64_t>(units, std::max(1, num_threads));
}

int64_t RecurrentBlocks::chunk() const {
  // As many rows as MultiplyData multiplies by a panel while that is in the cache.
  return std::min(layer.steps, kMaxRows / rows);
}

int64_t RecurrentBlocks::scratch() const { return rows * (chunk() * layer.gates() + 2) * padded(); }

int64_t RecurrentBlocks::quantized_bytes() const {
  if (type != WeightType::kInt8) return 0;
  return kMaxRows * PaddedToQuads(std::max(layer.inputs, layer.hidden));
}

void RunRecurrent(const RecurrentBlocks& blocks, const RecurrentTensors& tensors) {
  const WorkFunction run = FunctionOf(blocks);
  const int64_t units = blocks.layer.directions * blocks.blocks;
  auto* const quantized =
      reinterpret_cast<uint8_t*>(tensors.scratch + blocks.workers() * blocks.scratch());
  ParallelTeam(static_cast<int>(blocks.workers()), [&](int worker, int workers) {
    // Threads wait for each other only if all are there.
    const int64_t shares = workers == blocks.workers() ? blocks.shares : 1;
    const int64_t groups = workers / shares, group = worker / shares;
    for (int64_t unit = group; unit < units; unit += groups) {
      run(WorkOf(blocks, tensors, unit, worker % shares, shares,
                 tensors.scratch + group * blocks.scratch(),
                 quantized + worker * blocks.quantized_bytes()));
    }
  });
}

}  // namespace tvm::runtime::contrib::dnnl_backend
