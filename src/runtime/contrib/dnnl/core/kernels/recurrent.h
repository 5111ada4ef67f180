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
 * \file src/runtime/contrib/dnnl/core/kernels/recurrent.h
 * \brief A recurrent layer of float32 data as one kernel of ours.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_RECURRENT_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_RECURRENT_H_

#include <cstddef>
#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

enum class Cell {
  kLSTM,
  kGRU,
  kLinearGRU, /*!< the reset gate multiplies the product of state and weight */
  kRNN,
};

/*! \brief A layer as its node describes it. */
struct RecurrentLayer {
  Cell cell;
  bool is_relu{false};    /*!< of kRNN: the activation, else tanh */
  int64_t directions;     /*!< 1 or 2 */
  bool is_reverse;        /*!< of one direction */
  bool is_batch_first;    /*!< data and result are (N, T, C), else (T, N, C) */
  bool has_initial_state; /*!< zeros if there is none */
  bool has_lengths;       /*!< else each sequence has all steps */
  bool is_int8;           /*!< the weights, which have scales and zero points */
  int64_t steps, batch, inputs, hidden;

  int64_t gates() const { return cell == Cell::kLSTM ? 4 : cell == Cell::kRNN ? 1 : 3; }
  int64_t bias_gates() const { return cell == Cell::kLinearGRU ? 4 : gates(); }
  /*! \brief How many states it has: h, and c of an LSTM. */
  size_t num_states() const { return cell == Cell::kLSTM ? 2 : 1; }
  /*! \brief The first operand after the initial states: the lengths, if there are any. */
  int lengths_index() const { return 4 + (has_initial_state ? static_cast<int>(num_states()) : 0); }
  /*! \brief The first operand after those: the scale and the zero point of both int8 weights. */
  int scales_index() const { return lengths_index() + (has_lengths ? 1 : 0); }
  int num_operands() const { return scales_index() + (is_int8 ? 4 : 0); }
};

/*! \brief The most rows that are multiplied by a panel while it is in the cache. */
constexpr int64_t kMaxRows = 32;

/*! \brief The element type of a layer's weights. */
enum class WeightType { kFloat32, kBFloat16, kInt8 };

/*! \brief Weights in panels of 16 hidden units, by direction and gate. */
struct RecurrentWeights {
  const void* panels;
  // Of int8 for each column: the scale, its product with the negated zero point, and the sum of the
  // weights.
  const float *scales, *shifts;
  const int32_t* sums;
};

/*!
 * \brief The tensors of a layer. Weights are in panels, those of int8 as `PackInt8` packs them, and
 *        biases are padded to panels.
 */
struct RecurrentTensors {
  const float* data;
  const void *weights, *recurrent_weights;
  const float* bias;
  /*! \brief The initial states, or nullptr. */
  const float *h, *c;
  /*! \brief How many steps each sequence has, or nullptr. */
  const int32_t* lengths;
  float *y, *h_n;
  /*! \brief Of an LSTM, else nullptr. */
  float* c_n;
  float* scratch;
};

/*!
 * \brief A layer whose sequences are divided into blocks, which threads compute independently.
 *
 * Where there are more threads, several share a block: each computes some panels of all steps, and
 * waits for the others after each step.
 */
struct RecurrentBlocks {
  RecurrentLayer layer;
  WeightType type;
  /*! \brief The blocks of each direction, and the sequences of a block. */
  int64_t blocks, rows;
  /*! \brief The blocks that are computed at a time, and the threads that share each. */
  int64_t groups, shares;

  RecurrentBlocks(const RecurrentLayer& layer, WeightType type, int num_threads);
  /*! \brief The threads that have something to do. */
  int64_t workers() const { return groups * shares; }
  /*! \brief The hidden units with those that pad the last panel. */
  int64_t padded() const { return (layer.hidden + 15) / 16 * 16; }
  /*! \brief The steps whose data is multiplied by the weights at once. */
  int64_t chunk() const;
  /*! \brief The floats of scratch memory that a block needs. */
  int64_t scratch() const;
  /*! \brief The bytes that a thread needs for quantized rows. */
  int64_t quantized_bytes() const;
  /*! \brief The floats of scratch memory of all threads. */
  int64_t total_scratch() const { return workers() * (scratch() + quantized_bytes() / 4); }
};

/*! \brief Compute the layer; the scratch memory is that of all workers. */
void RunRecurrent(const RecurrentBlocks& blocks, const RecurrentTensors& tensors);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_RECURRENT_H_
