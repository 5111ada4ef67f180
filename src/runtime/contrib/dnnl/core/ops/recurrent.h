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
 * \file src/runtime/contrib/dnnl/core/ops/recurrent.h
 * \brief The sizes and attributes of a recurrent layer.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_RECURRENT_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_RECURRENT_H_

#include <cstdint>

#include "../node_reader.h"

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

/*! \brief Read the layer of a node whose operands have these dims, of rank 3. */
RecurrentLayer ReadRecurrentLayer(const NodeReader& node, const Dims& data, const Dims& weight,
                                  const Dims& recurrent_weight, bool is_int8);

class PlanBuilder;

/*! \brief Emit oneDNN's primitive of a layer whose weights have the type of the data. */
void EmitRecurrentPrimitive(const NodeReader& node, PlanBuilder* plan, const RecurrentLayer& layer);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_RECURRENT_H_
